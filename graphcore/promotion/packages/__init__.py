"""The promotion of array packages: NumPy, JAX and PyTorch, each as its documentation and its release have it."""
