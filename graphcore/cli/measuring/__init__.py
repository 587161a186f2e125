"""Measuring models: what they are fed, how far numbers are apart, and what calls cost."""
