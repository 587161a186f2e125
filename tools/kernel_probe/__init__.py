"""Remakes the table of what a provider of the installed onnxruntime has kernels for.

`python -m tools.kernel_probe --provider cpu` writes `cpu.json`: every operator of the default domain is
asked for in every dtype of its schema, as a model of one node, by a process that may die of it.
"""
