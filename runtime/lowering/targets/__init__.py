"""What a target runs: dtypes of kernels by release, traps, and incorrect kernels."""
