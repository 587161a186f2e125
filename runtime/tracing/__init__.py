"""Functions of Symbols that run on arrays: traced once for each signature, compiled and cached; and eager Tensors."""
