"""Real models written with the library."""
