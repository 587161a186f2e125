"""The expansion of rotary embeddings, for dtypes without a kernel."""

from __future__ import annotations

from graphcore.build import primitives as e
from graphcore.build.declare import expansion
from graphcore.ir.symbol import Symbol
from graphcore.ops.shared.heads import divided, in_heads, reshaped, side_by_side, size
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import _shape, tensor_type

ONE = Dim(1)


@expansion("RotaryEmbedding")
def _rotary_embedding(
    x: Symbol,
    cos: Symbol,
    sin: Symbol,
    position_ids: Symbol | None = None,
    *,
    interleaved: int = 0,
    rotary_embedding_dim: int = 0,
    num_heads: int = 0,
) -> Symbol:
    flat = x.rank == 3
    if flat:
        x = in_heads(x, num_heads)
    half = Dim(rotary_embedding_dim // 2) if rotary_embedding_dim else x.shape[3] // 2
    angles = _shape([x.shape[0], ONE, x.shape[2], half])
    if position_ids is not None:
        taken = _shape([x.shape[0], x.shape[2], half])
        cos, sin = (e.emit("Gather", s, position_ids, shape=taken, axis=0) for s in (cos, sin))
    cos, sin = (e.emit("Unsqueeze", s, x.graph.build.vector([1]), shape=angles) for s in (cos, sin))
    turned, rest = x, None
    if rotary_embedding_dim:
        turned = _features(x, 0, rotary_embedding_dim, 2 * half)
        rest = _features(x, rotary_embedding_dim, 2**62, x.shape[3] - 2 * half)
    pairs = _shape([*x.shape[:3], half])
    if interleaved:
        shape = _shape([*x.shape[:3], half, Dim(2)])
        apart = reshaped(turned, [*(size(x, i) for i in range(3)), divided(turned, 3, 2), Dim(2)], shape)
        a, b = (e.emit("Gather", apart, x.graph.build.scalar(i, DType.int64), shape=pairs, axis=-1) for i in (0, 1))
    else:
        a, b = x.graph.build.emit_many(
            "Split", (turned,), [tensor_type(x.dtype, pairs)] * 2, {"axis": 3, "num_outputs": 2}
        )
    real = e.emit("Sub", *(e.emit("Mul", s, t, shape=pairs) for s, t in ((cos, a), (sin, b))), shape=pairs)
    imaginary = e.emit("Add", *(e.emit("Mul", s, t, shape=pairs) for s, t in ((sin, a), (cos, b))), shape=pairs)
    if interleaved:
        shape = _shape([*x.shape[:3], half, Dim(2)])
        ends = [
            e.emit("Unsqueeze", s, x.graph.build.vector([4]), shape=_shape([*pairs, ONE])) for s in (real, imaginary)
        ]
        both = e.emit("Concat", *ends, shape=shape, axis=4)
        made = reshaped(both, [size(turned, i) for i in range(4)], turned.shape)
    else:
        made = e.emit("Concat", real, imaginary, shape=_shape([*x.shape[:3], 2 * half]), axis=3)
    if rest is not None:
        made = e.emit("Concat", made, rest, shape=x.shape, axis=3)
    return side_by_side(made) if flat else made


def _features(x: Symbol, start: int, stop: int, width: Dim) -> Symbol:
    """Return the features of the last axis from `start` up to `stop`."""
    ends = (x.graph.build.vector([n]) for n in (start, stop, x.rank - 1))
    return e.emit("Slice", x, *ends, shape=_shape([*x.shape[:-1], width]))
