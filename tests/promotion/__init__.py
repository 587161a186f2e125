"""Tests of promotion systems."""
