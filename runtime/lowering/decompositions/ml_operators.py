"""Operators of ai.onnx.ml in dtypes without a kernel, and kernels that return other labels than ONNX defines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from graphcore.arrays.casting import Array, cast_array
from graphcore.errors import GraphError
from graphcore.ir.definitions import outermost
from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.build.builder import Builder, Decomposition, OpCall, Replacement
from graphcore.runtime.lowering.decompositions.shape_arithmetic import shape_of
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
"""The dtypes of keys and values for which LabelEncoder has kernels."""


def needs_replacement(op_type: str, operand: Type | None, result: Type | None) -> bool:
    """Return True if an operator may need a replacement for an operand and a first result of these types."""
    row = _ROWS.get(op_type)
    if row is None or not isinstance(operand, TensorType):
        return row is not None
    if op_type == "LabelEncoder" and isinstance(result, TensorType):
        return result.dtype not in _ENCODED.get(operand.dtype, ())
    if op_type == "FeatureVectorizer":
        return _may_lack_rows(operand)
    return operand.dtype in row[0]


def replace_call(b: Builder, call: OpCall) -> tuple[Symbol, ...] | None:
    """Return the replacement of a node; None if the kernel computes the same. Raises `GraphError` for Gradient."""
    if call.domain == "ai.onnx.preview.training":
        raise GraphError(
            f"{call.op}: no runtime computes it, since it stands for the derivatives of the nodes between "
            f"{', '.join(call.attributes['xs'])} and {call.attributes['y']}",
            operands={f"input {i}": str(s.type) for i, s in enumerate(call.inputs) if s is not None},
            help="build the nodes of the derivatives, or export the graph with target='onnx' for a training tool",
        )
    if call.domain != DOMAIN or not needs_replacement(call.op, call.inputs[0].type, call.types[0]):
        return None
    results = _ROWS[call.op][1](b, call)
    return results if results is None or isinstance(results, tuple) else (results,)


def _compute_in(dtype: DType, b: Builder, call: OpCall) -> Replacement:
    """Compute the operator on an operand cast to another dtype; cast back results of the operand's dtype."""
    operand_dtype = call.inputs[0].dtype
    attributes = {n: a.astype(dtype.numpy) if _is_of(a, operand_dtype) else a for n, a in call.attributes.items()}
    wide = [b.retyped(t, dtype) if t.dtype is operand_dtype else t for t in call.types]
    operands = tuple([None if s is None else b.cast(s, dtype) for s in call.inputs])
    results = b.emit_many(call.op, operands, wide, attributes, DOMAIN)
    return tuple(b.cast(f, t.dtype) for f, t in zip(results, call.types, strict=True))


def _is_of(value: Any, dtype: DType) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == dtype.numpy


def _binarizer(b: Builder, call: OpCall) -> Replacement:
    (x,) = call.inputs
    threshold = np.asarray(call.attributes.get("threshold", 0.0), np.float64)
    if x.dtype.is_integer:  # compare with the integer below the threshold, if there is one
        least = x.dtype.min - 1
        if threshold <= least:
            above = b.op("Equal", x, x, dtype=DType.bool)
            return b.cast(above, x.dtype)
        threshold = np.floor(threshold)
    limit = b.constant(cast_array(threshold, _F64, x.dtype), x.dtype)
    return b.cast(b.op("Greater", x, limit, dtype=DType.bool, shape=x.shape), x.dtype)


def _imputer(b: Builder, call: OpCall) -> Replacement:
    (x,) = call.inputs
    if x.dtype is _I32:
        return _compute_in(_I64, b, call)
    old = call.attributes.get("replaced_value_float", 0.0)
    new = np.asarray(call.attributes["imputed_value_floats"], np.float64)
    if np.isnan(old):
        missing = b.op("IsNaN", x, dtype=DType.bool)
    else:
        missing = b.op("Equal", x, b.scalar(old, x.dtype), dtype=DType.bool)
    return b.op("Where", missing, b.constant(new, _F64), x, dtype=x.dtype, shape=call.shape)


def _label_encoder(b: Builder, call: OpCall) -> Replacement:
    """Look the values up by the indices of the keys."""
    (x,) = call.inputs
    result = call.types[0].dtype
    values = _attribute_list(call.attributes, "values")
    if result is _STRING:
        values = np.array(values, object)
    other = call.attributes.get(
        _DEFAULTS.get(result, ""), call.attributes.get("default_tensor", _DEFAULT_VALUES.get(result, -1))
    )
    other = np.asarray(other, object if result is _STRING else result.numpy).reshape(1)
    table = b.constant(np.concatenate([np.asarray(values, other.dtype), other]), result)
    keys = {n: a for n, a in call.attributes.items() if n.startswith("keys_")}
    if x.dtype in (_I16, _I32):
        keys = {"keys_int64s": [int(k) for k in _attribute_list(call.attributes, "keys")]}
        x = b.cast(x, _I64)
    count = len(values)
    if "keys_tensor" in keys:
        keys["values_tensor"], keys["default_tensor"] = np.arange(count), np.array([count])
    else:
        keys |= {"values_int64s": list(range(count)), "default_int64": count}
    places = b.emit(call.op, (x,), b.retyped(call.types[0], _I64), keys, DOMAIN)
    return b.op("Gather", table, places, dtype=result, shape=call.shape)


_DEFAULTS = {_I64: "default_int64", _F32: "default_float", _STRING: "default_string"}
_DEFAULT_VALUES: dict[DType, Any] = {_F32: -0.0, _F64: -0.0, _STRING: "_Unused"}


def _attribute_list(attributes: dict[str, Any], name: str) -> Any:
    """Return the keys or values, from whichever attribute has them."""
    return next(a for n, a in attributes.items() if n.startswith(f"{name}_"))


def _tree_classifier(b: Builder, call: OpCall) -> Replacement:
    """Compute two classes with weights for both as two targets: the label of the largest score, the first if equal.

    The kernel returns 1 or 0 for any labels, and its scores are wrong if a leaf has a weight for one class.
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
    dtype = call.types[0].dtype
    table = b.constant(np.array(labels, object if dtype is _STRING else np.int64), dtype)
    rows = call.shape[0] if call.shape.is_ranked and call.types[0].rank else Dim.dynamic()
    best = b.op("ArgMax", plain, dtype=_I64, shape=_shape([rows]), axis=1, keepdims=0)
    return b.op("Gather", table, best, dtype=dtype, shape=call.shape), scores


def _tree_ensemble(b: Builder, call: OpCall) -> Replacement:
    """Compute TreeEnsemble by TreeEnsembleRegressor, and float16 in float32.

    Releases before 1.22 have no kernel. The others swap SOFTMAX and LOGISTIC, apply neither to one target, and are
    wrong or fail for nodes that test for membership of a set; that of 1.22 is wrong if a node compares with one value,
    or if a node and a leaf below a root have the same number.
    """
    (x,), attributes = call.inputs, call.attributes
    if x.dtype is _F16:
        wide_attributes = {n: a.astype(np.float32) if _is_of(a, _F16) else a for n, a in attributes.items()}
        wide = OpCall(call.op, (b.cast(x, _F32),), (b.retyped(call.types[0], _F32),), wide_attributes, DOMAIN)
        wide_result = _tree_ensemble(b, wide)
        assert isinstance(wide_result, Symbol)
        return b.cast(wide_result, _F16)
    _check_trees(attributes)
    transform = _TRANSFORMS[attributes.get("post_transform", 0)]
    outermost(b.graph).opsets[DOMAIN] = 4  # the last version with TreeEnsembleRegressor
    nodes, leaves = _tree_rows(attributes)
    trees: dict[str, Any] = {
        **{f"nodes_{name}": [row[place] for row in nodes] for place, name in enumerate(_COLUMNS)},
        "target_treeids": [tree for tree, _, _ in leaves],
        "target_nodeids": [node for _, node, _ in leaves],
    }
    trees["nodes_values_as_tensor"] = np.array(trees["nodes_values_as_tensor"], x.dtype.numpy)
    places = [place for _, _, place in leaves]
    weights = np.asarray(attributes["leaf_weights"])[places]
    targets = np.asarray(attributes["leaf_targetids"], np.int64)[places]
    if x.dtype is _F64 and transform != "PROBIT":  # the kernel approximates PROBIT in float32
        return _transform(b, _by_leaves(b, call, trees, weights, targets), transform)
    trees |= {
        "target_ids": targets.tolist(),
        "target_weights_as_tensor": weights,
        "n_targets": attributes.get("n_targets", 0),
    }
    trees |= {"aggregate_function": _AGGREGATES[attributes.get("aggregate_function", 1)]}
    trees |= {"post_transform": "PROBIT" if transform == "PROBIT" else "NONE"}
    wide_result = b.emit("TreeEnsembleRegressor", (x,), b.retyped(call.types[0], _F32), trees, DOMAIN)
    return b.cast(wide_result, x.dtype) if transform == "PROBIT" else _transform(b, wide_result, transform)


def _check_trees(attributes: Mapping[str, Any]) -> None:
    """Raise `GraphError` for trees that refer to missing nodes, leaves, targets, modes or transforms."""
    count, leaves = len(attributes["nodes_modes"]), len(attributes["leaf_weights"])
    below = [
        0 <= at < (leaves if is_leaf else count)
        for name in ("true", "false")
        for at, is_leaf in zip(attributes[f"nodes_{name}nodeids"], attributes[f"nodes_{name}leafs"], strict=False)
    ]
    numbers = (
        (attributes["nodes_modes"], len(_MODES)),
        (attributes["tree_roots"], count),
        (attributes["leaf_targetids"], attributes.get("n_targets", 0)),
        ([attributes.get("post_transform", 0)], len(_TRANSFORMS)),
        ([attributes.get("aggregate_function", 1)], len(_AGGREGATES)),
    )
    needed = [v for n, v in attributes.items() if n.startswith("nodes_") and (len(v) or n not in _OPTIONAL)]
    is_whole = all(len(values) == count for values in needed)
    is_whole &= (
        leaves == len(attributes["leaf_targetids"]) and len(below) == 2 * count and bool(len(attributes["tree_roots"]))
    )
    if not is_whole or not all(below) or not all(0 <= n < end for values, end in numbers for n in values):
        raise GraphError(
            "TreeEnsemble: its attributes refer to nodes, leaves, targets, modes or transforms that do not exist, or "
            "have different lengths",
            help="export the model again",
        )


def _tree_rows(attributes: Mapping[str, Any]) -> tuple[list[list[Any]], list[tuple[int, int, int]]]:
    """Return the nodes of trees, a row for each in the order of `_COLUMNS`, and for each leaf its tree, node and index.

    A node that compares with one value or with those of a set becomes a chain of comparisons with them in ascending
    order, because onnxruntime 1.22 mistakes other nodes for ones of BRANCH_EQ.
    """
    modes = [int(mode) for mode in attributes["nodes_modes"]]
    sets = _sets(attributes.get("membership_values", ()))
    members = {at: next(sets) for at, mode in enumerate(modes) if mode == _MEMBER}
    members |= {at: [attributes["nodes_splits"][at]] for at, mode in enumerate(modes) if _MODES[mode] == "BRANCH_EQ"}
    tracks = attributes.get("nodes_missing_value_tracks_true") or [0] * len(modes)
    max_rows = _MAX_COPIES * (
        4 * len(modes) + 2 * len(attributes.get("membership_values", ())) + len(attributes["tree_roots"])
    )
    from graphcore.onnx.read.checks import MAX_DEPTH  # onnx, which few graphs need

    rows: list[list[Any]] = []
    leaves: list[tuple[int, int, int]] = []
    for tree, root in enumerate(attributes["tree_roots"]):
        first = len(rows)
        waiting: list[tuple[int, bool, list[tuple[list[Any], int]], int]] = [(int(root), False, [], 0)]
        while waiting:
            at, is_leaf, readers, depth = waiting.pop()
            number = len(rows) - first
            if len(rows) > max_rows or depth > MAX_DEPTH:
                raise GraphError(
                    f"TreeEnsemble: tree {tree} has a cycle, too many shared nodes, or more than {MAX_DEPTH} levels",
                    help="give each node one parent, and limit the depth of the trees when they are trained",
                )
            for row, column in readers:
                row[column] = number
            if is_leaf:
                rows.append([tree, number, 0, "LEAF", 0, 0, 0, 0])
                leaves.append((tree, number, at))
                continue
            feature, tracks_true = int(attributes["nodes_featureids"][at]), int(tracks[at])
            steps = [(_MODES[modes[at]], attributes["nodes_splits"][at], tracks_true, True)]
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
                below, is_leaf = attributes[f"nodes_{name}nodeids"][at], bool(attributes[f"nodes_{name}leafs"][at])
                waiting.append((int(below), is_leaf, ways, depth + len(chain)))
    return rows, leaves


def _sets(values: Iterable[float]) -> Iterator[list[float]]:
    """Yield the members of each set, which NaNs separate, and then empty sets."""
    members: list[float] = []
    for value in values:
        if value == value:
            members.append(value)
        else:
            yield members
            members = []
    while True:
        yield members
        members = []


def _by_leaves(b: Builder, call: OpCall, trees: dict[str, Any], weights: Array, targets: Array) -> Symbol:
    """Look up the weights in float64 by the leaf of each tree: TreeEnsembleRegressor returns float32."""
    (x,), attributes = call.inputs, call.attributes
    count, width = len(attributes["tree_roots"]), attributes.get("n_targets", 0)
    if len(weights) > _MAX_LEAVES:
        raise GraphError(
            f"TreeEnsemble: {len(weights)} leaves in float64, but float32 distinguishes only {_MAX_LEAVES}",
            help="compute it in float32",
        )
    rows = call.shape[0] if call.shape.is_ranked and call.types[0].rank == 2 else Dim.dynamic()
    leaf = np.arange(len(weights), dtype=np.float64)
    trees |= {"target_ids": trees["target_treeids"], "target_weights_as_tensor": leaf, "n_targets": count}
    leaf_indices = b.emit("TreeEnsembleRegressor", (x,), tensor_type(_F32, _shape([rows, Dim(count)])), trees, DOMAIN)
    leaf_indices = b.op("Unsqueeze", b.cast(leaf_indices, _I64), b.vector([2]))
    terms = b.op("Gather", b.constant(weights, _F64), leaf_indices)
    aggregate = _AGGREGATES[attributes.get("aggregate_function", 1)]
    is_own = None
    if width > 1:
        target = b.op("Gather", b.constant(targets, _I64), leaf_indices)
        every = b.constant(np.arange(width).reshape(1, 1, width), _I64)
        is_own = b.op("Equal", target, every)
        neutral = b.scalar({"MIN": np.inf, "MAX": -np.inf}.get(aggregate, 0.0), _F64)
        terms = b.op("Where", is_own, terms, neutral, dtype=_F64, shape=is_own.shape)
    if aggregate in ("MIN", "MAX"):
        scores = reduced(b, f"Reduce{aggregate.title()}", terms, [1])
        if is_own is not None:  # a target without a tree has score 0
            is_any = b.cast(reduced(b, "ReduceMax", b.cast(is_own, _I32), [1]), DType.bool)
            scores = b.op("Where", is_any, scores, b.scalar(0.0, _F64), dtype=_F64)
    else:
        running = b.op("CumSum", terms, b.scalar(1, _I64))  # in the order in which the kernel adds trees
        scores = b.op("Gather", running, b.scalar(count - 1, _I64), shape=_shape([rows, Dim(width)]), axis=1)
        scores = b.op("Div", scores, b.scalar(float(count), _F64)) if aggregate == "AVERAGE" else scores
    return scores


def _transform(b: Builder, scores: Symbol, transform: str) -> Symbol:
    """Return the scores of targets after a transform."""
    if transform == "NONE":
        return scores
    if transform == "LOGISTIC":
        return b.op("Sigmoid", scores)
    if transform == "SOFTMAX":
        return b.op("Softmax", scores, axis=1)
    dtype = scores.dtype
    largest = reduced(b, "ReduceMax", scores, [1], keepdims=True)
    powers = b.op("Exp", b.op("Sub", scores, largest))
    is_zero = b.op("LessOrEqual", b.op("Abs", scores), b.scalar(1e-7, dtype), dtype=DType.bool)
    total = reduced(
        b, "ReduceSum", b.op("Where", is_zero, b.scalar(0.0, dtype), powers, dtype=dtype), [1], keepdims=True
    )
    zeros = b.op("Mul", scores, b.op("Exp", b.op("Neg", largest)))
    return b.op("Div", b.op("Where", is_zero, zeros, powers, dtype=dtype), total)


_OPTIONAL = ("nodes_hitrates", "nodes_missing_value_tracks_true")
_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER")
_MEMBER = 6
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
"""The names of the numbers in TreeEnsemble's attributes."""

_COLUMNS = (
    "treeids", "nodeids", "featureids", "modes", "values_as_tensor", "truenodeids", "falsenodeids",
    "missing_value_tracks_true",
)  # fmt: skip
_TRUE, _FALSE = _COLUMNS.index("truenodeids"), _COLUMNS.index("falsenodeids")

_MAX_LEAVES = 1 << 24
"""The number of integers that float32 distinguishes."""

_MAX_COPIES = 16
"""The maximum rows per node: a node with several parents is copied, as in kernels of TreeEnsemble."""


def _may_lack_rows(type_: TensorType) -> bool:
    shape = type_.shape
    return not shape.is_ranked or (len(shape) > 1 and not (shape[0].is_static and int(shape[0])))


def _feature_vectorizer(b: Builder, call: OpCall) -> Replacement:
    """Concatenate the columns of the operands, each cut or padded with zeros to its number of columns.

    The kernel crashes on operands without rows.
    """
    if not b.rules.has_trap("FeatureVectorizer without rows"):
        return None
    counts = call.attributes.get("inputdimensions") or ()
    if len(counts) != len(call.inputs):
        return None  # the kernel raises an error
    parts = []
    for x, count in zip(call.inputs, counts, strict=True):
        wide = b.op("Pad", b.cast(_in_rows(b, x), _F32), b.vector([0, 0, 0, count]))
        parts.append(b.op("Slice", wide, b.vector([0]), b.vector([count]), b.vector([1])))
    return b.op("Concat", *parts, shape=call.shape, axis=1)


def _in_rows(b: Builder, x: Symbol) -> Symbol:
    """Return a tensor with two axes: a vector is one row, and axes after the first are flattened."""
    shape = x.shape
    if shape.is_ranked and len(shape) > 1:
        return b.op("Flatten", x, axis=1)
    if shape.is_ranked:
        return b.op("Reshape", x, b.vector([1, -1]))
    sizes = shape_of(b, x)
    first = b.op("Slice", sizes, b.vector([0]), b.vector([1]), shape=_shape([Dim(1)]))
    others = b.op("Slice", sizes, b.vector([1]), b.vector([_MAX_AXES]))
    others = b.op("ReduceProd", others, b.vector([0]), keepdims=1)
    is_row = b.op("Equal", shape_of(b, sizes), b.vector([1]))
    rows = b.op("Where", is_row, b.vector([1]), first)
    columns = b.op("Where", is_row, first, others)
    two = b.op("Concat", rows, columns, shape=_shape([Dim(2)]), axis=0)
    return b.op("Reshape", x, two, allowzero=1)


_MAX_AXES = 64

_WHOLE = frozenset({_I32, _I64})
_ANY = frozenset({_I32, _I64, _F32, _F64})

_ROWS: dict[str, tuple[frozenset[DType], Decomposition]] = {
    "Binarizer": (_WHOLE | {_F64}, _binarizer),
    "FeatureVectorizer": (_ANY, _feature_vectorizer),
    "Imputer": (frozenset({_I32, _F64}), _imputer),
    "LabelEncoder": (frozenset(), _label_encoder),
    "LinearRegressor": (_WHOLE | {_F64}, partial(_compute_in, _F32)),
    "OneHotEncoder": (frozenset({_I32}), partial(_compute_in, _I64)),
    "SVMRegressor": (_WHOLE | {_F64}, partial(_compute_in, _F32)),
    "TreeEnsemble": (frozenset({_F16, _F32, _F64}), _tree_ensemble),
    "TreeEnsembleClassifier": (_ANY, _tree_classifier),
    "TreeEnsembleRegressor": (_WHOLE, partial(_compute_in, _F64)),
}
"""By operator: the dtypes of the operand for which it is replaced, and the replacement."""
