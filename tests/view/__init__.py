"""Tests of the page and of what notebooks show."""
