"""Protobuf messages of ONNX: models, tensors, attributes and types, read and written without copies."""
