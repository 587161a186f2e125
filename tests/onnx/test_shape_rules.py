"""The rules of `graphcore.operators.shapes` beside ONNX's inference, and beside what ONNX's own tests expect.

Both take and refuse the same operands, and what ONNX's inference knows of a result, the rule knows too.
"""

from __future__ import annotations

import pkgutil
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.backend.test.case import node as node_tests

from graphcore import DType, Graph, TensorType
from graphcore.arrays.external_data import Folder
from graphcore.errors import ModelError
from graphcore.ir.symbol import Symbol
from graphcore.ir.transform.shape_values import ShapeValues
from graphcore.onnx.opset import OPSET
from graphcore.onnx.proto.attributes import read_attributes
from graphcore.onnx.proto.limits import check_axes
from graphcore.onnx.proto.type_protos import read_type
from graphcore.onnx.schemas.node_inference import inferred
from graphcore.onnx.schemas.schemas import schema_of
from graphcore.operators import ONNX, REDUCTIONS, SHAPES, Trait, having
from graphcore.types.tensor_types import Type
from tests.support.backend import POOLS, cases_of, value

RULED = sorted(SHAPES.keys() & ONNX)
MODULES = {info.name.replace("_", ""): info.name for info in pkgutil.iter_modules(node_tests.__path__)}
VERSIONS = (7, 9, 11, 13, 17, 18, 21, 22, 24, OPSET)

LENIENT: Mapping[str, str] = {}
"""By operator why a rule takes what inference refuses, or knows less."""

STRICT: Mapping[str, str] = {
    "Split": "inference of opset 7 does not count the parts",
    "TopK": "inference of opset 7 does not compare how many there are",
    "Unsqueeze": "inference of opset 11 takes an axis twice",
    **dict.fromkeys(("GreaterOrEqual", "LessOrEqual"), "inference of opset 12 tells nothing of them"),
}
"""By operator why a rule refuses what inference takes."""


def both(
    node: onnx.NodeProto, version: int, inputs: Sequence[Symbol | None], attributes: Mapping[str, Any]
) -> tuple[Sequence[Type] | None, Sequence[Type] | None]:
    """Return the types by the rule and by ONNX's inference alone, None where one refuses the node."""
    schema = schema_of(node.op_type, "", version)
    assert schema is not None
    answers: list[Sequence[Type] | None] = []
    for said in (attributes, None):
        try:
            answers.append(inferred(node, schema, inputs, {"": version}, {}, "here", said, ShapeValues()))
        except ModelError:
            answers.append(None)
    return answers[0], answers[1]


def check(node: onnx.NodeProto, version: int, inputs: Sequence[Symbol | None]) -> Sequence[Type] | None:
    """Assert that a rule says what inference says, and return its types."""
    attributes, _ = read_attributes(node, Folder(None), "here")
    try:
        check_axes(node.op_type, inputs, attributes, "here")
    except ModelError:  # which reading refuses before it asks for types
        return None
    found, asked = both(node, version, inputs, attributes)
    shown = f"{node.op_type} of opset {version} on {[None if s is None else str(s.type) for s in inputs]}"
    shown += f": rule {found and [*map(str, found)]}, inference {asked and [*map(str, asked)]}\n{node}"
    if found is None or asked is None:
        excused = STRICT if found is None else LENIENT
        assert (found is asked) or node.op_type in excused, shown
        return found
    for own, other in zip(found, asked, strict=True):
        if not isinstance(other, TensorType):
            continue
        assert isinstance(own, TensorType), shown
        assert own.dtype is other.dtype, shown
        if not other.shape.is_ranked or node.op_type in LENIENT:
            continue
        assert own.shape.is_ranked, shown
        assert len(own.shape) == len(other.shape), shown
        assert all(b.is_dynamic or a == b for a, b in zip(own.shape, other.shape, strict=True)), shown
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("operator", RULED)
def test_rules_on_the_cases_of_onnx(operator: str) -> None:
    module = MODULES.get(operator.lower())
    if module is None or module in POOLS:
        pytest.skip("ONNX has no cases of it, or takes seconds to make them")
    for case in cases_of(module).values():
        graph = case.model.graph
        (version,) = [o.version for o in case.model.opset_import if not o.domain]
        given = dict(zip([i.name for i in graph.input], case.data_sets[0][0], strict=False))
        wanted = dict(zip([o.name for o in graph.output], case.data_sets[0][1], strict=False))
        for node in graph.node:
            if node.op_type != operator or node.domain or not set(filter(None, node.input)) <= given.keys():
                continue
            types = {i.name: t for i in graph.input if isinstance(t := read_type(i.type), TensorType)}
            if not set(filter(None, node.input)) <= types.keys():
                continue
            types = {name: types[name] for name in node.input if name}
            for form in ("types", "values", "names"):
                owner = Graph("g")
                symbols: dict[str, Symbol | None] = {"": None}
                for name, type_ in types.items():
                    array = np.asarray(value(given[name]))
                    if form != "types" and array.size <= 32 and array.ndim < 2 and len(node.input) > 1:
                        symbols[name] = owner.constant(array, type_.dtype)
                        continue
                    dims = [f"d{d}" if form == "names" and d != 1 else d for d in array.shape]
                    symbols[name] = owner.build.input(TensorType(type_.dtype, dims))
                found = check(node, version, [symbols[name] for name in node.input])
                for name, told in zip(node.output, found or (), strict=False):
                    if form == "names" or name not in wanted or not isinstance(told, TensorType):
                        continue
                    shape = np.asarray(value(wanted[name])).shape
                    if told.shape.is_ranked:
                        assert len(told.shape) == len(shape), (case.name, told, shape)
                        assert all(d.is_dynamic or d == n for d, n in zip(told.shape, shape, strict=True)), (
                            case.name, told, shape,
                        )  # fmt: skip


# Operands that are drawn

DIMS: list[int | str] = [1, 1, 0, 2, 3, 4, "n", "m", "n + 1", "n // 2", "?"]


class Draw:
    """Draws operands. version: of the operator that they are for."""

    def __init__(self, seed: object, version: int) -> None:
        self.random = random.Random(str(seed))
        self.version = version

    def shape(self, fewest: int = 0, most: int = 3, dims: Sequence[int | str] = DIMS) -> list[int | str]:
        return [self.random.choice(dims) for _ in range(self.random.randint(fewest, most))]

    def axis(self, shape: Sequence[object]) -> int:
        """An axis, and now and then one that there is not."""
        rank = len(shape)
        return self.random.randint(-rank - (self.random.random() < 0.1), max(rank - (self.random.random() < 0.9), 0))

    def some(self, **attributes: Any) -> dict[str, Any]:
        """Some of the attributes: those that are drawn."""
        return {key: given for key, given in attributes.items() if self.random.random() < 0.6}


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
    found = [c.allowed_type_strs for c in schema.type_constraints if c.type_param_str == parameter.type_str]
    return list(found[0]) if found else [parameter.type_str]


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
    sizes = d.random.choice([[1, 3], [2, 2, 2], [4], [6], [0, 4]])
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
    last: int | str = d.random.choice([1, 2, 3, "n"])  # type: ignore[assignment]
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


def _unique(d: Draw) -> Drawn:
    shape = d.shape(1, 3)
    return [shape], {**d.some(axis=d.axis(shape)), "results": d.random.randint(1, 4)}


DRAWS: dict[str, Callable[[Draw], Drawn]] = {
    **{name: _elementwise(name) for name in having(Trait.ELEMENTWISE) & SHAPES.keys() & ONNX},
    **dict.fromkeys(REDUCTIONS, _reduced),
    **dict.fromkeys("ArgMax ArgMin Hardmax LogSoftmax LpNormalization Softmax".split(), _along),
    **dict.fromkeys(("CumProd", "CumSum"), _same(np.array(0), rank=1)),
    "BatchNormalization": _channels,
    "BlackmanWindow": lambda d: ([d.random.choice([np.array(5), TensorType(INT64, [])])], {}),
    "CenterCropPad": _cropped,
    "Compress": _compressed,
    "Concat": _joined,
    "ConstantOfShape": lambda d: ([numbers(d, [d.random.randint(0, 5) for _ in range(d.random.randint(0, 3))])], {}),
    "DepthToSpace": _blocks,
    "Expand": _expanded,
    "EyeLike": lambda d: ([d.shape(2, 2)], {}),
    "Flatten": _along,
    "Gather": _gathered,
    "GatherElements": _gathered,
    "GatherND": _gathered_rows,
    "GroupNormalization": _same([4], [4], rank=3, num_groups=2),
    "HammingWindow": lambda d: ([d.random.choice([np.array(5), TensorType(INT64, [])])], {}),
    "HannWindow": lambda d: ([d.random.choice([np.array(5), TensorType(INT64, [])])], {}),
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


def test_operands_of_every_rule_are_drawn() -> None:
    assert DRAWS.keys() == {*RULED}


@pytest.mark.parametrize("operator", RULED)
def test_rules_on_drawn_operands(operator: str) -> None:
    told = 0
    for version in VERSIONS:
        schema = schema_of(operator, "", version)
        if schema is None or schema.deprecated:
            continue
        if schema.since_version < version and (version != 7 and schema.since_version in VERSIONS):
            continue
        for number in range(20):
            operands, attributes = DRAWS[operator](Draw((operator, version, number), version))
            graph = Graph("g")
            inputs: list[Symbol | None] = []
            for each in operands:
                if isinstance(each, np.ndarray):
                    inputs.append(graph.constant(each, DType.of(each.dtype)))
                elif each is None:
                    inputs.append(None)
                else:
                    inputs.append(
                        graph.build.input(each if isinstance(each, TensorType) else TensorType(DType.float32, each))
                    )
            count = attributes.pop("results", 1)
            names = ["" if s is None else f"x{i}" for i, s in enumerate(inputs)]
            node = helper.make_node(operator, names, [f"y{i}" for i in range(count)], **attributes)
            told += check(node, version, inputs) is not None
    assert told > 15
