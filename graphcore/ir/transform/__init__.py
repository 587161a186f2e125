"""Transformations of graphs: walks, rewrites, edits in place, and pattern matching."""
