"""ONNX: graphs written as protobuf, directly."""
