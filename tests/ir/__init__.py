"""Tests of graphs and Symbols."""
