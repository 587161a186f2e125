"""Stop runs early: at a deadline, on cancellation, and on a signal. See docs/howto/timeouts.md."""
