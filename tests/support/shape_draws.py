"""Operands and attributes that are drawn for each operator which has a rule of shapes."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx

from graphcore import DType, TensorType
from graphcore.onnx.schemas.schemas import schema_of
from graphcore.operators import ONNX, REDUCTIONS, SHAPES, Trait, having

Dims = list[int | str]
DIMS: Dims = [1, 1, 0, 2, 3, 4, "n", "m", "n + 1", "n // 2", "?"]


class Draw:
    """Draws operands. version: of the operator that they are for."""

    def __init__(self, seed: object, version: int) -> None:
        self.random = random.Random(str(seed))
        self.version = version

    def shape(self, fewest: int = 0, most: int = 3, dims: Sequence[int | str] = ()) -> Dims:
        return [self.random.choice(dims or DIMS) for _ in range(self.random.randint(fewest, most))]

    def choice(self, *dims: int | str) -> int | str:
        return self.random.choice(dims)

    def axis(self, shape: Sequence[object]) -> int:
        """An axis, and now and then one that there is not."""
        rank = len(shape)
        return self.random.randint(-rank - (self.random.random() < 0.1), max(rank - (self.random.random() < 0.9), 0))

    def some(self, **attributes: Any) -> dict[str, Any]:
        """Some of the attributes: those that are drawn."""
        return {key: item for key, item in attributes.items() if self.random.random() < 0.6}


Drawn = tuple[list[Any], dict[str, Any]]
"""Operands: shapes of floats, types, arrays of constants, or None; and attributes."""


def _elementwise(operator: str) -> Callable[[Draw], Drawn]:
    def draw(d: Draw) -> Drawn:
        schema = schema_of(operator, "", d.version)
        assert schema is not None
        count = schema.min_input
        if schema.max_input > 4:
            count = d.random.randint(1, 3)
        dtypes = [next(t for t in FIRST if t in p) for p in _parameters(schema, count)]
        shapes = [d.shape() for _ in range(count)]
        if d.random.random() < 0.5:  # most that are drawn do not go together
            shapes = [[1 if d.random.random() < 0.3 else dim for dim in shapes[0]] for _ in shapes]
        if operator in ("Max", "Mean", "Min", "Sum") and d.version < 8:  # which do not broadcast
            shapes = shapes[:1] * count
        attributes: dict[str, Any] = {}
        if operator in ("Cast", "BitCast"):
            attributes["to"] = int(d.random.choice([1, 6, 7, 9, 10, 11]) if operator == "Cast" else 6)
        if operator == "BitShift":
            attributes["direction"] = "LEFT"
        return [TensorType(NAMES[t], s) for t, s in zip(dtypes, shapes, strict=True)], attributes

    return draw


NAMES = {
    "tensor(float)": DType.float32, "tensor(int64)": DType.int64, "tensor(bool)": DType.bool,
    "tensor(int8)": DType.int8, "tensor(uint8)": DType.uint8, "tensor(string)": DType.string,
    "tensor(uint64)": DType.uint64,
}  # fmt: skip
FIRST = list(NAMES)


def _parameters(schema: onnx.defs.OpSchema, count: int) -> list[list[str]]:
    inputs = [*schema.inputs, *[schema.inputs[-1]] * count][:count]
    return [_allowed(schema, parameter) for parameter in inputs]


def _allowed(schema: onnx.defs.OpSchema, parameter: Any) -> list[str]:
    results = [c.allowed_type_strs for c in schema.type_constraints if c.type_param_str == parameter.type_str]
    return list(results[0]) if results else [parameter.type_str]


def _reduced(d: Draw, since: int = 18) -> Drawn:
    shape = d.shape(0, 4)
    axes = [d.axis(shape) for _ in range(d.random.randint(0, 2))]
    attributes = d.some(keepdims=d.random.randint(0, 1))
    operands: list[Any] = [shape]
    if d.version >= since:
        attributes |= d.some(noop_with_empty_axes=1)
        operands += [d.random.choice([np.array(axes, np.int64), TensorType(DType.int64, [2]), None])]
    elif axes:
        attributes["axes"] = axes
    return operands, attributes


def _along(d: Draw) -> Drawn:
    shape = d.shape(1, 4)
    return [shape], d.some(axis=d.axis(shape))


def _same(*others: Any, rank: int = 2, **attributes: Any) -> Callable[[Draw], Drawn]:
    def draw(d: Draw) -> Drawn:
        return [d.shape(rank, max(rank, 4)), *others], dict(attributes)

    return draw


def _channels(d: Draw) -> Drawn:
    count: int | str = d.random.choice([2, 3, 1])
    shape = d.shape(2, 4)
    shape[1] = count
    own = [[count if d.random.random() < 0.9 else d.random.choice(DIMS)] for _ in range(4)]
    training = d.version >= 14 and d.random.random() < 0.5
    return [shape, *own], {"training_mode": 1, "results": 3} if training else {}


def _layer(d: Draw) -> Drawn:
    shape = d.shape(1, 4)
    return [shape, [1]], {**d.some(axis=d.axis(shape)), "results": d.random.randint(1, 3)}


INT64 = DType.int64


def numbers(d: Draw, values: Sequence[int], dtype: type = np.int64) -> Any:
    """A constant of these numbers, or now and then an operand that holds as many."""
    return np.array(values, dtype) if d.random.random() < 0.8 else TensorType(DType.of(dtype), [len(values)])


def _reshaped(d: Draw) -> Drawn:
    shape = d.shape(0, 4)
    return [shape, numbers(d, [d.random.choice([0, -1, 1, 2, 3, 6, -2]) for _ in range(d.random.randint(0, 4))])], {}


def _with_axes(new: bool) -> Callable[[Draw], Drawn]:
    def draw(d: Draw) -> Drawn:
        shape = d.shape(1, 4, [1, 1, 1, 2, "n", "?"])
        chosen = [d.axis(shape) for _ in range(d.random.randint(1, 2))]
        if d.version < 11:  # which has no axes below 0
            chosen = sorted({abs(axis) for axis in chosen})
        if d.version < 13:
            return [shape], {"axes": chosen} if new or d.random.random() < 0.8 else {}
        return [shape, *([numbers(d, chosen)] if new or d.random.random() < 0.8 else [])], {}

    return draw


def _transposed(d: Draw) -> Drawn:
    shape = d.shape(1, 4)
    return [shape], d.some(perm=d.random.sample(range(len(shape)), len(shape)))


def _joined(d: Draw) -> Drawn:
    shape = d.shape(1, 3)
    axis = d.axis(shape)
    shapes = [[*shape] for _ in range(d.random.randint(1, 3))]
    for other in shapes:
        other[axis % len(shape)] = d.random.choice(DIMS)
        if d.random.random() < 0.2:
            other[-1] = d.random.choice(DIMS)
    return [*shapes], {"axis": axis}


def _parts(d: Draw) -> Drawn:
    shape = d.shape(1, 3, [1, 4, 6, "n", "?"])
    axis, count = d.axis(shape), d.random.randint(1, 3)
    attributes: dict[str, Any] = {"results": count, **d.some(axis=axis)}
    sizes = d.random.choice([[1, 3], [2, 2, 2], [4], [6], [0, 4], [0] * 40 + [6]])
    if d.random.random() < 0.5:
        return [shape], attributes | ({"num_outputs": count} if d.version >= 18 else {})
    attributes["results"] = len(sizes) if d.random.random() < 0.9 else count
    return ([shape, numbers(d, sizes)], attributes) if d.version >= 13 else ([shape], attributes | {"split": sizes})


def _expanded(d: Draw) -> Drawn:
    return [d.shape(), numbers(d, [d.random.choice([1, 1, 2, 3]) for _ in range(d.random.randint(0, 4))])], {}


def _tiled(d: Draw) -> Drawn:
    shape = d.shape()
    count = len(shape) + (d.random.random() < 0.1)
    return [shape, numbers(d, [d.random.randint(0, 3) for _ in range(count)])], {}


def _gathered(d: Draw) -> Drawn:
    shape = d.shape(1, 4)
    return [shape, TensorType(INT64, d.shape())], d.some(axis=d.axis(shape))


def _gathered_rows(d: Draw) -> Drawn:
    batch = [d.random.choice(DIMS)] if d.version >= 12 and d.random.random() < 0.5 else []
    last = d.choice(1, 2, 3, "n")
    places = TensorType(INT64, [*batch, *d.shape(0, 2), last])
    return [[*batch, *d.shape(1, 3)], places], {"batch_dims": 1} if batch else {}


def _compressed(d: Draw) -> Drawn:
    shape = d.shape(1, 3)
    return [shape, TensorType(DType.bool, ["k"])], d.some(axis=d.axis(shape))


def _blocks(d: Draw) -> Drawn:
    return [[d.random.choice(["n", 2]), d.random.choice([4, 8, "c"]), *d.shape(2, 2, [2, 4, "h", "?"])]], {
        "blocksize": 2
    }


def _cut(d: Draw) -> Drawn:
    shape = d.shape(1, 4)
    count = d.random.randint(1, len(shape))
    axes = d.random.sample(range(-len(shape), 0), count)
    starts, ends = ([d.random.choice([*range(-5, 6), 2**31 - 1, -(2**31)]) for _ in range(count)] for _ in "se")
    steps = [d.random.choice([1, 1, 2, 3, -1, -2]) for _ in range(count)]
    if d.version < 10:
        return [shape], {"starts": starts, "ends": ends, **d.some(axes=axes)}
    operands = [shape, *[numbers(d, each) for each in (starts, ends, axes, steps)[: d.random.randint(2, 4)]]]
    return operands, {}


def _padded(d: Draw) -> Drawn:
    shape = d.shape(1, 3)
    pads = [d.random.randint(-1, 3) for _ in range(2 * len(shape))]
    if d.version < 11:
        return [shape], {"pads": pads}
    if d.version < 18 or d.random.random() < 0.5:
        return [shape, numbers(d, pads)], {}
    return [shape, numbers(d, pads[:2]), None, numbers(d, [d.axis(shape)])], {}


def _resized(d: Draw) -> Drawn:
    shape = d.shape(1, 3, [1, 2, 3, 4, "n", "?"])
    scales = numbers(d, [d.random.choice([0.5, 1.0, 1.3, 2.0, 0.0]) for _ in shape], np.float32)  # type: ignore[misc]
    sizes = numbers(d, [d.random.randint(0, 5) for _ in shape])
    if d.version < 11:
        return [shape, scales], {}
    attributes = d.some(keep_aspect_ratio_policy=d.random.choice(["stretch", "not_larger"])) if d.version >= 18 else {}
    by_scales = "keep_aspect_ratio_policy" not in attributes and d.random.random() < 0.5
    region = np.zeros(0, np.float32)
    none = None if d.version >= 13 else region
    return [shape, *([none, scales] if by_scales else [none, none, sizes])], attributes


def _cropped(d: Draw) -> Drawn:
    shape = d.shape(1, 3)
    axes = d.random.sample(range(len(shape)), d.random.randint(1, len(shape)))
    return [shape, numbers(d, [d.random.randint(0, 5) for _ in axes])], {"axes": axes}


def _greatest(d: Draw) -> Drawn:
    shape = d.shape(1, 3)
    attributes = {**d.some(axis=d.axis(shape)), "results": 2}
    count = d.random.randint(d.version < 10, 4)
    return ([shape], {**attributes, "k": count}) if d.version < 10 else ([shape, numbers(d, [count])], attributes)


def _counted(d: Draw) -> Drawn:
    dtype: Any = d.random.choice([np.int64, np.int32, np.float32, np.float64])
    start, limit, step = (d.random.choice([-3, 0, 1, 2, 7, 0.5]) for _ in range(3))
    return [np.array(n, dtype) for n in (start, limit, dtype(step) or 1)], {}


def _one_hot(d: Draw) -> Drawn:
    shape = d.shape(0, 2)
    depth = d.random.choice([np.array(3), np.array([3]), TensorType(INT64, [])])
    return [TensorType(INT64, shape), depth, [2]], d.some(axis=d.random.randint(-len(shape) - 1, len(shape)))


def _shape_of(d: Draw) -> Drawn:
    shape = d.shape(0, 4)
    return [shape], d.some(start=d.random.randint(-5, 5), end=d.random.randint(-5, 5)) if d.version >= 15 else {}


SPATIAL: Dims = [5, 8, 9, "h", "w", "?"]


def _laid(d: Draw, count: int, *, ceil: bool = False, dilated: bool = True) -> dict[str, Any]:
    padding = d.random.choice(["NOTSET", "NOTSET", "SAME_UPPER", "VALID"])
    attributes = d.some(strides=[d.random.randint(1, 3) for _ in range(count)])
    if dilated and padding != "SAME_UPPER":
        attributes |= d.some(dilations=[d.random.randint(1, 2) for _ in range(count)])
    if ceil:
        attributes |= d.some(ceil_mode=1)
    if padding == "NOTSET":
        return attributes | d.some(pads=[d.random.randint(0, 2) for _ in range(2 * count)])
    return attributes | {"auto_pad": padding}


def _convolved(operator: str) -> Callable[[Draw], Drawn]:
    def draw(d: Draw) -> Drawn:
        count = d.random.randint(1, 2)
        x: Dims = ["n", 4, *d.shape(count, count, SPATIAL)]
        sides = [d.random.randint(1, 3) for _ in range(count)]
        weights: Dims = [d.choice(6, "f"), 4, *sides]
        attributes = {**_laid(d, count), **d.some(kernel_shape=sides if d.random.random() < 0.9 else [3, 3, 3])}
        if operator == "Conv":
            return [x, weights], attributes
        a, b, zero = (TensorType(DType.uint8, dims) for dims in (x, weights, []))
        return [a, b] if operator == "ConvInteger" else [a, [], zero, b, [], zero, [], zero], attributes

    return draw


def _transposed_convolution(d: Draw) -> Drawn:
    count = d.random.randint(1, 2)
    attributes = {**_laid(d, count), **d.some(output_padding=[1] * count, group=2)}
    return [
        ["n", 4, *d.shape(count, count, SPATIAL)],
        [4, 3, *[d.random.randint(2, 3) for _ in range(count)]],
    ], attributes


def _pooled(operator: str, ceil: int, dilated: int) -> Callable[[Draw], Drawn]:
    def draw(d: Draw) -> Drawn:
        count = d.random.randint(1, 2)
        kernel = [d.random.randint(1, 3) for _ in range(count if d.random.random() < 0.9 else 3)]
        attributes = _laid(d, count, ceil=d.version >= ceil, dilated=d.version >= dilated)
        results = 2 if operator == "MaxPool" and d.version >= 8 and d.random.random() < 0.5 else 1
        return [["n", 4, *d.shape(count, count, SPATIAL)]], {**attributes, "kernel_shape": kernel, "results": results}

    return draw


def _transformed(d: Draw) -> Drawn:
    shape: Dims = ["n", *d.shape(1, 2, SPATIAL), d.random.choice([1, 2])]
    axis = d.random.randint(1, len(shape) - 2)
    attributes = d.some(onesided=1)
    length: list[Any] = [np.array(6)] if d.random.random() < 0.5 else []
    if d.version < 20:
        return [shape, *length], attributes | {"axis": axis}
    return [shape, *(length or [None]), np.array(axis)], attributes


def _framed(d: Draw) -> Drawn:
    signal = ["n", d.random.choice([64, 99, "h"]), 1]
    window = d.random.choice([[16], None])
    return [signal, np.array(8), window, None if window and d.random.random() < 0.5 else np.array(16)], d.some(
        onesided=0
    )


def _multiplied(operator: str) -> Callable[[Draw], Drawn]:
    def draw(d: Draw) -> Drawn:
        inner = d.choice(4, "k")
        a: Dims = [*d.shape(0, 2, [1, 2, "n", "?"]), *d.shape(0, 1), inner]
        b: Dims = [*d.shape(0, 2, [1, 2, "n", "?"]), *([inner, 5] if d.random.random() < 0.9 else [3, 5])]
        if d.random.random() < 0.2:
            b = [inner]
        if operator == "MatMul":
            return [a, b], {}
        x, y, zero = (TensorType(DType.uint8, dims) for dims in (a, b, []))
        return [x, y] if operator == "MatMulInteger" else [x, [], zero, y, [], zero, [], zero], {}

    return draw


def _gemm(d: Draw) -> Drawn:
    turned = d.some(transA=1, transB=1)
    a, b = [d.random.choice(["n", 2]), 4], [4, d.random.choice([3, "m"])]
    shapes = [a[::-1] if "transA" in turned else a, b[::-1] if "transB" in turned else b]
    return [*(shapes if d.random.random() < 0.9 else [[4], *shapes[1:]]), [1]], turned


def _recurrent(gates: int) -> Callable[[Draw], Drawn]:
    def draw(d: Draw) -> Drawn:
        ways = d.random.choice([1, 2])
        attributes = {"hidden_size": 3, **({"direction": "bidirectional"} if ways == 2 else {})}
        if d.version >= 14:
            attributes |= d.some(layout=1)
        x = [*d.shape(3 if d.random.random() < 0.9 else 2, 3)]
        return [x, [ways, 3 * gates, 4], [ways, 3 * gates, 3]], {**attributes, "results": 3 if gates == 4 else 2}

    return draw


_DTYPES = (1, 6, 8, 9, 10)
"""float32, int32, string, bool and float16, of which operators give some."""


def _window(d: Draw) -> Drawn:
    return [d.random.choice([np.array(5), TensorType(INT64, [])])], d.some(output_datatype=d.random.choice(_DTYPES))


def _unique(d: Draw) -> Drawn:
    shape = d.shape(1, 3)
    return [shape], {**d.some(axis=d.axis(shape)), "results": d.random.randint(1, 4)}


DRAWS: dict[str, Callable[[Draw], Drawn]] = {
    **{name: _elementwise(name) for name in having(Trait.ELEMENTWISE) & SHAPES.keys() & ONNX},
    **dict.fromkeys(REDUCTIONS, _reduced),
    **dict.fromkeys("ArgMax ArgMin Hardmax LogSoftmax LpNormalization Softmax".split(), _along),
    **dict.fromkeys(("CumProd", "CumSum"), _same(np.array(0), rank=1)),
    "AveragePool": _pooled("AveragePool", 10, 19),
    "LpPool": _pooled("LpPool", 18, 18),
    "MaxPool": _pooled("MaxPool", 10, 10),
    "Conv": _convolved("Conv"),
    "ConvInteger": _convolved("ConvInteger"),
    "QLinearConv": _convolved("QLinearConv"),
    "ConvTranspose": _transposed_convolution,
    **dict.fromkeys(("GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool"), _same(rank=3)),
    "Col2Im": lambda d: ([["n", 12, 9], np.array([5, 5]), np.array([d.random.choice([1, 2]), 2])], {}),
    "DFT": _transformed,
    "STFT": _framed,
    "MatMul": _multiplied("MatMul"),
    "MatMulInteger": _multiplied("MatMulInteger"),
    "QLinearMatMul": _multiplied("QLinearMatMul"),
    "Gemm": _gemm,
    "RNN": _recurrent(1),
    "GRU": _recurrent(3),
    "LSTM": _recurrent(4),
    "BatchNormalization": _channels,
    "CenterCropPad": _cropped,
    "Compress": _compressed,
    "Concat": _joined,
    "ConstantOfShape": lambda d: ([numbers(d, [d.random.randint(0, 5) for _ in range(d.random.randint(0, 3))])], {}),
    "DepthToSpace": _blocks,
    "Expand": _expanded,
    "EyeLike": lambda d: ([d.shape(2, 2)], d.some(dtype=d.random.choice(_DTYPES))),
    **dict.fromkeys(("BlackmanWindow", "HammingWindow", "HannWindow"), _window),
    "Flatten": _along,
    "Gather": _gathered,
    "GatherElements": _gathered,
    "GatherND": _gathered_rows,
    "GroupNormalization": _same([4], [4], rank=3, num_groups=2),
    "InstanceNormalization": _same(["c"], ["c"], rank=3),
    "LRN": _same(size=3),
    "LayerNormalization": _layer,
    "MeanVarianceNormalization": _same(rank=4),
    "ReduceSum": lambda d: _reduced(d, 13),
    "MelWeightMatrix": lambda d: (
        [np.array(8), np.array(d.random.choice([16, 33])), *map(np.array, (8000, 0.0, 4e3))],
        {},
    ),
    "NonZero": lambda d: ([d.shape()], {}),
    "OneHot": _one_hot,
    "Pad": _padded,
    "RMSNormalization": lambda d: ([s := d.shape(1, 3), [1]], d.some(axis=d.axis(s))),
    "Range": _counted,
    "RegexFullMatch": lambda d: ([TensorType(DType.string, d.shape())], {"pattern": "a"}),
    "Reshape": _reshaped,
    "Resize": _resized,
    "ReverseSequence": _same(TensorType(INT64, ["k"])),
    "RotaryEmbedding": lambda d: ([[2, 3, 4, 8], *[[d.choice(2, "n", 5), d.choice(4, "s"), 4]] * 2], {}),
    "Scatter": _same(TensorType(INT64, [1, 1]), [1, 1]),
    "ScatterElements": _same(TensorType(INT64, [1, 1]), [1, 1]),
    "ScatterND": _same(TensorType(INT64, [1, 1]), [1, 1]),
    "Shape": _shape_of,
    "Size": lambda d: ([d.shape()], {}),
    "Slice": _cut,
    "SpaceToDepth": _blocks,
    "Split": _parts,
    "Squeeze": _with_axes(False),
    "TensorScatter": lambda d: ([["n", 8, 4], ["n", 2, 4], TensorType(INT64, ["n"])], d.some(axis=-2)),
    "Tile": _tiled,
    "TopK": _greatest,
    "Transpose": _transposed,
    "Trilu": _same(),
    "Unique": _unique,
    "Unsqueeze": _with_axes(True),
}
"""By operator what draws operands and attributes."""
