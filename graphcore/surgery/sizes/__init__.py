"""Other sizes and names for the dims of a graph."""
