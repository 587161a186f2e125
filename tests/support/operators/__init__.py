"""Every operator of ONNX in every dtype, called through `ops.onnx`: built, lowered and run."""
