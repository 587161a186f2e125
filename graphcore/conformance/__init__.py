"""Conformance suites, run against graphcore and other ONNX runtimes. `graphcore conform` prints the table."""
