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
                for name, type_ in zip(node.output, found or (), strict=False):
                    if form == "names" or name not in wanted or not isinstance(type_, TensorType):
                        continue
                    shape = np.asarray(value(wanted[name])).shape
                    if type_.shape.is_ranked:
                        assert len(type_.shape) == len(shape), (case.name, type_, shape)
                        assert all(d.is_dynamic or d == n for d, n in zip(type_.shape, shape, strict=True)), (
                            case.name, type_, shape,
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
    count = d.random.choice([2, 3, "n"])
    shape = d.shape(2, 4)
    shape[1] = count
    own = [[count if d.random.random() < 0.9 else d.random.choice(DIMS)] for _ in range(4)]
    training = d.version >= 14 and d.random.random() < 0.5
    return [shape, *own], {"training_mode": 1, "results": 3} if training else {}


def _layer(d: Draw) -> Drawn:
    shape = d.shape(1, 4)
    return [shape, [1]], {**d.some(axis=d.axis(shape)), "results": d.random.randint(1, 3)}


DRAWS: dict[str, Callable[[Draw], Drawn]] = {
    **{name: _elementwise(name) for name in having(Trait.ELEMENTWISE) & SHAPES.keys() & ONNX},
    **dict.fromkeys(REDUCTIONS, _reduced),
    **dict.fromkeys("ArgMax ArgMin Hardmax LogSoftmax LpNormalization Softmax".split(), _along),
    **dict.fromkeys(("CumProd", "CumSum"), _same(np.array(0), rank=1)),
    "BatchNormalization": _channels,
    "EyeLike": lambda d: ([d.shape(2, 2)], {}),
    "GroupNormalization": _same([4], [4], rank=3, num_groups=2),
    "InstanceNormalization": _same(["c"], ["c"], rank=3),
    "LRN": _same(size=3),
    "LayerNormalization": _layer,
    "MeanVarianceNormalization": _same(rank=4),
    "ReduceSum": lambda d: _reduced(d, 13),
    "RMSNormalization": lambda d: ([s := d.shape(1, 3), [1]], d.some(axis=d.axis(s))),
    "RegexFullMatch": lambda d: ([TensorType(DType.string, d.shape())], {"pattern": "a"}),
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
