"""Models in sandboxed worker processes of their own: limits of memory and time, no files, no network."""
