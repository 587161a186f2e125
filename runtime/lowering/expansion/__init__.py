"""The library's own operators by ONNX's, or by kernels of the runtime."""
