"""Building blocks of decompositions: the builder, casts and constants for a target."""
