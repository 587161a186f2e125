"""Operators of older and newer opsets, converted and run, against onnxruntime on the model as it is, or NumPy."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import graphcore as gc
from graphcore import Graph
from graphcore.errors import ModelError
from graphcore.onnx.versions.table import (
    CHANGES,
    FEWER_DTYPES,
    MORE_DTYPES,
    MORE_OPTIONS,
    OTHER_WORDS,
    UNCHANGED,
    target,
)
from tests.support.onnx_models import F16, F32, F64, I64, Array, Case, check, model_of, noise

pytestmark = pytest.mark.releases

# Every version of every operator has a row


def _histories() -> dict[tuple[str, str], list[onnx.defs.OpSchema]]:
    """The versions of each operator that are read, oldest first."""
    results: dict[tuple[str, str], list[onnx.defs.OpSchema]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain.startswith("graphcore"):
            continue
        results.setdefault((schema.domain, schema.name), []).append(schema)
    for (domain, _), schemas in results.items():
        schemas.sort(key=lambda s: s.since_version)
        if not domain:
            oldest = max((s.since_version for s in schemas if s.since_version <= 7), default=0)
            schemas[:] = [s for s in schemas if s.since_version >= oldest]
    return {key: schemas for key, schemas in results.items() if schemas}


def _key(schema: onnx.defs.OpSchema) -> str:
    return f"{schema.domain}:{schema.name}@{schema.since_version}".removeprefix(":")


def _parameters(formals: Sequence[Any], schema: Any) -> list[tuple[str, frozenset[str], Any]]:
    allowed = {c.type_param_str: frozenset(c.allowed_type_strs) for c in schema.type_constraints}
    return [(p.name, allowed.get(p.type_str, frozenset({p.type_str})), p.option) for p in formals]


def _attributes(schema: Any) -> dict[str, tuple[Any, ...]]:
    return {
        name: (a.type, a.default_value.SerializeToString() if a.default_value.type else None)
        for name, a in schema.attributes.items()
    }


@dataclass(frozen=True)
class _Difference:
    """The change of an operator in one version."""

    gained: bool
    lost: bool
    extended: bool
    """Attributes, operands or results were added that may be left out."""
    altered: bool
    """Something that was there is another, or is gone."""


def _difference(before: Any, after: Any) -> _Difference:
    gained = lost = extended = altered = False
    optional = onnx.defs.OpSchema.FormalParameterOption.Optional
    for old, new in ((before.inputs, after.inputs), (before.outputs, after.outputs)):
        was, now = _parameters(old, before), _parameters(new, after)
        altered |= len(now) < len(was)
        extended |= len(now) > len(was)
        altered |= any(option != optional for _, _, option in now[len(was) :])
        for (_, types, option), (_, others, other) in zip(was, now, strict=False):
            gained |= bool(others - types)
            lost |= bool(types - others)
            extended |= option != other and other == optional
            altered |= option != other and other != optional
    was_attributes, now_attributes = _attributes(before), _attributes(after)
    extended |= bool(now_attributes.keys() - was_attributes.keys())
    altered |= any(now_attributes.get(name) != value for name, value in was_attributes.items())
    altered |= before.deprecated != after.deprecated
    return _Difference(gained, lost, extended, altered)


def test_every_version_has_a_row() -> None:
    expected = {
        f"{domain}:{op}@{version}".removeprefix(":")
        for domain, ops in CHANGES.items()
        for op, versions in ops.items()
        for version in versions
    } | UNCHANGED
    needed = {_key(s) for schemas in _histories().values() for s in schemas[1:]}
    added = {_key(s[0]) for (d, _), s in _histories().items() if s[0].since_version > target(d)}
    assert needed | added == expected, "say in table.py or unchanged.py what these versions changed"


def test_no_version_has_two_rows() -> None:
    listed = [MORE_DTYPES, FEWER_DTYPES, MORE_OPTIONS, OTHER_WORDS]
    assert sum(len(text.split()) for text in listed) == len(UNCHANGED)


@pytest.mark.parametrize("reason", ["MORE_DTYPES", "FEWER_DTYPES", "MORE_OPTIONS", "OTHER_WORDS"])
def test_reasons_are_true(reason: str) -> None:
    listed = {"MORE_DTYPES": MORE_DTYPES, "FEWER_DTYPES": FEWER_DTYPES}.get(reason)
    listed = listed or {"MORE_OPTIONS": MORE_OPTIONS, "OTHER_WORDS": OTHER_WORDS}[reason]
    results = {
        _key(after): _difference(before, after)
        for schemas in _histories().values()
        for before, after in itertools.pairwise(schemas)
    }
    # In Constant, "value" is one of several since 11; Gradient has one version, which stays a node.
    required = {"Constant@11", "ai.onnx.preview.training:Gradient@1"}
    for key in set(listed.split()) - required:
        change = results[key]
        assert not change.altered, key
        assert change.gained <= (reason in ("MORE_DTYPES", "MORE_OPTIONS")), key
        assert change.lost == (reason == "FEWER_DTYPES"), key
        assert change.extended == (reason == "MORE_OPTIONS"), key


# Each row, run


X = noise(2, 3, 4)
IMAGE = noise(1, 2, 4, 6)
INFINITE = np.array([-np.inf, -1.0, 0.0, 2.5, np.inf, np.nan], F32)


def _softmax_over(x: Array, axis: int) -> Array:
    rows = x.reshape(int(np.prod(x.shape[:axis])), -1).astype(F64)
    powers = np.exp(rows - rows.max(1, keepdims=True))
    return np.asarray((powers / powers.sum(1, keepdims=True)).reshape(x.shape), x.dtype)


def _erf_of_integers(x: Array) -> Array:
    return np.asarray(np.where(x > 5, 1, np.where(x.astype(I64) < -5, -1, 0)), x.dtype)


def _one_hot(indices: Array, depth: Array, values: Array) -> Array:
    columns = np.arange(int(depth.reshape(-1)[0]))
    return np.asarray(np.where(indices.astype(I64)[..., None] == columns, values[1], values[0]))


def _group_normalised(x: Array, scale: Array, bias: Array) -> Array:
    groups = x.reshape(x.shape[0], len(scale), -1).astype(F64)
    centred = groups - groups.mean(-1, keepdims=True)
    result = centred / np.sqrt(groups.var(-1, keepdims=True) + 1e-5)
    return np.asarray((result * scale[:, None] + bias[:, None]).reshape(x.shape), x.dtype)


def _batch_trained(x: Array, scale: Array, bias: Array, mean: Array, variance: Array) -> tuple[Array, ...]:
    own, spread = x.mean((0, 2, 3)), x.var((0, 2, 3))
    column = (slice(None), None, None)
    y = (x - own[column]) / np.sqrt(spread[column] + 1e-5) * scale[column] + bias[column]
    running = mean * F32(0.9) + own * F32(0.1), variance * F32(0.9) + spread * F32(0.1)
    return y.astype(F32), running[0].astype(F32), running[1].astype(F32), own, spread


def _features(x: Array, scale: Array, bias: Array, mean: Array, variance: Array) -> Array:
    result = (x - mean) / np.sqrt(variance + 1e-5) * scale + bias
    return np.asarray(result, F32)


def _dropped_nothing(x: Array) -> tuple[Array, Array]:
    return x, np.ones_like(x)


def _round_trip(x: Array) -> tuple[Array, Array]:
    return x, np.ones(x.shape, np.bool_)


def _half_pixels(x: Array, *_: Array) -> Array:
    def picked(size: int, scale: float) -> Array:
        result = np.floor((np.arange(int(size * scale)) + 0.5) / scale)
        return np.asarray(np.minimum(result, size - 1), I64)

    return np.asarray(x[:, :, picked(x.shape[2], 2.0)][:, :, :, picked(x.shape[3], 0.5)])


BATCH = [IMAGE, *(np.array(v, F32) for v in ([1.5, -2.0], [0.5, 1.0], [0.1, 0.2], [1.0, 2.0]))]
FEATURES = [noise(2, 3, 4), noise(3, 4), noise(3, 5)[:, :4], noise(3, 4) + 1, abs(noise(3, 4)) + 0.5]
REDUCTIONS = ["L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare"]
HALF = {"coordinate_transformation_mode": "tf_half_pixel_for_nn", "nearest_mode": "floor", "mode": "nearest"}
ROI = np.zeros(0, F32)

OLDER = [
    Case("BatchNormalization", 7, BATCH),
    Case("BatchNormalization", 8, BATCH, {"spatial": 1, "epsilon": 0.1}),
    Case("BatchNormalization", 7, FEATURES, {"spatial": 0}, expected=_features),
    Case("BatchNormalization", 9, BATCH),
    Case("BatchNormalization", 7, BATCH, {}, 5, _batch_trained),
    Case("Clip", 7, [INFINITE]),
    Case("Clip", 10, [INFINITE], {"min": 0.0, "max": 2.0}),
    Case("Clip", 7, [INFINITE], {"min": -0.5}),
    Case("Clip", 7, [INFINITE.astype(F16)], {"max": 1.0}, expected=lambda x: np.clip(x, np.finfo(F16).min, F16(1))),
    Case("Clip", 7, [INFINITE.astype(F64)], {"max": 1.0}, expected=lambda x: np.clip(x, np.finfo(F64).min, 1.0)),
    Case("DFT", 17, [noise(2, 5, 4, 1)], {"axis": 2}),
    Case("DFT", 17, [noise(2, 5, 4, 1)], {"onesided": 1}),
    Case("DFT", 19, [noise(2, 5, 4, 2), np.array(6, I64)], {"inverse": 1, "axis": -2}, constant=[1]),
    Case("Dropout", 7, [X], {"ratio": 0.3}),
    Case("Dropout", 7, [X], {}, 2, _dropped_nothing),
    Case("Dropout", 10, [X], {"ratio": 0.3}, 2, _round_trip),
    Case("Dropout", 11, [X]),
    Case("Erf", 9, [np.array([-128, -6, -5, 0, 5, 6, 127], np.int8)], expected=_erf_of_integers),
    Case("Erf", 9, [np.array([0, 5, 6, 255], np.uint8)], expected=_erf_of_integers),
    Case("Erf", 9, [X]),
    Case("GridSample", 16, [IMAGE, np.tanh(noise(1, 3, 5, 2))], {"mode": "bicubic"}),
    Case("GridSample", 16, [IMAGE, np.tanh(noise(1, 3, 5, 2))], {"mode": "bilinear", "align_corners": 1}),
    Case("GridSample", 16, [IMAGE, np.tanh(noise(1, 3, 5, 2))]),
    Case("GridSample", 16, [IMAGE, np.tanh(noise(1, 3, 5, 2))], {"mode": "nearest"}),
    Case("GroupNormalization", 18, [noise(2, 6, 5), BATCH[1], BATCH[2]], {"num_groups": 2}, 1, _group_normalised),
    Case("Hardmax", 7, [X]),
    Case("Hardmax", 11, [X], {"axis": -1}),
    Case("LogSoftmax", 7, [X], {"axis": 0}),
    Case("LogSoftmax", 11, [X], {"axis": -2}),
    Case("Softmax", 7, [X], expected=lambda x: _softmax_over(x, 1)),
    Case("Softmax", 11, [X], {"axis": 2}),
    Case("Softmax", 11, [X], {"axis": 0}),
    Case("OneHot", 9, [np.array([[-1, 0], [2, 5]], I64), np.array([3], I64), np.array([0, 7], I64)], expected=_one_hot),
    Case("OneHot", 9, [np.array([-1, 1], F32), np.array([3], F32), np.array([0, 7], F32)], expected=_one_hot),
    Case("OneHot", 9, [np.array([2, 1], I64), np.array([3], I64), np.array([0, 7], F32)], constant=[0]),
    Case("Pad", 7, [X], {"pads": [0, 1, 2, 1, 0, 0], "value": 1.5}),
    Case("Pad", 10, [X], {"pads": [0, 1, 2, 1, 0, -1]}),
    Case("Pad", 7, [X], {"pads": [0, 1, 2, 1, 0, 0], "mode": "reflect", "value": 3.0}),
    *(Case(f"Reduce{kind}", 7, [abs(X)], {"axes": [0, 2], "keepdims": 0}) for kind in REDUCTIONS),
    *(Case(f"Reduce{kind}", 12, [abs(X)], {}) for kind in REDUCTIONS),
    Case("ReduceMean", 13, [X], {"axes": [-1]}),
    Case("Resize", 10, [IMAGE, np.array([1, 1, 2, 1.5], F32)], constant=[1]),
    Case("Resize", 10, [IMAGE, np.array([1, 1, 0.6, 0.5], F32)], constant=[1]),
    Case("Resize", 10, [IMAGE, np.array([1, 1, 2, 0.6], F32)], constant=[1]),
    Case("Resize", 10, [IMAGE, np.array([1, 1, 2, 0.6], F32)]),
    Case("Resize", 10, [IMAGE, np.array([1, 1, 2, 0.6], F32)], {"mode": "linear"}, constant=[1]),
    Case("Resize", 11, [IMAGE, ROI, np.array([1, 1, 2, 0.5], F32)], HALF, 1, _half_pixels, constant=[1, 2]),
    Case("Resize", 11, [IMAGE, ROI, ROI, np.array([1, 2, 8, 3], I64)], HALF, 1, _half_pixels, constant=[1, 2, 3]),
    Case("Resize", 11, [IMAGE, ROI, ROI, np.array([1, 2, 7, 3], I64)], {"mode": "cubic"}, constant=[1, 2, 3]),
    Case(
        "RoiAlign", 10,
        [IMAGE, np.array([[0, 0, 3, 3], [1, 1, 5, 3]], F32), np.array([0, 0], I64)],
        {"output_height": 2, "output_width": 2, "sampling_ratio": 2},
    ),
    Case("Scatter", 9, [X, np.array([[[1, 0, 1, 1]]], I64), noise(1, 1, 4)], {"axis": 0}),
    Case("Slice", 7, [X], {"starts": [1, -3], "ends": [2, 1000], "axes": [1, 2]}),
    Case("Slice", 9, [X], {"starts": [0, 1], "ends": [1, 3]}),
    Case("Slice", 10, [X, np.array([3]), np.array([0]), np.array([2]), np.array([-2])]),
    Case("Split", 7, [X], {"axis": 2, "split": [1, 3]}, 2),
    Case("Split", 11, [X], {"axis": -1}, 2),
    Case("Split", 13, [X], {"axis": 2}, 2),
    Case("Split", 13, [X, np.array([1, 3])], {"axis": 2}, 2, constant=[1]),
    Case("Squeeze", 7, [noise(1, 3, 1)], {"axes": [0]}),
    Case("Squeeze", 11, [noise(1, 3, 1)], {"axes": [-1]}),
    Case("TopK", 7, [X], {"k": 2, "axis": 1}, 2),
    Case("TopK", 10, [X, np.array([2])], {}, 2, constant=[1]),
    Case("Unsqueeze", 7, [X], {"axes": [0, 2]}),
    Case("Unsqueeze", 11, [X], {"axes": [-1]}),
    Case("Upsample", 7, [IMAGE], {"scales": [1.0, 1.0, 2.0, 3.0]}),
    Case("Upsample", 7, [IMAGE], {"scales": [1.0, 1.0, 2.0, 1.5], "mode": "linear"}),
    Case("Upsample", 9, [IMAGE, np.array([1, 1, 2, 3], F32)], {"mode": "nearest"}, constant=[1]),
    Case("Upsample", 9, [IMAGE, np.array([1, 1, 2, 3], F32)], {"mode": "nearest"}),
]  # fmt: skip


@pytest.mark.numbers
@pytest.mark.parametrize("case", OLDER, ids=lambda c: c.label)
def test_older_operators_compute_the_same(case: Case) -> None:
    check(case)


_NEED_RANKS = {("BatchNormalization", 5), ("RoiAlign", 1), ("GroupNormalization", 1)}
"""By operator and number of results: those whose expansion asks for a rank."""


@pytest.mark.numbers
@pytest.mark.parametrize("case", [c for c in OLDER if (c.op, c.outputs) not in _NEED_RANKS], ids=lambda c: c.label)
def test_older_operators_compute_the_same_of_unknown_rank(case: Case) -> None:
    check(case, ranked=False)


# Bodies


def _scan(lengths: Array | None, outer: bool, **attributes: Any) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Running sums of a batch of sequences, and the double of each sum; `outer` adds a value from outside."""
    scalar = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2]) for name in ("s", "e", "t", "d")]
    nodes = [helper.make_node("Add", ["s", "e"], ["sum"])]
    nodes.append(
        helper.make_node("Add", ["sum", "w"], ["t"]) if outer else helper.make_node("Identity", ["sum"], ["t"])
    )
    nodes.append(helper.make_node("Add", ["t", "t"], ["d"]))
    body = helper.make_graph(nodes, "body", scalar[:2], scalar[2:])
    first = "n" if lengths is not None else ""
    node = helper.make_node("Scan", [first, "i", "x"], ["last", "all"], body=body, num_scan_inputs=1, **attributes)
    feeds = {"i": noise(3, 2), "x": noise(3, 4, 2)}
    if lengths is not None:
        feeds["n"] = lengths
    if outer:
        feeds["w"] = noise(2)
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for name, a in feeds.items()
    ]
    results = [onnx.ValueInfoProto(name=name) for name in ("last", "all")]
    graph = helper.make_graph([node], "test", infos, results)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 8)], ir_version=3), feeds


@pytest.mark.numbers
@pytest.mark.parametrize("directions", [None, [0], [1]])
@pytest.mark.parametrize("outer", [False, True])
def test_scan_over_a_batch_computes_the_same(directions: list[int] | None, outer: bool) -> None:
    proto, feeds = _scan(None, outer, **({"directions": directions} if directions else {}))
    last, every = gc.InferenceSession().load(proto).execute(**feeds)
    steps = feeds["x"][:, ::-1] if directions == [1] else feeds["x"]
    sums = feeds["i"][:, None] + np.cumsum(steps + feeds.get("w", F32(0)), 1)
    np.testing.assert_allclose(last, sums[:, -1], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(every, 2 * sums, rtol=1e-5, atol=1e-5)


def test_scan_over_a_batch_stops_at_each_length() -> None:
    lengths = np.array([2, 4, 1], I64)
    proto, feeds = _scan(lengths, False)
    last, every = gc.InferenceSession().load(proto).execute(**feeds)
    sums = feeds["i"][:, None] + np.cumsum(feeds["x"], 1)
    assert every.shape == (3, 4, 2)
    for row, length in enumerate(lengths):
        np.testing.assert_allclose(last[row], sums[row, length - 1], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(every[row, :length], 2 * sums[row, :length], rtol=1e-5, atol=1e-5)


# What has no equivalent


@pytest.mark.parametrize(
    ("case", "text"),
    [
        (
            Case("Resize", 11, [IMAGE, ROI, np.array([1, 1, 2, 2], F32)], {**HALF, "mode": "linear"}, constant=[1, 2]),
            "load: Resize of opset 11: tf_half_pixel_for_nn with linear floor has no equivalent",
        ),
        (
            Case(
                "Resize",
                12,
                [IMAGE, ROI, np.array([1, 1, 2, 2], F32)],
                {**HALF, "nearest_mode": "ceil"},
                constant=[1, 2],
            ),
            "load: Resize of opset 12: tf_half_pixel_for_nn with nearest ceil has no equivalent",
        ),
        (
            Case("BatchNormalization", 7, FEATURES, {"spatial": 0}, 5),
            "load: BatchNormalization of opset 7: training with statistics per feature is not supported",
        ),
    ],
    ids=["linear", "ceil", "features"],
)
def test_what_has_no_equivalent_is_an_error(case: Case, text: str) -> None:
    with pytest.raises(ModelError) as raised:
        Graph.load(model_of(case, True))
    assert raised.value.summary == text


def test_statistics_of_a_batch_of_unknown_rank_are_an_error() -> None:
    with pytest.raises(ModelError, match="the rank is unknown"):
        Graph.load(model_of(Case("BatchNormalization", 7, BATCH, {}, 5), ranked=False))


# What stays as it was


@pytest.mark.parametrize(
    ("case", "nodes"),
    [
        (Case("Softmax", 11, [X], {"axis": 2}), ["Softmax"]),
        (Case("Clip", 7, [X], {"min": 0.0}), ["Clip"]),
        (Case("Squeeze", 7, [noise(1, 3)]), ["Squeeze"]),
        (Case("Slice", 9, [X], {"starts": [0], "ends": [1]}), ["Slice"]),
        (Case("Dropout", 7, [X]), ["Dropout"]),
        (Case("Upsample", 9, [IMAGE, np.array([1, 1, 2, 3], F32)], constant=[1]), ["Resize"]),
        (Case("Mod", 28, [X, X], {"fmod": 1}), ["Mod"]),
        (Case("SpaceToDepth", 28, [IMAGE], {"blocksize": 2}), ["SpaceToDepth"]),
    ],
    ids=lambda v: v.label if isinstance(v, Case) else "",
)
def test_a_node_stays_one_node(case: Case, nodes: list[str]) -> None:
    assert [node.op_type for node in Graph.load(model_of(case, True)).nodes] == nodes
