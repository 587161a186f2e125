"""Expansion of the operators of graphcore into ONNX's, or into kernels of the runtime."""
