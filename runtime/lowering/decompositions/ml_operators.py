"""Operators of ai.onnx.ml in dtypes without a kernel, and where the kernel gives other labels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from graphcore.arrays.casting import Array, cast_array
from graphcore.errors import GraphError
from graphcore.ir.definitions import outermost
from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.build.builder import Builder, Call, Decomposition, Replacement
from graphcore.runtime.lowering.decompositions.windows import reduced
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, Type, _shape, tensor_type

DOMAIN = "ai.onnx.ml"

_I16, _I32, _I64 = DType.int16, DType.int32, DType.int64
_F16, _F32, _F64, _STRING = DType.float16, DType.float32, DType.float64, DType.string

_ENCODED = {
    _STRING: {_STRING, _I16, _I64, _F32, _F64},
    _I64: {_STRING, _I64, _F32, _F64},
    _F32: {_STRING, _I64, _F32},
    _F64: {_STRING, _I64, _F64},
}
"""The dtypes of keys and values that LabelEncoder has kernels for."""


def replaces(op_type: str, operand: Type | None, result: Type | None) -> bool:
    """Return whether the operator may need a replacement for an operand and a first result of these types."""
    row = _ROWS.get(op_type)
    if row is None or not isinstance(operand, TensorType):
        return row is not None
    if op_type == "LabelEncoder" and isinstance(result, TensorType):
        return result.dtype not in _ENCODED.get(operand.dtype, ())
    if op_type == "FeatureVectorizer":
        return _may_lack_rows(operand)
    return operand.dtype in row[0]


def replaced(b: Builder, call: Call) -> tuple[Symbol, ...] | None:
    """Return the replacement of a node; None where the kernel computes the same."""
    if call.domain != DOMAIN or not replaces(call.op, call.inputs[0].type, call.types[0]):
        return None
    made = _ROWS[call.op][1](b, call)
    return made if made is None or isinstance(made, tuple) else (made,)


def _computed_in(dtype: DType) -> Decomposition:
    """Compute the operator on an operand cast to another dtype; cast back a result of the operand's dtype."""

    def made(b: Builder, call: Call) -> Replacement:
        own = call.inputs[0].dtype
        held = {n: a.astype(dtype.numpy) if _is_of(a, own) else a for n, a in call.attributes.items()}
        wide = [b.retyped(t, dtype) if t.dtype is own else t for t in call.types]
        given = tuple([None if s is None else b.cast(s, dtype) for s in call.inputs])
        found = b.emit_many(call.op, given, wide, held, DOMAIN)
        return tuple(b.cast(f, t.dtype) for f, t in zip(found, call.types, strict=True))

    return made


def _is_of(value: Any, dtype: DType) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == dtype.numpy


def _binarized(b: Builder, call: Call) -> Replacement:
    (x,) = call.inputs
    threshold = np.asarray(call.attributes.get("threshold", 0.0), np.float64)
    if x.dtype.is_integer:  # which is greater where it is greater than the whole number below, if there is one
        least = x.dtype.min - 1
        if threshold <= least:
            above = b.op("Equal", x, x, dtype=DType.bool)
            return b.cast(above, x.dtype)
        threshold = np.floor(threshold)
    limit = b.constant(cast_array(threshold, _F64, x.dtype), x.dtype)
    return b.cast(b.op("Greater", x, limit, dtype=DType.bool, shape=x.shape), x.dtype)


def _imputed(b: Builder, call: Call) -> Replacement:
    (x,) = call.inputs
    if x.dtype is _I32:
        return _computed_in(_I64)(b, call)
    old = call.attributes.get("replaced_value_float", 0.0)
    new = np.asarray(call.attributes["imputed_value_floats"], np.float64)
    if np.isnan(old):
        missing = b.op("IsNaN", x, dtype=DType.bool)
    else:
        missing = b.op("Equal", x, b.scalar(old, x.dtype), dtype=DType.bool)
    return b.op("Where", missing, b.constant(new, _F64), x, dtype=x.dtype, shape=call.shape)


def _encoded(b: Builder, call: Call) -> Replacement:
    """Return the indices of the keys, by which the values are looked up."""
    (x,) = call.inputs
    result = call.types[0].dtype
    values = _listed(call.attributes, "values")
    if result is _STRING:
        values = np.array(values, object)
    other = call.attributes.get(
        _DEFAULTS.get(result, ""), call.attributes.get("default_tensor", _OTHERWISE.get(result, -1))
    )
    other = np.asarray(other, object if result is _STRING else result.numpy).reshape(1)
    table = b.constant(np.concatenate([np.asarray(values, other.dtype), other]), result)
    keys = {n: a for n, a in call.attributes.items() if n.startswith("keys_")}
    if x.dtype in (_I16, _I32):
        keys = {"keys_int64s": [int(k) for k in _listed(call.attributes, "keys")]}
        x = b.cast(x, _I64)
    count = len(values)
    if "keys_tensor" in keys:
        keys["values_tensor"], keys["default_tensor"] = np.arange(count), np.array([count])
    else:
        keys |= {"values_int64s": list(range(count)), "default_int64": count}
    places = b.emit(call.op, (x,), b.retyped(call.types[0], _I64), keys, DOMAIN)
    return b.op("Gather", table, places, dtype=result, shape=call.shape)


_DEFAULTS = {_I64: "default_int64", _F32: "default_float", _STRING: "default_string"}
_OTHERWISE: dict[DType, Any] = {_F32: -0.0, _F64: -0.0, _STRING: "_Unused"}


def _listed(attributes: dict[str, Any], name: str) -> Any:
    """Return the keys or values, whichever attribute has them."""
    return next(a for n, a in attributes.items() if n.startswith(f"{name}_"))


def _classified(b: Builder, call: Call) -> Replacement:
    """Compute two classes with weights for both as two targets: the label of the greatest score, the first of equals.

    The kernel's label is 1 or 0 whatever the labels are, and its scores differ where a leaf has a weight for one class.
    """
    labels = call.attributes.get("classlabels_int64s") or call.attributes.get("classlabels_strings") or ()
    if len(labels) != 2 or len(set(call.attributes["class_ids"])) != 2 or len(call.types) != 2:
        return None
    (x,) = call.inputs
    x = b.cast(x, _F64) if x.dtype.is_integer else x
    trees = {n.replace("class_", "target_"): a for n, a in call.attributes.items() if not n.startswith("classlabels")}
    trees["n_targets"] = 2
    scores = b.emit("TreeEnsembleRegressor", (x,), call.types[1], trees, DOMAIN)
    plain = scores
    if call.attributes.get("post_transform", "NONE") != "NONE":
        plain = b.emit("TreeEnsembleRegressor", (x,), call.types[1], {**trees, "post_transform": "NONE"}, DOMAIN)
    own = call.types[0].dtype
    table = b.constant(np.array(labels, object if own is _STRING else np.int64), own)
    rows = call.shape[0] if call.shape.is_ranked and call.types[0].rank else Dim.dynamic()
    best = b.op("ArgMax", plain, dtype=_I64, shape=_shape([rows]), axis=1, keepdims=0)
    return b.op("Gather", table, best, dtype=own, shape=call.shape), scores


def _ensembled(b: Builder, call: Call) -> Replacement:
    """Compute TreeEnsemble by TreeEnsembleRegressor, and float16 in float32.

    Releases before 1.22 have no kernel. The others take SOFTMAX for LOGISTIC and the other way round, apply neither to
    one target, and are wrong or fail where a node tests for membership of a set; that of 1.22 is wrong where a node
    compares with one value, or where a node and a leaf below a root have the same number.
    """
    (x,), said = call.inputs, call.attributes
    if x.dtype is _F16:
        held = {n: a.astype(np.float32) if _is_of(a, _F16) else a for n, a in said.items()}
        wide = Call(call.op, (b.cast(x, _F32),), (b.retyped(call.types[0], _F32),), held, DOMAIN)
        made = _ensembled(b, wide)
        assert isinstance(made, Symbol)
        return b.cast(made, _F16)
    _check_trees(said)
    transform = _TRANSFORMS[said.get("post_transform", 0)]
    outermost(b.graph).opsets[DOMAIN] = 4  # the last version that has the operator
    nodes, leaves = _chained(said)
    trees: dict[str, Any] = {
        **{f"nodes_{name}": [row[place] for row in nodes] for place, name in enumerate(_COLUMNS)},
        "target_treeids": [tree for tree, _, _ in leaves],
        "target_nodeids": [node for _, node, _ in leaves],
    }
    trees["nodes_values_as_tensor"] = np.array(trees["nodes_values_as_tensor"], x.dtype.numpy)
    places = [place for _, _, place in leaves]
    weights = np.asarray(said["leaf_weights"])[places]
    targets = np.asarray(said["leaf_targetids"], np.int64)[places]
    if x.dtype is _F64 and transform != "PROBIT":  # which the kernel computes as an approximation, in float32
        return _transformed(b, _by_leaves(b, call, trees, weights, targets), transform)
    trees |= {
        "target_ids": targets.tolist(),
        "target_weights_as_tensor": weights,
        "n_targets": said.get("n_targets", 0),
    }
    trees |= {"aggregate_function": _AGGREGATES[said.get("aggregate_function", 1)]}
    trees |= {"post_transform": "PROBIT" if transform == "PROBIT" else "NONE"}
    made = b.emit("TreeEnsembleRegressor", (x,), b.retyped(call.types[0], _F32), trees, DOMAIN)
    return b.cast(made, x.dtype) if transform == "PROBIT" else _transformed(b, made, transform)


def _check_trees(said: Mapping[str, Any]) -> None:
    """Raise `GraphError` for trees that name nodes, leaves, targets, modes or transforms which there are not."""
    count, leaves = len(said["nodes_modes"]), len(said["leaf_weights"])
    below = [
        0 <= at < (leaves if is_leaf else count)
        for name in ("true", "false")
        for at, is_leaf in zip(said[f"nodes_{name}nodeids"], said[f"nodes_{name}leafs"], strict=False)
    ]
    numbers = (
        (said["nodes_modes"], len(_MODES)),
        (said["tree_roots"], count),
        (said["leaf_targetids"], said.get("n_targets", 0)),
        ([said.get("post_transform", 0)], len(_TRANSFORMS)),
        ([said.get("aggregate_function", 1)], len(_AGGREGATES)),
    )
    needed = [v for n, v in said.items() if n.startswith("nodes_") and (len(v) or n not in _OPTIONAL)]
    is_whole = all(len(values) == count for values in needed)
    is_whole &= leaves == len(said["leaf_targetids"]) and len(below) == 2 * count and bool(len(said["tree_roots"]))
    if not is_whole or not all(below) or not all(0 <= n < end for values, end in numbers for n in values):
        raise GraphError(
            "TreeEnsemble: its attributes name nodes, leaves, targets, modes or transforms that it does not have, or "
            "are of several lengths",
            help="export the model again",
        )


def _chained(said: Mapping[str, Any]) -> tuple[list[list[Any]], list[tuple[int, int, int]]]:
    """Return the nodes of trees, a row for each as `_COLUMNS` says, and for each leaf its tree, its node and its place.

    A node that compares with one value or with those of a set becomes a chain of comparisons with them in their order,
    for onnxruntime 1.22 takes other nodes of BRANCH_EQ for one.
    """
    modes = [int(mode) for mode in said["nodes_modes"]]
    sets = _sets(said.get("membership_values", ()))
    members = {at: next(sets) for at, mode in enumerate(modes) if mode == _MEMBER}
    members |= {at: [said["nodes_splits"][at]] for at, mode in enumerate(modes) if _MODES[mode] == "BRANCH_EQ"}
    tracks = said.get("nodes_missing_value_tracks_true") or [0] * len(modes)
    most = _MAX_COPIES * (4 * len(modes) + 2 * len(said.get("membership_values", ())) + len(said["tree_roots"]))
    from graphcore.onnx.read.checks import MAX_DEPTH  # onnx, which few graphs need

    rows: list[list[Any]] = []
    leaves: list[tuple[int, int, int]] = []
    for tree, root in enumerate(said["tree_roots"]):
        first = len(rows)
        waiting: list[tuple[int, bool, list[tuple[list[Any], int]], int]] = [(int(root), False, [], 0)]
        while waiting:
            at, is_leaf, readers, depth = waiting.pop()
            number = len(rows) - first
            if len(rows) > most or depth > MAX_DEPTH:
                raise GraphError(
                    f"TreeEnsemble: tree {tree} has a node below itself or many others, or is {MAX_DEPTH} nodes deep",
                    help="give each node one parent, and limit the depth of the trees when they are trained",
                )
            for row, column in readers:
                row[column] = number
            if is_leaf:
                rows.append([tree, number, 0, "LEAF", 0, 0, 0, 0])
                leaves.append((tree, number, at))
                continue
            feature, tracks_true = int(said["nodes_featureids"][at]), int(tracks[at])
            steps = [(_MODES[modes[at]], said["nodes_splits"][at], tracks_true, True)]
            if at in members:
                steps = [
                    step
                    for v in sorted(members[at])
                    for step in (("BRANCH_LT", v, 0, False), ("BRANCH_LEQ", v, 0, True))
                ]
                steps = steps if steps and not tracks_true else [("BRANCH_LT", -np.inf, tracks_true, True), *steps]
            chain: list[list[Any]] = [
                [tree, number + i, feature, mode, value, 0, number + i + 1, missing]
                for i, (mode, value, missing, _) in enumerate(steps)
            ]
            rows += chain
            for name, goes in (("true", True), ("false", False)):
                ways = [(row, _TRUE) for row, step in zip(chain, steps, strict=True) if step[3] is goes]
                ways += [] if goes else [(chain[-1], _FALSE)]
                below, is_leaf = said[f"nodes_{name}nodeids"][at], bool(said[f"nodes_{name}leafs"][at])
                waiting.append((int(below), is_leaf, ways, depth + len(chain)))
    return rows, leaves


def _sets(values: Iterable[float]) -> Iterator[list[float]]:
    """Yield the members of each set, which NaNs separate, and empty sets after the last."""
    found: list[float] = []
    for value in values:
        if value == value:
            found.append(value)
        else:
            yield found
            found = []
    while True:
        yield found
        found = []


def _by_leaves(b: Builder, call: Call, trees: dict[str, Any], weights: Array, targets: Array) -> Symbol:
    """Look up the weights in float64 by the leaf that each tree gives: TreeEnsembleRegressor gives float32."""
    (x,), said = call.inputs, call.attributes
    count, width = len(said["tree_roots"]), said.get("n_targets", 0)
    if len(weights) > _MAX_LEAVES:
        raise GraphError(
            f"TreeEnsemble: {len(weights)} leaves in float64, of which float32 tells {_MAX_LEAVES} apart",
            help="compute it in float32",
        )
    rows = call.shape[0] if call.shape.is_ranked and call.types[0].rank == 2 else Dim.dynamic()
    leaf = np.arange(len(weights), dtype=np.float64)
    trees |= {"target_ids": trees["target_treeids"], "target_weights_as_tensor": leaf, "n_targets": count}
    each = _shape([rows, Dim(count), Dim(1)])
    found = b.emit("TreeEnsembleRegressor", (x,), tensor_type(_F32, _shape([rows, Dim(count)])), trees, DOMAIN)
    found = b.op("Unsqueeze", b.cast(found, _I64), b.vector([2]), shape=each)
    terms = b.op("Gather", b.constant(weights, _F64), found, dtype=_F64, shape=each)
    aggregate = _AGGREGATES[said.get("aggregate_function", 1)]
    is_own = None
    if width > 1:
        own = b.op("Gather", b.constant(targets, _I64), found, dtype=_I64, shape=each)
        every = b.constant(np.arange(width).reshape(1, 1, width), _I64)
        is_own = b.op("Equal", own, every, dtype=DType.bool, shape=_shape([rows, Dim(count), Dim(width)]))
        nothing = b.scalar({"MIN": np.inf, "MAX": -np.inf}.get(aggregate, 0.0), _F64)
        terms = b.op("Where", is_own, terms, nothing, dtype=_F64, shape=is_own.shape)
    if aggregate in ("MIN", "MAX"):
        scores = reduced(b, f"Reduce{aggregate.title()}", terms, [1])
        if is_own is not None:  # the score that no tree gives is 0
            is_any = b.cast(reduced(b, "ReduceMax", b.cast(is_own, _I32), [1]), DType.bool)
            scores = b.op("Where", is_any, scores, b.scalar(0.0, _F64), dtype=_F64)
    else:
        running = b.op("CumSum", terms, b.scalar(1, _I64))  # one tree after the other, as the kernel adds them
        scores = b.op("Gather", running, b.scalar(count - 1, _I64), shape=_shape([rows, Dim(width)]), axis=1)
        scores = b.op("Div", scores, b.scalar(float(count), _F64)) if aggregate == "AVERAGE" else scores
    return scores


def _transformed(b: Builder, scores: Symbol, transform: str) -> Symbol:
    """Return the scores of targets after a transform of theirs."""
    if transform == "NONE":
        return scores
    if transform == "LOGISTIC":
        return b.op("Sigmoid", scores)
    if transform == "SOFTMAX":
        return b.op("Softmax", scores, axis=1)
    dtype = scores.dtype
    most = reduced(b, "ReduceMax", scores, [1], keepdims=True)
    powers = b.op("Exp", b.op("Sub", scores, most))
    is_zero = b.op("LessOrEqual", b.op("Abs", scores), b.scalar(1e-7, dtype), dtype=DType.bool)
    total = reduced(
        b, "ReduceSum", b.op("Where", is_zero, b.scalar(0.0, dtype), powers, dtype=dtype), [1], keepdims=True
    )
    zeros = b.op("Mul", scores, b.op("Exp", b.op("Neg", most)))
    return b.op("Div", b.op("Where", is_zero, zeros, powers, dtype=dtype), total)


_OPTIONAL = ("nodes_hitrates", "nodes_missing_value_tracks_true")
_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER")
_MEMBER = 6
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
"""The numbers of TreeEnsemble in words."""

_COLUMNS = (
    "treeids", "nodeids", "featureids", "modes", "values_as_tensor", "truenodeids", "falsenodeids",
    "missing_value_tracks_true",
)  # fmt: skip
_TRUE, _FALSE = _COLUMNS.index("truenodeids"), _COLUMNS.index("falsenodeids")

_MAX_LEAVES = 1 << 24
"""The whole numbers that float32 tells apart."""

_MAX_COPIES = 16
"""The rows for each node: one with several parents is copied, as kernels of TreeEnsemble do."""


def _may_lack_rows(type_: TensorType) -> bool:
    shape = type_.shape
    return not shape.is_ranked or (len(shape) > 1 and not (shape[0].is_static and int(shape[0])))


def _vectorized(b: Builder, call: Call) -> Replacement:
    """Return the columns of the operands side by side, each cut or filled with zeros to its own number of them.

    The kernel ends the process on operands without rows.
    """
    if not b.rules.has_trap("FeatureVectorizer without rows"):
        return None
    counts = call.attributes.get("inputdimensions") or ()
    if len(counts) != len(call.inputs):
        return None  # the kernel says so
    rows = call.shape[0] if call.shape.is_ranked and call.types[0].rank == 2 else Dim.dynamic()
    parts = []
    for x, count in zip(call.inputs, counts, strict=True):
        wide = b.op("Pad", b.cast(_in_rows(b, x), _F32), b.vector([0, 0, 0, count]), shape=_shape([rows, _ANY_DIM]))
        cut = _shape([rows, Dim(count)])
        parts.append(b.op("Slice", wide, b.vector([0]), b.vector([count]), b.vector([1]), shape=cut))
    return b.op("Concat", *parts, shape=call.shape, axis=1)


def _in_rows(b: Builder, x: Symbol) -> Symbol:
    """Return a tensor with two axes: a vector is one row, and axes after the first are one."""
    shape = x.shape
    if shape.is_ranked and len(shape) > 1:
        return b.op("Flatten", x, shape=_shape([shape[0], _ANY_DIM]), axis=1)
    if shape.is_ranked:
        return b.op("Reshape", x, b.vector([1, -1]), shape=_shape([Dim(1), _ANY_DIM]))
    sizes = b.op("Shape", x, dtype=_I64, shape=_shape([_ANY_DIM]))
    first = b.op("Slice", sizes, b.vector([0]), b.vector([1]), shape=_shape([Dim(1)]))
    others = b.op("Slice", sizes, b.vector([1]), b.vector([_MOST_AXES]), shape=_shape([_ANY_DIM]))
    others = b.op("ReduceProd", others, b.vector([0]), shape=_shape([Dim(1)]), keepdims=1)
    is_row = b.op("Equal", b.op("Shape", sizes, dtype=_I64, shape=_shape([Dim(1)])), b.vector([1]), dtype=DType.bool)
    rows = b.op("Where", is_row, b.vector([1]), first)
    columns = b.op("Where", is_row, first, others)
    two = b.op("Concat", rows, columns, shape=_shape([Dim(2)]), axis=0)
    return b.op("Reshape", x, two, shape=_shape([_ANY_DIM, _ANY_DIM]), allowzero=1)


_ANY_DIM = Dim.dynamic()
_MOST_AXES = 64

_WHOLE = frozenset({_I32, _I64})
_ANY = frozenset({_I32, _I64, _F32, _F64})

_ROWS: dict[str, tuple[frozenset[DType], Decomposition]] = {
    "Binarizer": (_WHOLE | {_F64}, _binarized),
    "FeatureVectorizer": (_ANY, _vectorized),
    "Imputer": (frozenset({_I32, _F64}), _imputed),
    "LabelEncoder": (frozenset(), _encoded),
    "LinearRegressor": (_WHOLE | {_F64}, _computed_in(_F32)),
    "OneHotEncoder": (frozenset({_I32}), _computed_in(_I64)),
    "SVMRegressor": (_WHOLE | {_F64}, _computed_in(_F32)),
    "TreeEnsemble": (frozenset({_F16, _F32, _F64}), _ensembled),
    "TreeEnsembleClassifier": (_ANY, _classified),
    "TreeEnsembleRegressor": (_WHOLE, _computed_in(_F64)),
}
"""By operator the dtypes of the operand in which it is replaced, and by what."""
