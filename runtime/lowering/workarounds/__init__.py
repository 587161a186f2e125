"""Workarounds: edits that avoid bugs of onnxruntime's optimisers and kernels."""
