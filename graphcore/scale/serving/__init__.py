"""Models over HTTP: graphcore's server, and a deployment on Ray Serve."""
