"""ONNX's own node tests, run on graphcore."""
