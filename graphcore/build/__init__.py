"""Declaring ops and making nodes: operands are promoted, shapes inferred, nodes emitted."""
