"""ONNX's operators as Python functions: signatures from schemas, operands bound and promoted."""
