"""Warm starts: optimised models, and what a load needs to know of them, kept in a folder by cache key."""
