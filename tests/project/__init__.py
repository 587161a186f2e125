"""Tests of the project: its documents, examples and lock."""
