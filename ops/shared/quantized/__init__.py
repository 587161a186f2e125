"""Products of quantised operands: blocks, digits, and what they are made of."""
