"""Operators of ai.onnx.ml in the dtypes that the runtime has no kernel for, and where its kernel gives other labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from graphcore.arrays.casting import cast_array
from graphcore.ir.symbol import Symbol
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, Type, _shape

if TYPE_CHECKING:
    from graphcore.runtime.lowering.legalisation.legalise import Legaliser

DOMAIN = "ai.onnx.ml"

_I16, _I32, _I64 = DType.int16, DType.int32, DType.int64
_F16, _F32, _F64, _STRING = DType.float16, DType.float32, DType.float64, DType.string

Made: TypeAlias = "Symbol | tuple[Symbol, ...] | None"

_ENCODED = {
    _STRING: {_STRING, _I16, _I64, _F32, _F64},
    _I64: {_STRING, _I64, _F32, _F64},
    _F32: {_STRING, _I64, _F32},
    _F64: {_STRING, _I64, _F64},
}
"""What LabelEncoder's kernels make of which keys."""


def replaces(op_type: str, operand: Type | None, result: Type | None) -> bool:
    """Whether the operator may have to be replaced on an operand and for a first result of these types."""
    row = _ROWS.get(op_type)
    if row is None or not isinstance(operand, TensorType):
        return row is not None
    if op_type == "LabelEncoder" and isinstance(result, TensorType):
        return result.dtype not in _ENCODED.get(operand.dtype, ())
    return operand.dtype in row[0]


def replaced(
    on: Legaliser, op_type: str, inputs: Sequence[Any], types: Sequence[Any], attributes: dict[str, Any]
) -> tuple[Symbol, ...] | None:
    """What computes the same; None where the kernel does."""
    if not replaces(op_type, inputs[0].type, types[0]):
        return None
    made = _ROWS[op_type][1](on, op_type, inputs, types, attributes)
    return made if made is None or isinstance(made, tuple) else (made,)


def _through(dtype: DType) -> Callable[..., Made]:
    """The operator on an operand cast to another dtype; a result of the operand's comes back."""

    def made(on: Legaliser, op: str, inputs: Sequence[Any], types: Sequence[Any], attributes: dict[str, Any]) -> Made:
        own = inputs[0].dtype
        held = {n: a.astype(dtype.numpy) if _is_of(a, own) else a for n, a in attributes.items()}
        wide = [on.retyped(t, dtype) if t.dtype is own else t for t in types]
        given = tuple([None if s is None else on.casts.cast(s, s.dtype, dtype) for s in inputs])
        found = on.graph._emit_many(op, given, wide, held, DOMAIN)
        return tuple(on.casts.cast(f, f.dtype, t.dtype) for f, t in zip(found, types, strict=True))

    return made


def _is_of(value: Any, dtype: DType) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == dtype.numpy


def _binarized(on: Legaliser, op: str, inputs: Sequence[Any], types: Sequence[Any], attributes: dict[str, Any]) -> Made:
    (x,) = inputs
    threshold = np.asarray(attributes.get("threshold", 0.0), np.float64)
    if x.dtype.is_integer:  # which is greater where it is greater than the whole number below, if there is one
        least = x.dtype.min - 1
        if threshold <= least:
            above = on.op("Equal", x, x, dtype=DType.bool)
            return on.casts.cast(above, DType.bool, x.dtype)
        threshold = np.floor(threshold)
    limit = on.graph._constant(cast_array(threshold, _F64, x.dtype), x.dtype)
    return on.casts.cast(on.op("Greater", x, limit, dtype=DType.bool, shape=x.shape), DType.bool, x.dtype)


def _imputed(on: Legaliser, op: str, inputs: Sequence[Any], types: Sequence[Any], attributes: dict[str, Any]) -> Made:
    (x,) = inputs
    if x.dtype is _I32:
        return _through(_I64)(on, op, inputs, types, attributes)
    old = attributes.get("replaced_value_float", 0.0)
    new = np.asarray(attributes["imputed_value_floats"], np.float64)
    if np.isnan(old):
        missing = on.op("IsNaN", x, dtype=DType.bool)
    else:
        missing = on.op("Equal", x, on.const(old, x.dtype), dtype=DType.bool)
    return on.op("Where", missing, on.graph._constant(new, _F64), x, dtype=x.dtype, shape=types[0].shape)


def _encoded(on: Legaliser, op: str, inputs: Sequence[Any], types: Sequence[Any], attributes: dict[str, Any]) -> Made:
    """The places of the keys, by which the values are looked up."""
    (x,) = inputs
    result = types[0].dtype
    values = _listed(attributes, "values")
    if result is _STRING:
        values = np.array(values, object)
    other = attributes.get(_DEFAULTS.get(result, ""), attributes.get("default_tensor", _OTHERWISE.get(result, -1)))
    other = np.asarray(other, object if result is _STRING else result.numpy).reshape(1)
    table = on.graph._constant(np.concatenate([np.asarray(values, other.dtype), other]), result)
    keys = {n: a for n, a in attributes.items() if n.startswith("keys_")}
    if x.dtype in (_I16, _I32):
        keys = {"keys_int64s": [int(k) for k in _listed(attributes, "keys")]}
        x = on.casts.cast(x, x.dtype, _I64)
    count = len(values)
    if "keys_tensor" in keys:
        keys["values_tensor"], keys["default_tensor"] = np.arange(count), np.array([count])
    else:
        keys |= {"values_int64s": list(range(count)), "default_int64": count}
    places = on.graph._emit(op, (x,), on.retyped(types[0], _I64), keys, DOMAIN)
    return on.op("Gather", table, places, dtype=result, shape=types[0].shape)


_DEFAULTS = {_I64: "default_int64", _F32: "default_float", _STRING: "default_string"}
_OTHERWISE: dict[DType, Any] = {_F32: -0.0, _F64: -0.0, _STRING: "_Unused"}


def _listed(attributes: dict[str, Any], name: str) -> Any:
    """The keys or values, whichever attribute has them."""
    return next(a for n, a in attributes.items() if n.startswith(f"{name}_"))


def _classified(
    on: Legaliser, op: str, inputs: Sequence[Any], types: Sequence[Any], attributes: dict[str, Any]
) -> Made:
    """Two classes that both have weights as two targets: the label is that of the greatest score, the first of equals.

    The kernel's label is 1 or 0 whatever the labels are, and its scores differ where a leaf has a weight for one class.
    """
    labels = attributes.get("classlabels_int64s") or attributes.get("classlabels_strings") or ()
    if len(labels) != 2 or len(set(attributes["class_ids"])) != 2 or len(types) != 2:
        return None
    (x,) = inputs
    x = on.casts.cast(x, x.dtype, _F64) if x.dtype.is_integer else x
    trees = {n.replace("class_", "target_"): a for n, a in attributes.items() if not n.startswith("classlabels")}
    trees["n_targets"] = 2
    scores = on.graph._emit("TreeEnsembleRegressor", (x,), types[1], trees, DOMAIN)
    plain = scores
    if attributes.get("post_transform", "NONE") != "NONE":
        plain = on.graph._emit("TreeEnsembleRegressor", (x,), types[1], {**trees, "post_transform": "NONE"}, DOMAIN)
    own = types[0].dtype
    table = on.graph._constant(np.array(labels, object if own is _STRING else np.int64), own)
    rows = types[0].shape[0] if types[0].shape.is_ranked and types[0].rank else Dim.dynamic()
    best = on.op("ArgMax", plain, dtype=_I64, shape=_shape([rows]), axis=1, keepdims=0)
    return on.op("Gather", table, best, dtype=own, shape=types[0].shape), scores


_WHOLE = frozenset({_I32, _I64})
_ANY = frozenset({_I32, _I64, _F32, _F64})

_ROWS: dict[str, tuple[frozenset[DType], Callable[..., Made]]] = {
    "Binarizer": (_WHOLE | {_F64}, _binarized),
    "Imputer": (frozenset({_I32, _F64}), _imputed),
    "LabelEncoder": (frozenset(), _encoded),
    "LinearRegressor": (_WHOLE | {_F64}, _through(_F32)),
    "OneHotEncoder": (frozenset({_I32}), _through(_I64)),
    "SVMRegressor": (_WHOLE | {_F64}, _through(_F32)),
    "TreeEnsemble": (frozenset({_F16}), _through(_F32)),
    "TreeEnsembleClassifier": (_ANY, _classified),
    "TreeEnsembleRegressor": (_WHOLE, _through(_F64)),
}
"""By operator the dtypes of the operand in which it is replaced, and by what."""
