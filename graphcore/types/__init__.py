"""Dtypes, dims, shapes and types: interned values, so that equal ones are one object."""
