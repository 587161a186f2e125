"""Facts about graphs: layers, sizes, operations, casts and their reasons, statistics of arrays. Nothing is changed."""
