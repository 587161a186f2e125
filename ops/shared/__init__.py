"""Helpers that several families of ops and lowering share."""
