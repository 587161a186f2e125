"""What `make docs` builds the site with, beside mkdocs.yml."""
