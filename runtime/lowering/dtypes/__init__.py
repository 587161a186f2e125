"""Dtypes that a target does not store: each pass replaces some by storage dtypes."""
