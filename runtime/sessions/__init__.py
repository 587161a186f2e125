"""Sessions: the ways in which a graph or a file becomes a Model, and what each of them needs."""
