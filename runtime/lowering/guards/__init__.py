"""Guards against what the runtime does wrong with several nodes at once."""
