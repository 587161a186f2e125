"""Types of inputs and outputs as JSON, and back from a worker that is not trusted."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from typing import Any

from graphcore.errors import GraphcoreError
from graphcore.runtime.isolation.codec import MOST_DIMS
from graphcore.runtime.isolation.framing import Malformed
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import ForeignType, OptionalType, SequenceType, Shape, TensorType, Type

_LONGEST = 1000
"""The characters that a name or a dim may have."""
_MOST_BITS = 1 << 20


def described(types: Mapping[str, Type]) -> list[Any]:
    """Return types by name as what JSON holds."""
    return [[name, _described(type_)] for name, type_ in types.items()]


def _described(type_: Type) -> list[Any]:
    if isinstance(type_, TensorType):
        dims = [_dim_of(dim) for dim in type_.shape] if type_.shape.is_ranked else None
        return ["tensor", type_.dtype.name, dims, type_.ambiguous]
    if isinstance(type_, SequenceType):
        return ["sequence", _described(type_.element)]
    if isinstance(type_, OptionalType):
        return ["optional", _described(type_.element)]
    return ["foreign", type_.name, type_.onnx.hex()]


def _dim_of(dim: Dim) -> int | str | None:
    if dim.is_static:
        return int(dim)
    text = str(dim)
    return None if dim.is_dynamic or len(text) > _LONGEST else text


def types_of(described: object, deadline: float = math.inf) -> dict[str, Type]:
    """Return types by name of what `described` gave. Raises `Malformed` for anything else.

    deadline: of `time.monotonic`. Raises `TimeoutError` then: dims that are expressions take time to read.
    """
    try:
        made = {_name(name): _type(type_, 0, deadline) for name, type_ in described}  # type: ignore[attr-defined]
    except (GraphcoreError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise Malformed(f"types that cannot be read: {error}") from None
    return made


def _type(given: Any, depth: int, deadline: float) -> Type:
    kind, *rest = given
    if time.monotonic() >= deadline:
        raise TimeoutError
    if depth > 16:
        raise ValueError("a type that is nested too deep")
    if kind == "tensor":
        name, dims, is_ambiguous = rest
        dtype = DType.of(_name(name))
        if dtype.bits > _MOST_BITS:
            raise ValueError("an integer of so many bits")
        if dims is not None and len(dims) > MOST_DIMS:
            raise ValueError(f"{len(dims)} dims")
        shape = Shape.unknown() if dims is None else Shape(_dim(dim, deadline) for dim in dims)
        return TensorType(dtype, shape, ambiguous=bool(is_ambiguous))
    if kind == "sequence":
        (element,) = rest
        return SequenceType(_type(element, depth + 1, deadline))
    if kind == "optional":
        (element,) = rest
        return OptionalType(_type(element, depth + 1, deadline))
    if kind == "foreign":
        name, onnx = rest
        return ForeignType(_name(name), bytes.fromhex(onnx))
    raise ValueError(f"a type of kind {kind!r:.40}")


def _dim(given: Any, deadline: float) -> Dim:
    if given is None:
        return Dim.dynamic()
    if time.monotonic() >= deadline:
        raise TimeoutError
    if isinstance(given, str) and len(given) > _LONGEST:
        raise ValueError("a dim that is too long")
    made = Dim(given)
    if isinstance(given, str) and str(made) != given:
        raise ValueError("a dim that is not written as dims are")
    return made


def _name(given: object) -> str:
    if not isinstance(given, str) or len(given) > _LONGEST:
        raise ValueError("a name that is none")
    return given


def read(content: bytes) -> Any:
    """Return what JSON of a worker holds. Raises `Malformed` for what is none."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise Malformed(f"JSON that cannot be read: {error}") from None


def written(value: object) -> bytes:
    """Return a value as JSON."""
    return json.dumps(value).encode()
