"""Fuzzing for wrong numbers, deaths and hangs: `python -m tests.fuzz --minutes N`, docs/development/fuzzing.md."""
