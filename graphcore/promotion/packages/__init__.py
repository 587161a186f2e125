"""The promotion of array packages: NumPy, JAX and PyTorch, each as in its documentation and release."""
