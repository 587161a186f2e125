"""The optimisers of onnxruntime: which of them have nothing to do in a model."""
