"""What other servers read: model repositories of Triton, manifests of KServe, and an image of our own server."""
