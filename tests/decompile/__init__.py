"""Tests of graphs as Python source."""
