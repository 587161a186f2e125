"""Arrays of all dtypes: casts with exact semantics, integers of any width, constant folding, memory-mapped files."""
