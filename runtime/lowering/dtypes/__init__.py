"""Dtypes that a target does not store: each pass puts others in their place."""
