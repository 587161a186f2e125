"""Generators and hooks of the site that `make docs` builds, beside mkdocs.yml."""
