"""Analyse graphs without changing them: layers, sizes, FLOPs, casts and their reasons, statistics of arrays."""
