"""Tests of the probe of kernels."""
