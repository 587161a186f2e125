"""Files for servers: model repositories for Triton, manifests for KServe, and Docker images of graphcore's server."""
