"""Each node made legal for a target: as it is, in another dtype, or decomposed."""
