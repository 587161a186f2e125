"""Decompositions for releases that lack an operator, or have it wrong."""
