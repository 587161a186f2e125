"""Tests of the operator library."""
