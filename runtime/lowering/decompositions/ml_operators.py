"""Operators of ai.onnx.ml in dtypes without a kernel, and where the kernel gives other labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphcore.arrays.casting import cast_array
from graphcore.ir.symbol import Symbol
from graphcore.runtime.lowering.build.builder import Builder, Call
from graphcore.runtime.lowering.decompositions.signature import Decomposition, Replacement
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, Type, _shape

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
    "TreeEnsemble": (frozenset({_F16}), _computed_in(_F32)),
    "TreeEnsembleClassifier": (_ANY, _classified),
    "TreeEnsembleRegressor": (_WHOLE, _computed_in(_F64)),
}
"""By operator the dtypes of the operand in which it is replaced, and by what."""
