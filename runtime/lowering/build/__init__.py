"""What decompositions build with: casts and constants for a target."""
