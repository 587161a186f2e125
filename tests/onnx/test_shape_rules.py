"""The rules of `graphcore.operators.shapes` beside ONNX's inference, and beside what ONNX's own tests expect.

Both take and refuse the same operands, and what ONNX's inference knows of a result, the rule knows too.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.backend.test.case import node as node_cases

from graphcore import DType, Graph, TensorType
from graphcore.arrays.external_data import Folder
from graphcore.conformance.suites import node_tests, value_of
from graphcore.errors import ModelError
from graphcore.ir.symbol import Symbol
from graphcore.ir.transform.shape_values import ShapeValues
from graphcore.onnx.notes import OPSET
from graphcore.onnx.proto.limits import check_axes
from graphcore.onnx.proto.tensors import read_attributes
from graphcore.onnx.proto.type_protos import read_type
from graphcore.onnx.schemas.node_inference import infer_node
from graphcore.onnx.schemas.schemas import schema_of
from graphcore.operators import ONNX, SHAPES, Trait, having
from graphcore.types.tensor_types import Shape, Type
from tests.support.backend import POOLS
from tests.support.shape_draws import DRAWS, Draw

RULED = sorted(SHAPES.keys() & ONNX)
MODULES = {info.name.replace("_", ""): info.name for info in pkgutil.iter_modules(node_cases.__path__)}
VERSIONS = (7, 9, 11, 13, 17, 18, 21, 22, 24, OPSET)

CEILED = having(Trait.WINDOW) & having(Trait.SELECTS, Trait.ROUNDS)
"""Pools: with `ceil_mode` inference counts windows that begin after the input, which runtimes leave out."""

STRICT: Mapping[str, str] = {
    "RotaryEmbedding": "inference does not compare caches with x",
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
    if node.op_type == "STFT" and "onesided" not in attributes:  # which inference takes for 0 there, and not for 1
        node.attribute.append(helper.make_attribute("onesided", 1))
    answers: list[Sequence[Type] | None] = []
    for item in (attributes, None):
        try:
            answers.append(infer_node(node, schema, inputs, {"": version}, (), "here", item, ShapeValues()))
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
    result, requested = both(node, version, inputs, attributes)
    shown = f"{node.op_type} of opset {version} on {[None if s is None else str(s.type) for s in inputs]}"
    shown += f": rule {result and [*map(str, result)]}, inference {requested and [*map(str, requested)]}\n{node}"
    if result is None or requested is None:
        assert result is requested or (result is None and node.op_type in STRICT), shown
        return result
    for own, other in zip(result, requested, strict=True):
        if not isinstance(other, TensorType):
            continue
        assert isinstance(own, TensorType), shown
        assert own.dtype is other.dtype, shown
        if not other.shape.is_ranked:
            continue
        assert own.shape.is_ranked, shown
        assert len(own.shape) == len(other.shape), shown
        if not (attributes.get("ceil_mode") and node.op_type in CEILED):
            assert all(b.is_dynamic or a == b for a, b in zip(own.shape, other.shape, strict=True)), shown
    return result


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("operator", RULED)
def test_rules_on_the_cases_of_onnx(operator: str) -> None:
    module = MODULES.get(operator.lower())
    if module is None or module in POOLS:
        pytest.skip("ONNX has no cases of it, or takes seconds to make them")
    for case in node_tests(module).values():
        graph = case.model.graph
        (version,) = [o.version for o in case.model.opset_import if not o.domain]
        results = dict(zip([i.name for i in graph.input], case.data_sets[0][0], strict=False))
        wanted = dict(zip([o.name for o in graph.output], case.data_sets[0][1], strict=False))
        for node in graph.node:
            if node.op_type != operator or node.domain or not set(filter(None, node.input)) <= results.keys():
                continue
            types = {i.name: t for i in graph.input if isinstance(t := read_type(i.type), TensorType)}
            if not set(filter(None, node.input)) <= types.keys():
                continue
            types = {name: types[name] for name in node.input if name}
            for form in ("types", "values", "names"):
                owner = Graph("g")
                symbols: dict[str, Symbol | None] = {"": None}
                for name, type_ in types.items():
                    array = np.asarray(value_of(results[name]))
                    if form != "types" and array.size <= 32 and array.ndim < 2 and len(node.input) > 1:
                        symbols[name] = owner.constant(array, type_.dtype)
                        continue
                    dims = [f"d{d}" if form == "names" and d != 1 else d for d in array.shape]
                    symbols[name] = owner.build.input(TensorType(type_.dtype, dims))
                result = check(node, version, [symbols[name] for name in node.input])
                for name, item in zip(node.output, result or (), strict=False):
                    if form == "names" or name not in wanted or not isinstance(item, TensorType):
                        continue
                    shape = np.asarray(value_of(wanted[name])).shape
                    if item.shape.is_ranked:
                        assert len(item.shape) == len(shape), (case.name, item, shape)
                        assert all(d.is_dynamic or d == n for d, n in zip(item.shape, shape, strict=True)), (
                            case.name, item, shape,
                        )  # fmt: skip


def test_operands_of_every_rule_are_drawn() -> None:
    assert DRAWS.keys() == {*RULED}


@pytest.mark.parametrize("operator", RULED)
def test_rules_on_drawn_operands(operator: str) -> None:
    message = 0
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
                    type_ = each if isinstance(each, TensorType) else TensorType(DType.float32, each)
                    if number % 10 == 9:
                        type_ = TensorType(type_.dtype, Shape.unknown())
                    inputs.append(graph.build.input(type_))
            count = attributes.pop("results", 1)
            names = ["" if s is None else f"x{i}" for i, s in enumerate(inputs)]
            node = helper.make_node(operator, names, [f"y{i}" for i in range(count)], **attributes)
            message += check(node, version, inputs) is not None
    assert message > 10
