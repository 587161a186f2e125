"""Types of values: tensors with a dtype and a shape, sequences and optionals. Equal types are one object."""

from __future__ import annotations

import re
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn, TypeAlias, overload

from graphcore.errors import DTypeError, ShapeError
from graphcore.support.escaping import escaped
from graphcore.support.markup import code
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.immutable import Immutable

DimLike: TypeAlias = Dim | int | str


class Shape(tuple[Dim, ...]):
    """The dims of a tensor, outermost first. Immutable; equal to tuples and lists of equal dims, ints and names."""

    __slots__ = ()

    def __new__(cls, dims: Iterable[DimLike] = ()) -> Shape:
        return super().__new__(cls, [_dim(d) for d in dims])

    @property
    def rank(self) -> int:
        return len(self)

    @staticmethod
    def unknown() -> Shape:
        """Return the shape of tensors of unknown rank, as in models without shapes. It is a single object."""
        return _UNKNOWN

    @property
    def is_ranked(self) -> bool:
        """True if the rank is known. Otherwise there are no dims."""
        return True

    def allows(self, sizes: Sequence[int]) -> bool:
        """Return True if an array of these sizes can have this shape. An unknown rank allows any."""
        return not self.is_ranked or (
            len(self) == len(sizes) and all(not d.is_static or int(d) == n for d, n in zip(self, sizes, strict=True))
        )

    @property
    def is_static(self) -> bool:
        """True if all dims are static."""
        return all(d.is_static for d in self)

    @property
    def is_dynamic(self) -> bool:
        """True if a dim is dynamic."""
        return any(d.is_dynamic for d in self)

    @property
    def static_dims(self) -> list[int]:
        """The sizes of the static dims, in order."""
        return [int(d) for d in self if d.is_static]

    @property
    def parameters(self) -> frozenset[str]:
        """The names in the dims."""
        return frozenset().union(*(d.parameters for d in self))

    @property
    def size(self) -> Dim:
        """The number of elements, as a dim."""
        product = Dim(1)
        for dim in self:
            product = product * dim
        return product

    def substitute(self, values: Mapping[str, DimLike]) -> Shape:
        """Return the shape with names replaced. See `Dim.substitute`."""
        return Shape(d.substitute(values) for d in self)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, list):
            other = tuple(other)
        return tuple.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        if isinstance(other, list):
            other = tuple(other)
        return tuple.__ne__(self, other)

    __hash__ = tuple.__hash__

    @overload  # type: ignore[override]
    def __getitem__(self, key: int) -> Dim: ...
    @overload
    def __getitem__(self, key: slice) -> Shape: ...
    def __getitem__(self, key: Any) -> Any:
        item = tuple.__getitem__(self, key)
        return _shape(item) if isinstance(key, slice) else item

    def __add__(self, other: Iterable[DimLike]) -> Shape:  # type: ignore[override]
        return _shape((*self, *(_dim(d) for d in other)))

    def __radd__(self, other: Iterable[DimLike]) -> Shape:
        return _shape((*(_dim(d) for d in other), *self))

    def __mul__(self, times: Any) -> Shape:
        return _shape(tuple(self) * times)

    def __str__(self) -> str:
        return "[" + ", ".join(map(str, self)) + "]"

    def _repr_html_(self) -> str:
        return code(str(self))

    def __repr__(self) -> str:
        return escaped(f"Shape({', '.join(map(str, self))})")

    def __reduce__(self) -> tuple[Any, ...]:
        return Shape, (tuple(self),)


def _shape(dims: Iterable[Dim]) -> Shape:
    """Return a Shape of Dims without checks."""
    return tuple.__new__(Shape, dims)


class _UnknownShape(Shape):
    """The shape of unknown rank. Reading its dims raises `ShapeError`."""

    __slots__ = ()

    is_ranked = property(lambda self: False)
    is_static = property(lambda self: False)
    is_dynamic = property(lambda self: True)
    parameters = property(lambda self: frozenset())
    size = property(lambda self: Dim.dynamic())

    def _refuse(self, *_: object) -> NoReturn:
        raise ShapeError(
            "the operation needs the rank of a tensor, which is unknown",
            help="state a shape: ops.reshape, or the type of the model's input",
        )

    rank = property(_refuse)
    __len__ = __iter__ = __getitem__ = __add__ = __radd__ = __mul__ = _refuse

    def substitute(self, values: Mapping[str, DimLike]) -> Shape:
        return self

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    def __hash__(self) -> int:
        return id(self)

    def __str__(self) -> str:
        return "[...]"

    def __repr__(self) -> str:
        return "Shape.unknown()"

    def __reduce__(self) -> tuple[Any, ...]:
        return Shape.unknown, ()


_UNKNOWN = tuple.__new__(_UnknownShape)


_MAX_SIZE = (1 << 63) - 1
"""The largest size of an axis in an ONNX file."""


def _dim(value: DimLike) -> Dim:
    if isinstance(value, Dim):
        return value
    if isinstance(value, str) or (hasattr(value, "__index__") and not isinstance(value, bool)):
        try:
            dim = Dim(value)
            if dim.is_static and int(dim) > _MAX_SIZE:
                raise ValueError(f"{value} is not a valid dim: a size is below 2^63")
            return dim
        except ValueError as cause:
            raise ShapeError(str(cause), help="a dim is a number >= 0, a name, or Dim.dynamic()") from None
    if value is None:
        raise ShapeError(
            "None is not a valid dim", help='name the dim ("batch"), or use Dim.dynamic() if it is unknown'
        )
    raise ShapeError(f"{value!r} is not a valid dim", help="a dim is a number >= 0, a name, or Dim.dynamic()")


class TensorType(Immutable):
    """The type of a tensor: `TensorType(DType.float32, ["batch", 4])`. Immutable and interned.

    Args:
        dtype: A DType, or anything that `DType.of` accepts. A spelling that publications read differently, such as
            "i8", or that only some of them have, such as "apint(17)", is read by the promotion system of the graph that
            has an input of the type; until then the type has no `dtype`.
        shape: The dims as ints, names or Dims; `()` for a scalar.
        ambiguous: If True, the dtype is only a default that gives way to others, in promotion systems with such
            dtypes. Printed as `int32?[batch, 4]`.

    Raises:
        DTypeError: The dtype is unknown.
        ShapeError: A dim is invalid.
    """

    __slots__ = ("__weakref__", "ambiguous", "dtype", "shape")

    dtype: DType
    shape: Shape
    ambiguous: bool
    """True if the dtype gives way to a definite one."""

    def __new__(cls, dtype: object, shape: Iterable[DimLike] = (), *, ambiguous: bool = False) -> TensorType:
        if isinstance(dtype, (list, tuple, Shape)) and isinstance(shape, (str, DType)):
            raise ShapeError(
                f"{shape!r} is not a valid shape", help=f"the dtype comes first: TensorType({shape!r}, {dtype!r})"
            )
        if isinstance(shape, (str, int)):
            raise ShapeError(f"{shape!r} is not a valid shape", help=f"a shape is a list of dims: [{shape!r}]")
        if not isinstance(shape, Iterable):
            raise ShapeError(
                f"{shape!r} is not a valid shape", help="a shape is a list of dims: ['batch', 4], or [] for a scalar"
            )
        dims = shape if isinstance(shape, Shape) else Shape(shape)
        if isinstance(dtype, str) and _SPELLINGS.fullmatch(dtype):
            return _spelled(dtype, dims, ambiguous)
        return tensor_type(DType.of(dtype), dims, ambiguous)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a TensorType is immutable")

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        return self.shape.is_static

    def dim(self, position: int) -> Dim:
        """Return the dim at `position`; negative positions count from the end."""
        return self.shape[position]

    def num_elements(self) -> int:
        """Return the number of elements of a static shape.

        Raises:
            TypeError: If a dim is not static.
        """
        return int(self.shape.size)

    def cast(self, dtype: object) -> TensorType:
        """Return the type with the same shape and another dtype."""
        return tensor_type(DType.of(dtype), self.shape)

    def __str__(self) -> str:
        return f"{self.dtype.name}{'?' if self.ambiguous else ''}{self.shape}"

    def __repr__(self) -> str:
        dims = ", ".join(str(d) if d.is_static else repr(str(d)) for d in self.shape) if self.shape.is_ranked else ""
        shape = f"[{dims}]" if self.shape.is_ranked else repr(self.shape)
        return f"TensorType({self.dtype!r}, {shape}{', ambiguous=True' if self.ambiguous else ''})"

    def __reduce__(self) -> tuple[Any, ...]:
        return tensor_type, (self.dtype, self.shape, self.ambiguous)


_SPELLINGS = re.compile(
    r"[iu][1248]|f[248]|c8|c16|apint\(.*\)|pred|.+\?|(un)?signed \w+|char|short|int|long|size_t|__\w+"
)
"""The spellings of dtypes that depend on the promotion system."""


class SpelledType(TensorType):
    """The type of an input whose dtype the promotion system of its graph reads. Reading `dtype` raises `DTypeError`."""

    __slots__ = ("spelling",)
    spelling: str

    @property
    def dtype(self) -> DType:  # type: ignore[override]
        raise DTypeError(
            f"the dtype {self.spelling!r} depends on the promotion system of a graph",
            help="declare an input or a buffer of a Graph with it, or write the name, such as int8",
        )

    def __str__(self) -> str:
        return f"{self.spelling}{self.shape}"

    def __repr__(self) -> str:
        return f"TensorType({self.spelling!r}, {self.shape})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _spelled, (self.spelling, self.shape, self.ambiguous)


def _spelled(spelling: str, shape: Shape, ambiguous: bool) -> SpelledType:
    new = object.__new__(SpelledType)
    for name, value in (("spelling", spelling), ("shape", shape), ("ambiguous", ambiguous)):
        object.__setattr__(new, name, value)
    return new


complex_in_use: set[DType] = set()
"""The complex dtypes of types in this process. While it is empty, checks for complex values are skipped."""

_interned: weakref.WeakValueDictionary[tuple[DType, Shape, bool], TensorType] = weakref.WeakValueDictionary()


def tensor_type(dtype: DType, shape: Shape, ambiguous: bool = False) -> TensorType:
    """Return the TensorType of a DType and a Shape without conversions."""
    key = (dtype, shape, ambiguous)
    type_ = _interned.get(key)
    if type_ is None:
        if dtype.is_complex:
            complex_in_use.add(dtype)
        new = object.__new__(TensorType)
        object.__setattr__(new, "dtype", dtype)
        object.__setattr__(new, "shape", shape)
        object.__setattr__(new, "ambiguous", ambiguous)
        type_ = _interned.setdefault(key, new)
    return type_


def known_type(type_: Type) -> Type:
    """Return the type with a definite dtype if it was ambiguous."""
    return tensor_type(type_.dtype, type_.shape) if isinstance(type_, TensorType) and type_.ambiguous else type_


class _ElementType(Immutable):
    """A type with one element type."""

    __slots__ = ("element",)

    def __init__(self, element: Type) -> None:
        object.__setattr__(self, "element", element)

    element: Type

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.element == getattr(other, "element", None)

    def __hash__(self) -> int:
        return hash((type(self).__name__, self.element))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.element!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.element,)


class SequenceType(_ElementType):
    """The type of lists of values of one type (ONNX `seq(...)`)."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"seq({self.element})"


class OptionalType(_ElementType):
    """The type of values that may be absent (ONNX `optional(...)`)."""

    __slots__ = ()

    def __str__(self) -> str:
        return f"optional({self.element})"


class OpaqueType(Immutable):
    """A type that graphcore only passes through: a map, a sparse tensor, or an unknown type.

    onnx: the serialised `onnx.TypeProto`, empty for an unknown type.
    """

    __slots__ = ("name", "onnx")

    name: str
    onnx: bytes

    def __init__(self, name: str = "unknown", onnx: bytes = b"") -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "onnx", onnx)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpaqueType) and self.onnx == other.onnx

    def __hash__(self) -> int:
        return hash(self.onnx)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"OpaqueType({self.name!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return OpaqueType, (self.name, self.onnx)


Type: TypeAlias = TensorType | SequenceType | OptionalType | OpaqueType
