"""Linear algebra that ONNX has no operators for, in Loops over Symbols."""
