"""Graphs called, cut and mended: each function makes a new graph, or adds one graph to another. See docs/surgery.md."""
