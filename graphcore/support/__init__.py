"""Helpers that know nothing of graphs: source lines, files replaced atomically, pauses of the garbage collector."""
