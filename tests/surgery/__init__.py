"""Tests of calling, cutting and mending graphs."""
