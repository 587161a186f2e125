"""The commands: functions that take the arguments and return the exit status."""
