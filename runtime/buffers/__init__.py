"""Buffers at run time: their values between calls, and how calls run with them."""
