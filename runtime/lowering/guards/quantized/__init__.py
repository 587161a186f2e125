"""Guards of what is dequantised: onnxruntime computes it on integers again, or moves it."""
