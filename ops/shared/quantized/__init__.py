"""Products of quantised operands: blocks of GGUF, digits, and their expansions."""
