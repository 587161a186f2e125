"""Files for other servers: model repositories of Triton, manifests of KServe, and an image of our own server."""
