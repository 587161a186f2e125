"""The types of results of complex operands, which ONNX's inference and the expansions of operators do not know."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from graphcore.build.shapes import broadcast_shapes
from graphcore.ir.symbol import Symbol
from graphcore.promotion.complex_operators import is_complex
from graphcore.types.complex_dtypes import real_of
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Shape, TensorType, Type, _shape

_REAL = frozenset({"Abs", "Angle", "ImaginaryPart", "Magnitude", "RealPart"})
"""Operators that give real numbers of complex ones."""

SHAPES: Mapping[str, Callable[[Sequence[Shape]], Shape]] = {
    "ComplexOf": broadcast_shapes,
    "FromPairs": lambda shapes: _shape(list(shapes[0])[:-1]),
    "ImaginaryPart": lambda shapes: shapes[0],
    "ToPairs": lambda shapes: Shape([*shapes[0], 2]),
}
"""The shapes of what the library's operators give that have no expansion. Operands have known ranks."""


def are_in(types: Sequence[Type | None]) -> bool:
    """Return whether there are complex numbers among values of such types."""
    return any(type_ is not None and is_complex(type_) for type_ in types)


def moved_dtype(op_type: str, result: DType, before: Sequence[Type | None], inputs: Sequence[Symbol | None]) -> DType:
    """Return the dtype of a result whose operands change dtypes, some from or to complex ones."""
    moved: dict[DType, DType] = {}
    for a, new in zip(before, inputs, strict=True):
        if isinstance(a, TensorType) and new is not None and isinstance(new.type, TensorType):
            moved.setdefault(a.dtype, new.dtype)
            if a.dtype.is_complex and new.dtype.is_complex:
                moved.setdefault(a.dtype.storage, new.dtype.storage)
    made = moved.get(result, result)
    return real_of(made) if op_type in _REAL else made
