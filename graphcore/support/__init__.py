"""Helpers independent of graphs: source lines, atomic replacement of files, pauses of the garbage collector."""
