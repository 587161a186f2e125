"""Models behind HTTP: what serves them, a small server of our own, and a deployment of Ray Serve."""
