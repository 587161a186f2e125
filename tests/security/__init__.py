"""Tests of untrusted files and models."""
