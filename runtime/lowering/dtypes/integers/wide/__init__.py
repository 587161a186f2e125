"""Integers of more than 64 bits, in limbs."""
