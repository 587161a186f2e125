"""Graphs drawn: one HTML file with everything in it, and what notebooks show. See docs/howto/draw.md."""
