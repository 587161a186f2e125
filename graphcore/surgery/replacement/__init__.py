"""Replacing values, nodes, and all that a pattern describes."""
