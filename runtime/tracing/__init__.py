"""Functions of Symbols that run on arrays: traced once for each signature, compiled, and kept; and eager Tensors."""
