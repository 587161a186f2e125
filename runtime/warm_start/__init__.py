"""Starts that are found again: caches of optimised models, by what they were made of."""
