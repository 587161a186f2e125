"""Calls of functions and of custom operators: inlined, or kept."""
