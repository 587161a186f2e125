"""The versions of ONNX that files are written in, and the size that one may have."""

OPSET = 26
IR_VERSION = 13
"""The newest that onnxruntime 1.31 reads; `onnx` writes newer ones."""

DOMAINS = {"ai.onnx.ml": 5}
"""The versions of other domains, where they are not 1."""

ONNX_DOMAINS = frozenset({"", *DOMAINS, "ai.onnx.preview", "ai.onnx.preview.training", "ai.onnx.training"})
"""The domains whose operators ONNX defines. "ai.onnx.contrib" is onnxruntime-extensions'."""

LIMIT = (1 << 31) - 1
"""Bytes of the largest protobuf message."""
