"""Declares ops and builds their nodes: promotes operands, infers shapes, emits nodes."""
