"""The state of a graph beside its nodes: origins, caches, settings."""
