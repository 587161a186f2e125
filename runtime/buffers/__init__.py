"""Buffers at run time: what they hold between calls, and how calls are run with them."""
