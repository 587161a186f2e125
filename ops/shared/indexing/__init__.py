"""Indices, positions and slices as operands of ops."""
