"""Tests of sessions and calls."""
