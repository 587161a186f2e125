"""Direct loads: models of others that run as they are, handed to onnxruntime without a Graph."""
