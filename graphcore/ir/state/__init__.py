"""The state of a graph beside its contents: where nodes come from, what was made before."""
