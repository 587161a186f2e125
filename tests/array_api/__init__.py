"""Tests of the array API."""
