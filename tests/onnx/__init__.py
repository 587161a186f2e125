"""Tests of files and ONNX."""
