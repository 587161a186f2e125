"""Warm starts: optimised models and the data of their loads, stored in a folder by cache key."""
