"""Linear algebra without ONNX operators, as Loops over Symbols."""
