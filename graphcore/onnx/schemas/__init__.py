"""ONNX's operator schemas: dtypes, ranks, and shape inference."""
