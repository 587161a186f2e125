"""Runs that end early: at a deadline, when they are cancelled, and when a signal arrives. See docs/running.md."""
