"""Calls of a model: check feeds, split batches, bind arrays and explain failures."""
