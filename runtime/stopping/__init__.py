"""Runs that end early: at a deadline, when cancelled, and when a signal arrives. See docs/howto/timeouts.md."""
