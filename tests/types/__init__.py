"""Tests of dtypes, dims and types."""
