"""Tests of custom operators."""
