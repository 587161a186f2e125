"""Draw graphs: as one self-contained HTML file, and in notebooks. See docs/howto/draw.md."""
