"""Integers of many limbs: what a value is, arithmetic on it, and its conversions."""
