"""Decompositions of operators for which onnxruntime has no kernel, or a wrong one: `rows` has the table."""
