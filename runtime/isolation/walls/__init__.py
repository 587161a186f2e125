"""Walls around a worker process: limits, files, and calls of the kernel. They stand before a model is looked at."""
