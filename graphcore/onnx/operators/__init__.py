"""The operators of ONNX as functions: signatures from schemas, operands bound and promoted."""
