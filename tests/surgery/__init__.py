"""Tests of calling, cutting and fixing graphs."""
