"""Graphs made of graphs: walked, rewritten, edited in place, and matched against patterns."""
