"""Continuous batching of texts: requests join and leave between steps, with shared prefixes and prompt lookup."""
