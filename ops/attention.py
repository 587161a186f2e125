"""Attention, and rotary position embeddings."""

from __future__ import annotations

from graphcore.build import primitives as e
from graphcore.build.declare import expansion, op
from graphcore.build.operands import graph_of, promote
from graphcore.build.shapes import Roles, check_integers, check_shape, same_dim
from graphcore.errors import DTypeError, ShapeError
from graphcore.ir.symbol import Symbol, TensorLike, present
from graphcore.ops.shared import attention as attention  # declares the operators' expansions
from graphcore.ops.shared.attention import in_heads, reshaped, side_by_side
from graphcore.ops.shared.attributes import domain_for, real, whole
from graphcore.ops.shared.dims import Axis, Size, divided, shape_vector, size_of
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, _shape, tensor_type

ONE = Dim(1)


@op(onnx="Attention", rule="float")
def scaled_dot_product_attention(
    q: TensorLike,
    k: TensorLike,
    v: TensorLike,
    attn_mask: TensorLike | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    softcap: float = 0.0,
    nonpad_kv_seqlen: TensorLike | None = None,
    q_num_heads: int | None = None,
    kv_num_heads: int | None = None,
) -> Symbol:
    """softmax(q @ k^T * scale + mask) @ v, head by head.

    Args:
        q: [batch, heads, queries, size].
        k: [batch, kv_heads, keys, size].
        v: [batch, kv_heads, keys, v_size]. heads is a multiple of kv_heads; each kv head serves heads / kv_heads
            consecutive heads. Or all three have rank 3, q [batch, queries, heads*size] and k and v likewise; then
            q_num_heads and kv_num_heads are required.
        attn_mask: A shape that broadcasts to [batch, heads, queries, keys]; bools, true for visible keys, or floats,
            added to the scores.
        is_causal: A query sees no key after its position.
        scale: Of the scores, 1/sqrt(size) for None.
        softcap: If not 0, scores become softcap * tanh(scores / softcap) before the mask.
        nonpad_kv_seqlen: Int64 [batch], the number of valid keys; the queries are then the last positions before that
            end. q, k, v and a mask of floats are promoted together; integers become floats.

    Returns:
        [batch, heads, queries, v_size], or [batch, queries, heads*v_size]; 0 for a query that sees no key.

    Raises:
        ShapeError: For shapes and numbers of heads that do not match.
        DTypeError: For a mask of integers and lengths that are not integers.

    Vaswani et al. 2017, arXiv:1706.03762; Ainslie et al. 2023, arXiv:2305.13245; ONNX Attention.
    """
    name = "scaled_dot_product_attention"
    factor = None if scale is None else real(name, "scale", scale)
    if factor is not None and factor <= 0:
        raise ShapeError(f"{name}: scale must be positive, got {scale}", help="omit scale for 1/sqrt(size)")
    cap = real(name, "softcap", softcap, least=0)
    graph = graph_of(name, (q, k, v, attn_mask, nonpad_kv_seqlen))
    mask = None if attn_mask is None else graph.build.operand(attn_mask, name, "attn_mask")
    if mask is not None and mask.dtype is not DType.bool and not mask.dtype.is_float:
        raise DTypeError(
            f"{name}: attn_mask must be bools or floats, got {mask.dtype}",
            operands={"attn_mask": mask},
            help="select keys with attn_mask != 0, or cast numbers to add: attn_mask.cast(DType.float32)",
        )
    operands: dict[str, TensorLike] = {"q": q, "k": k, "v": v}
    if mask is not None and mask.dtype is not DType.bool:
        operands["attn_mask"] = mask
    (sq, sk, sv, *promoted), dtype = promote(name, "float", operands)
    mask = promoted[0] if promoted else mask
    roles = {"q": sq, "k": sk, "v": sv}
    shape = _result_shape(name, roles, q_num_heads, kv_num_heads)
    attributes: dict[str, int | float] = {}
    if sq.rank == 3:
        attributes |= {"q_num_heads": int(present(q_num_heads)), "kv_num_heads": int(present(kv_num_heads))}
    if is_causal:
        attributes["is_causal"] = 1
    if factor is not None:
        attributes["scale"] = factor
    if cap:
        attributes["softcap"] = cap
    lengths = None
    if nonpad_kv_seqlen is not None:
        lengths = _lengths(name, graph.build.operand(nonpad_kv_seqlen, name, "nonpad_kv_seqlen"), sq)
    if mask is not None:
        mask = _expand_mask(name, mask, roles, sq.shape[1] if sq.rank == 4 else Dim(q_num_heads or 0))
    inputs: tuple[Symbol | None, ...] = (sq, sk, sv)
    if lengths is not None:
        inputs = (*inputs, mask, None, None, lengths)
    elif mask is not None:
        inputs = (*inputs, mask)
    return graph.build.emit("Attention", inputs, tensor_type(dtype, shape), attributes, domain_for(dtype, factor, cap))


def _result_shape(name: str, roles: dict[str, Symbol], q_heads: int | None, kv_heads: int | None) -> Shape:
    """Return the shape of the result. Raises `ShapeError` if the shapes of the operands do not match."""
    q, k, v = roles.values()
    if not (q.rank == k.rank == v.rank and q.rank in (3, 4)):
        raise ShapeError(
            f"{name}: q, k and v must all have rank 4 or all rank 3, got {q.rank}, {k.rank} and {v.rank}",
            operands=roles,
            help="give [batch, heads, sequence, size], or [batch, sequence, heads*size] with q_num_heads, kv_num_heads",
        )
    if q.rank == 4:
        if q_heads is not None or kv_heads is not None:
            raise ShapeError(
                f"{name}: operands of rank 4 have their heads in axis 1",
                operands=roles,
                help="omit q_num_heads and kv_num_heads",
            )
        q_count, kv_count, sequence = q.shape[1], k.shape[1], 2
        sizes = [s.shape[3] for s in (q, k, v)]
    else:
        if q_heads is None or kv_heads is None:
            raise ShapeError(
                f"{name}: operands of rank 3 need numbers of heads",
                operands=roles,
                help="give q_num_heads and kv_num_heads",
            )
        counts = (whole(name, "q_num_heads", q_heads, 1), *(whole(name, "kv_num_heads", kv_heads, 1),) * 2)
        q_count, kv_count, sequence = Dim(counts[0]), Dim(counts[1]), 1
        sizes = []
        for (role, symbol), count in zip(roles.items(), counts, strict=True):
            width = symbol.shape[2]
            if width.is_static and int(width) % count:
                raise ShapeError(
                    f"{name}: the {width} features of {role} cannot be split into {count} heads",
                    operands=roles,
                    help=f"give a number of heads that divides {width}",
                )
            sizes.append(width // count)
    _check_equal(name, "batch sizes", roles, [s.shape[0] for s in (q, k, v)])
    _check_equal(name, "sizes of a head of q and k", roles, sizes[:2])
    _check_equal(name, "lengths of k and v", roles, [s.shape[sequence] for s in (k, v)])
    if q.rank == 4:
        _check_equal(name, "numbers of heads of k and v", roles, [k.shape[1], v.shape[1]])
    if q_count.is_static and kv_count.is_static and (not int(kv_count) or int(q_count) % int(kv_count)):
        raise ShapeError(
            f"{name}: {q_count} heads of q cannot share {kv_count} heads of k and v evenly",
            operands=roles,
            help="the heads of q must be a multiple of those of k and v",
        )
    if q.rank == 4:
        return _shape([q.shape[0], q_count, q.shape[2], sizes[2]])
    return _shape([q.shape[0], q.shape[1], q_count * sizes[2]])


def _check_equal(name: str, what: str, roles: Roles, dims: list[Dim]) -> None:
    if any(not same_dim(dims[0], d) for d in dims[1:]):
        raise ShapeError(
            f"{name}: {what} differ: {' and '.join(map(str, dims))}",
            operands=roles,
            help="make them equal; if named dims always agree, give them one name, or declare it with ops.rebind",
        )


def _lengths(name: str, lengths: Symbol, q: Symbol) -> Symbol:
    roles = {"q": q, "nonpad_kv_seqlen": lengths}
    check_integers(name, "nonpad_kv_seqlen", lengths, roles)
    check_shape(name, "nonpad_kv_seqlen", roles, q.shape[:1], "give one length for each item of the batch")
    return lengths.graph.build.cast(lengths, DType.int64)


def _expand_mask(name: str, mask: Symbol, roles: dict[str, Symbol], heads: Dim) -> Symbol:
    """Expand the axes of queries and keys of a mask: onnxruntime broadcasts only the axes before them."""
    q, k, _ = roles.values()
    sequence = 2 if q.rank == 4 else 1
    target_dims = [q.shape[0], heads, q.shape[sequence], k.shape[sequence]]
    shape_of_mask = mask.shape
    if mask.rank > 4 or any(
        d != ONE and not same_dim(d, w) for d, w in zip(shape_of_mask[::-1], target_dims[::-1], strict=False)
    ):
        raise ShapeError(
            f"{name}: attn_mask of shape {shape_of_mask} does not broadcast to {_shape(target_dims)}",
            operands={**roles, "attn_mask": mask},
            help="its axes must be [batch, heads, queries, keys], each of that size or 1; leading axes are optional",
        )
    if mask.rank >= 2 and shape_of_mask[-2] is target_dims[2] and shape_of_mask[-1] is target_dims[3]:
        return mask
    sizes: list[Size] = [ONE] * max(mask.rank - 2, 0)
    for symbol in (q, k):
        dim = symbol.shape[sequence]
        sizes.append(dim if dim.is_static else Axis(symbol, sequence))
    target = shape_vector(mask.graph, sizes)
    shape = _shape([*shape_of_mask[:-2], *target_dims[2:]])
    return mask.graph.build.emit("Expand", (mask, target), tensor_type(mask.dtype, shape))


@op(onnx="RotaryEmbedding", rule="float")
def rotary_embedding(
    x: TensorLike,
    cos_cache: TensorLike,
    sin_cache: TensorLike,
    position_ids: TensorLike | None = None,
    interleaved: bool = False,
    rotary_embedding_dim: int = 0,
    num_heads: int | None = None,
) -> Symbol:
    """Rotary position embedding: pairs of features rotated by angles that increase with the position.

    Args:
        x: [batch, heads, sequence, size], or [batch, sequence, heads*size] with num_heads.
        cos_cache: Cosine and sine of the angles, [batch, sequence, rotated/2], or [positions, rotated/2] with
            position_ids.
        sin_cache: As `cos_cache`.
        position_ids: [batch, sequence], integers from 0 to positions - 1. x and the caches are promoted together;
            integers become floats.
        interleaved: A pair is two neighbours instead of a feature and the one rotated/2 features after it.
        rotary_embedding_dim: The number of rotated features of each head, an even number; 0 for all.

    Returns:
        The shape of x.

    Raises:
        ShapeError: For shapes that do not match.
        DTypeError: For position_ids that are not integers.

    Su et al. 2021, arXiv:2104.09864; ONNX RotaryEmbedding.
    """
    name = "rotary_embedding"
    graph = graph_of(name, (x, cos_cache, sin_cache, position_ids))
    operands = {"x": x, "cos_cache": cos_cache, "sin_cache": sin_cache}
    (sx, cos, sin), dtype = promote(name, "float", operands)
    roles = {"x": sx, "cos_cache": cos, "sin_cache": sin}
    positions = None
    if position_ids is not None:
        positions = graph.build.operand(position_ids, name, "position_ids")
        roles["position_ids"] = positions
    sequence, size = _rotary_axes(name, sx, num_heads, roles)
    rotated = whole(name, "rotary_embedding_dim", rotary_embedding_dim, 0)
    if rotated % 2 or (size.is_static and rotated > int(size)):
        raise ShapeError(
            f"{name}: rotary_embedding_dim={rotated} must be an even number up to the size of a head, {size}",
            operands=roles,
            help="give an even number of features, 0 for all",
        )
    half = Dim(rotated // 2) if rotated else size // 2
    leading = [sx.shape[0], sx.shape[sequence]]
    cache = [*leading, half] if positions is None else [Dim.dynamic(), half]
    for role in ("cos_cache", "sin_cache"):
        _check_shape(name, role, roles[role], cache, roles, "" if positions is None else "positions")
    if positions is None:
        cos, sin = (_expand_batch(s, sx) for s in (cos, sin))
    else:
        _check_equal(name, "lengths of cos_cache and sin_cache", roles, [cos.shape[0], sin.shape[0]])
        check_integers(name, "position_ids", positions, roles)
        _check_shape(name, "position_ids", positions, leading, roles)
        positions = graph.build.cast(_expand_batch(positions, sx), DType.int64)
    attributes = {"interleaved": int(bool(interleaved)), "rotary_embedding_dim": rotated}
    if sx.rank == 3:
        attributes["num_heads"] = int(present(num_heads))
    inputs = (sx, cos, sin) if positions is None else (sx, cos, sin, positions)
    return graph.build.emit("RotaryEmbedding", inputs, tensor_type(dtype, sx.shape), attributes)


def _rotary_axes(name: str, x: Symbol, num_heads: int | None, roles: Roles) -> tuple[int, Dim]:
    """Return the axis of positions, and the size of a head."""
    if x.rank not in (3, 4):
        raise ShapeError(
            f"{name}: x must have rank 3 or 4, got {x.rank}",
            operands=roles,
            help="give [batch, heads, sequence, size], or [batch, sequence, heads*size] with num_heads",
        )
    if x.rank == 3 and num_heads is None:
        raise ShapeError(f"{name}: x of rank 3 needs a number of heads", operands=roles, help="give num_heads")
    if x.rank == 4 and num_heads is not None and not same_dim(x.shape[1], num_heads):
        raise ShapeError(
            f"{name}: num_heads is {num_heads}, but x has {x.shape[1]} heads", operands=roles, help="omit num_heads"
        )
    size = x.shape[-1]
    if x.rank == 3:
        count = whole(name, "num_heads", num_heads, 1)
        if size.is_static and int(size) % count:
            raise ShapeError(
                f"{name}: {size} features cannot be split into {count} heads",
                operands=roles,
                help=f"give a number of heads that divides {size}",
            )
        size = size // count
    if size.is_static and int(size) % 2:
        raise ShapeError(
            f"{name}: the size of a head must be even, got {size}", operands=roles, help="features are rotated in pairs"
        )
    return (1 if x.rank == 3 else 2), size


def _check_shape(name: str, role: str, symbol: Symbol, expected: list[Dim], roles: Roles, first: str = "") -> None:
    """Raise `ShapeError` unless the shape is as expected, or has 1 in place of the batch."""
    fits = symbol.rank == len(expected) and all(
        same_dim(d, w) or (not axis and d == 1) for axis, (d, w) in enumerate(zip(symbol.shape, expected, strict=True))
    )
    if not fits:
        described = ", ".join([first or str(expected[0]), *map(str, expected[1:])])
        raise ShapeError(
            f"{name}: {role} must have shape [{described}], got {symbol.shape}",
            operands=roles,
            help="caches are [positions, rotated/2] with position_ids, else [batch, sequence, rotated/2]",
        )


def _expand_batch(symbol: Symbol, x: Symbol) -> Symbol:
    """Expand a batch of 1 to the batch of x."""
    batch = x.shape[0]
    if symbol.shape[0] != 1 or batch == 1:
        return symbol
    ones: list[Size] = [ONE] * (symbol.rank - 1)
    target = shape_vector(x.graph, [batch if batch.is_static else Axis(x, 0), *ones])
    shape = _shape([batch, *symbol.shape[1:]])
    return x.graph.build.emit("Expand", (symbol, target), tensor_type(symbol.dtype, shape))


# The expansion of rotary embeddings, for dtypes without a kernel


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
    rotated, rest = x, None
    if rotary_embedding_dim:
        rotated = _features(x, 0, rotary_embedding_dim, 2 * half)
        rest = _features(x, rotary_embedding_dim, 2**62, x.shape[3] - 2 * half)
    pairs = _shape([*x.shape[:3], half])
    if interleaved:
        shape = _shape([*x.shape[:3], half, Dim(2)])
        paired = reshaped(rotated, [*(size_of(x, i) for i in range(3)), divided(rotated, 3, 2), Dim(2)], shape)
        a, b = (e.emit("Gather", paired, x.graph.build.scalar(i, DType.int64), shape=pairs, axis=-1) for i in (0, 1))
    else:
        a, b = x.graph.build.emit_many(
            "Split", (rotated,), [tensor_type(x.dtype, pairs)] * 2, {"axis": 3, "num_outputs": 2}
        )
    real = e.emit("Sub", *(e.emit("Mul", s, t, shape=pairs) for s, t in ((cos, a), (sin, b))), shape=pairs)
    imaginary = e.emit("Add", *(e.emit("Mul", s, t, shape=pairs) for s, t in ((sin, a), (cos, b))), shape=pairs)
    if interleaved:
        shape = _shape([*x.shape[:3], half, Dim(2)])
        both = e.emit("Concat", e.unsqueeze(real, 4), e.unsqueeze(imaginary, 4), shape=shape, axis=4)
        result = reshaped(both, [size_of(rotated, i) for i in range(4)], rotated.shape)
    else:
        result = e.emit("Concat", real, imaginary, shape=_shape([*x.shape[:3], 2 * half]), axis=3)
    if rest is not None:
        result = e.emit("Concat", result, rest, shape=x.shape, axis=3)
    return side_by_side(result) if flat else result


def _features(x: Symbol, start: int, stop: int, width: Dim) -> Symbol:
    """Return the features of the last axis from `start` up to `stop`."""
    ends = (x.graph.build.vector([n]) for n in (start, stop, x.rank - 1))
    return e.emit("Slice", x, *ends, shape=_shape([*x.shape[:-1], width]))
