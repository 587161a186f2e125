"""All families of ops, imported: each file declares its ops."""

from __future__ import annotations

from importlib import import_module

for _name in (
    "activation attention bitfields bits buffers complex_numbers control convolution creation detection"
    " elementwise floats fourier gathering indexing joining linalg normalization pooling quantiles"
    " quantization random rearranging rebinding recurrent reduction resizing sequences shape sorting"
    " special strings triangular vectors"
).split():
    import_module(f"graphcore.ops.{_name}")
