"""Functions of NumPy called on Symbols: they build the op that computes the same, or say which one to call."""
