"""The commands, a file each: a function of the file's name takes the arguments and returns the exit status."""
