"""Parts of linear algebra that ONNX has no operators for: Loops over stacks of matrices, and their steps."""
