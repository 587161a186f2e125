"""Feeds of a model, checked before a kernel sees it: names, dtypes, ranks and dims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn, TypeAlias

import numpy as np
from numpy import ndarray

from graphcore.arrays import big_integers, casting
from graphcore.arrays.casting import Array
from graphcore.errors import DTypeError, FeedError
from graphcore.runtime.calls.conversion import are_all_text, converted, is_text, quick_look
from graphcore.support.escaping import suggestion, text_of
from graphcore.types.dims import Dim
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import OpaqueType, OptionalType, SequenceType, TensorType, Type

_Accepted: TypeAlias = tuple[str, "np.dtype[Any] | None", "tuple[int, ...] | None"]
"""The name, dtype and shape of an array that was accepted; no dtype for strings, neither for lists and maps."""


class ForOtherModel(Exception):
    """The feed is for another Model of the same source."""


class NoElements(ForOtherModel):
    """The feed has empty arrays, which the model does not support."""


class Overrides(ForOtherModel):
    """The feed has values of constants, whose names are the argument."""


class Inputs(dict[str, Type]):
    """The types of the inputs that a call gives, by name, in order."""

    def __init__(self, types: Mapping[str, Type], optional: Mapping[str, Type]) -> None:
        super().__init__(types)
        self.optional = dict(optional)
        """The types of the inputs that a call may omit, because they have defaults. They are given by name."""


class _TensorFeed(NamedTuple):
    """An array of a feed. what: its name in errors. is_buffer: whether it is the value of a buffer."""

    what: str
    type: TensorType
    array: Array
    is_buffer: bool = False


def _unnamed(type_: Type) -> Type:
    """Return the type of an element of a sequence without dim names, since their sizes may differ between elements."""
    if isinstance(type_, (SequenceType, OptionalType)):
        return type(type_)(_unnamed(type_.element))
    if not isinstance(type_, TensorType) or not type_.shape.is_ranked:
        return type_
    return TensorType(type_.dtype, [d if d.is_static else Dim.dynamic() for d in type_.shape])


class Feeds:
    """The inputs of a model, in order, and the checks of their values.

    Tensors are arrays, or objects that `converted` converts; sequences are lists or tuples; an absent optional is None
    or omitted. The runtime checks values of other types.
    """

    def __init__(
        self,
        model: str,
        types: Mapping[str, Type],
        kind: str = "input",
        *,
        has_elements: bool = False,
        optional: Mapping[str, Type] = MappingProxyType({}),
        defaults: Mapping[str, Array] = MappingProxyType({}),
    ) -> None:
        """has_elements: whether to raise `NoElements` for empty arrays. optional: inputs that are given by name, or not
        at all. defaults: their values, where known."""
        self.model = model
        self.optional = dict(optional)
        self.constants: Mapping[str, Type] = {}
        """Constants for which a call may give other values: `take` raises `Overrides`."""
        self._defaults = defaults
        self._has_elements = has_elements
        self._kind = kind
        self.types = dict(types)
        self.names = tuple(types)
        # The elements of bools, strings, lists and maps are checked in every call.
        looks = {name: quick_look(t) for name, t in types.items()}
        self._looks = tuple((name, look) for name, look in looks.items() if look is not None)
        self._begins_with_map = bool(types) and isinstance(next(iter(types.values())), OpaqueType)
        self._dims_by_type: dict[TensorType, list[tuple[int, str | None, Dim | int]]] = {}
        self._accepted: tuple[_Accepted, ...] | None = None

    def take(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
        """Return the feed of values by position, by name or in one dict, in the inputs' order. Raises `FeedError`.

        Arrays with the dtypes and shapes of the last call, as most have, need only a quick check.
        """
        feed = None if self._accepted is None else self._take_like_last(self._accepted, arrays, named)
        if feed is not None:
            return feed
        optional: Mapping[str, Any] = {}
        if self.optional or self.constants:
            arrays, named = self._by_name(arrays, named)
            if overridden := frozenset(n for n in named.keys() & self.constants.keys() if named[n] is not None):
                raise Overrides(overridden)
            optional = {n: named[n] for n in self.optional if named.get(n) is not None}
            others = self.optional.keys() | self.constants.keys()
            named = {n: value for n, value in named.items() if n not in others}
        return self._checked(self._in_order(arrays, named), optional)

    def optional_values(self, values: Mapping[str, Any], what: str) -> dict[str, Any]:
        """Return checked values of optional inputs. what: has them, for errors. Raises `FeedError`."""
        types = {**self.optional, **self.constants}
        leaves: list[_TensorFeed] = []
        for name in values:
            if name not in types:
                raise FeedError(
                    f"{what}: {self.model} has no input {name!r:.80} with a default",
                    help=f"{suggestion(name, types)}those: {', '.join([*types][:_MAX_LISTED_INPUTS]) or 'none'}",
                )
        result = {n: self._value(f"{self._kind} {n!r}", types[n], value, leaves) for n, value in values.items()}
        self._check_sizes(leaves)
        return result

    def _take_like_last(
        self, accepted: Sequence[_Accepted], arrays: Sequence[Any], named: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        """Return a feed with the dtypes and shapes of the last one; None if it needs the full check."""
        values = arrays
        if named or len(arrays) != len(accepted) or (len(arrays) == 1 and type(arrays[0]) is dict):
            by_name = self._values_by_name(arrays, named)
            if by_name is None:
                return None
            values = by_name
        feed = {}
        for (name, dtype, shape), value in zip(accepted, values, strict=True):
            if dtype is not None:
                if type(value) is not ndarray or value.dtype is not dtype or value.shape != shape:
                    return None
                if not ((flags := value.flags).carray or (flags.c_contiguous and flags.aligned)):
                    return None
            elif shape is not None and (type(value) is not ndarray or value.shape != shape):
                return None
            feed[name] = value
        for name, look in self._looks:
            if (seen := look(feed[name])) is None:
                return None
            feed[name] = seen
        return feed

    def _values_by_name(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> Sequence[Any] | None:
        """Return values by name or in one dict, in the inputs' order; None if they need the full check."""
        if arrays:
            whole = arrays[0]
            if named or len(arrays) > 1 or type(whole) is not dict:
                return None
            if not self._are_feeds(whole):
                return arrays if len(self.names) == 1 else None
            named = whole
        return [*map(named.get, self.names)] if len(named) == len(self.names) else None

    def check_beside(self, feed: Mapping[str, Any], buffers: Mapping[str, tuple[TensorType, Array]]) -> None:
        """Raise `FeedError` if the dims of buffers differ from those of a feed."""
        types = self.types | self.optional
        pairs = ((f"{self._kind} {name!r}", types[name], value) for name, value in feed.items())
        leaves = [_TensorFeed(what, type_, value) for what, type_, value in pairs if isinstance(type_, TensorType)]
        self._check_sizes(
            [*leaves, *(_TensorFeed(f"buffer {name!r}", *pair, is_buffer=True) for name, pair in buffers.items())]
        )

    def sizes_of(self, feed: Mapping[str, Any]) -> dict[str, int]:
        """Return the sizes of named dims in a checked feed."""
        types = self.types | self.optional
        return {
            name: value.shape[axis]
            for input_, value in feed.items()
            if isinstance(type_ := types[input_], TensorType)
            for axis, name, _ in self._known_dims(type_)
            if name is not None
        }

    def _checked(self, values: Sequence[Any], optional: Mapping[str, Any]) -> dict[str, Any]:
        """Return the feed of a value for each input, and of the optional inputs that the call has."""
        leaves: list[_TensorFeed] = []
        feed = {}
        for (name, type_), value in zip(self.types.items(), values, strict=True):
            feed[name] = self._value(f"{self._kind} {name!r}", type_, value, leaves)
        for name, type_ in self.optional.items():
            if name in optional:
                feed[name] = self._value(f"{self._kind} {name!r}", type_, optional[name], leaves)
            elif name in self._defaults and isinstance(type_, TensorType):
                leaves.append(_TensorFeed(f"the default of {self._kind} {name!r}", type_, self._defaults[name]))
        self._check_sizes(leaves)
        if self._has_elements and not all(leaf.array.size for leaf in leaves):
            raise NoElements
        if not optional:
            self._accepted = tuple(_accepted(name, type_, feed[name]) for name, type_ in self.types.items())
        return feed

    def _in_order(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> Sequence[Any]:
        """Return the value of each input, in order."""
        if not named and len(arrays) == len(self.names) and not (len(arrays) == 1 and isinstance(arrays[0], Mapping)):
            return arrays
        arrays, named = self._by_name(arrays, named)
        if not arrays and named.keys() == self.types.keys():
            return [named[name] for name in self.names]
        takes = ", ".join(f"{name} {type_}" for name, type_ in self.types.items()) or "none"
        if optional := [*self.optional, *self.constants]:
            takes += f"; by name, or omitted: {', '.join(optional[:_MAX_LISTED_INPUTS])}"
        if len(arrays) > len(self.names):
            raise FeedError(
                f"{self.model}: {len(arrays)} arrays given for {len(self.names)} inputs", help=f"the inputs: {takes}"
            )
        feed = dict(zip(self.names, arrays, strict=False))
        for name, value in named.items():
            if name not in self.types:
                close = suggestion(name, [*self.types, *optional])
                raise FeedError(f"{self.model}: there is no input {name!r:.80}", help=f"{close}the inputs: {takes}")
            if name in feed:
                raise FeedError(f"{self.model}: input {name!r} is given twice", help="give it by position or by name")
            feed[name] = value
        missing = [n for n in self.names if n not in feed and not isinstance(self.types[n], OptionalType)]
        if missing:
            raise FeedError(f"{self.model}: no array is given for {', '.join(missing)}", help=f"the inputs: {takes}")
        return [feed.get(name) for name in self.names]

    def _by_name(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
        """Return values with those of a single dict among the named ones. Raises `FeedError` for a name in both."""
        whole = arrays[0] if len(arrays) == 1 else None
        if not isinstance(whole, Mapping) or not self._are_feeds(whole):
            return arrays, named
        if twice := whole.keys() & named.keys():
            raise FeedError(f"{self.model}: input {min(twice)!r} is given twice", help="give it in the dict or by name")
        return (), {**whole, **named}

    def _are_feeds(self, feed: Mapping[Any, Any]) -> bool:
        """Return True if a dict has the feeds by name: always, except for a model whose first input is a map."""
        return not self._begins_with_map or (bool(feed) and feed.keys() <= self.types.keys())

    def _value(self, what: str, wanted: Type, value: Any, leaves: list[_TensorFeed]) -> Any:
        """Return a value for the runtime, and add its arrays to the leaves."""
        if isinstance(wanted, TensorType):
            array = self._array(what, wanted, value)
            leaves.append(_TensorFeed(what, wanted, array))
            return casting.paired(array) if wanted.dtype.is_complex else array
        if isinstance(wanted, OptionalType):
            return None if value is None else self._value(what, wanted.element, value, leaves)
        if not isinstance(wanted, SequenceType):
            return value
        if isinstance(value, (list, tuple)):
            each = _unnamed(wanted.element)
            return [self._value(f"element {i} of {what}", each, v, leaves) for i, v in enumerate(value)]
        raise FeedError(
            f"{self.model}: {what} must be a list, got {type(value).__name__}",
            operands={"takes": str(wanted), "given": summary(value)},
            help="give a list of the elements; list(array) splits an array along its first axis",
        )

    def _array(self, what: str, wanted: TensorType, value: Any) -> Array:
        is_torch = type(value).__module__.partition(".")[0] == "torch"
        if not isinstance(value, (np.ndarray, np.generic)):
            value = converted(f"{self.model}: {what}", wanted, value)
        if casting.is_masked(value):
            raise FeedError(
                f"{self.model}: {what} is a masked array, but models have no masks",
                help="fill the masked elements: array.filled(0)",
            )
        array = np.asarray(value)
        if big_integers.is_wide(wanted.dtype):
            return self._to_digits(what, wanted, array)
        if wanted.dtype is DType.string:
            array = self._text(what, wanted, array)
        elif wanted.dtype.is_complex and _are_pairs(wanted, array):
            array = casting.unpaired(array)
        elif array.dtype.newbyteorder("=") != wanted.dtype.numpy:
            fix = f"cast it: array.astype({wanted.dtype.numpy.name!r})"
            if is_torch:
                fix = f"cast it: tensor.to(torch.{wanted.dtype.name})"
            if array.dtype.kind == "c" and not wanted.dtype.is_complex:
                fix = "pick a part: array.real, array.imag or np.abs(array)"
            self._fail(wanted, array, f"{what} must be {wanted.dtype}", fix)
        if wanted.shape.is_ranked and array.ndim != wanted.rank:
            self._fail(wanted, array, f"{what} must have rank {wanted.rank}", "reshape it, or add the axes it lacks")
        array = casting.native(array)
        return array if array.flags.aligned else array.copy()

    def _to_digits(self, what: str, wanted: TensorType, array: Array) -> Array:
        """Return integers of more than 64 bits as digits; the value may be digits already."""
        dtype = wanted.dtype
        count = big_integers.digits_of(dtype)
        is_cut = array.ndim > 0 and array.shape[-1] == count and array.dtype.newbyteorder("=") == np.uint32
        if is_cut and (not wanted.shape.is_ranked or array.ndim == wanted.rank + 1):
            array = casting.native(array)
            return array if array.flags.aligned else array.copy()
        whole = big_integers.integers(array)
        fix = f"give an array of Python ints, or of uint32 with {count} digits of 32 bits along one more axis"
        if whole is None:
            self._fail(wanted, array, f"{what} must be {dtype}", fix)
        if wanted.shape.is_ranked and whole.ndim != wanted.rank:
            self._fail(wanted, array, f"{what} must have rank {wanted.rank}, or {wanted.rank + 1} as digits", fix)
        for item in whole.ravel():
            if not dtype.min <= item <= dtype.max:
                raise FeedError(
                    f"{self.model}: {what} is {dtype}, which cannot hold {text_of(item)}",
                    help=f"{dtype} holds {text_of(dtype.min)} to {text_of(dtype.max)}",
                )
        return big_integers.to_digits(whole, dtype)

    def _text(self, what: str, wanted: TensorType, array: Array) -> Array:
        """Return strings as objects for onnxruntime, which would accept any object and print it."""
        if array.dtype.kind in "UT":
            if array.dtype.kind == "U" and not is_text(array):
                raise FeedError(
                    f"{self.model}: {what} has elements that are not valid text", help="give an array of str only"
                )
            return array.astype(object)
        if array.dtype.kind != "O":
            fix = "decode it: np.char.decode(array)" if array.dtype.kind == "S" else "convert it: array.astype(str)"
            self._fail(wanted, array, f"{what} must be string", fix)
        if not are_all_text(array):
            item = next(item for item in array.flat if not isinstance(item, str))
            raise FeedError(
                f"{self.model}: {what} is string, but has the element {item!r:.40} of type {type(item).__name__}",
                help="give an array of str only",
            )
        return array

    def _check_sizes(self, leaves: Sequence[_TensorFeed]) -> None:
        """Check static dims, and that each dim name has one size everywhere."""
        sizes: dict[str, int] = {}
        first: dict[str, _TensorFeed] = {}
        derived: list[tuple[_TensorFeed, int, Dim]] = []
        for leaf in leaves:
            shape = leaf.array.shape
            for axis, name, dim in self._known_dims(leaf.type):
                size = shape[axis]
                if name is not None:
                    if isinstance(dim, Dim) and size < dim.min:
                        self._fail_size(leaf, axis, f"{name}, which is {dim.min} or more")
                    if sizes.setdefault(name, size) != size:
                        self._fail_size(leaf, axis, f"{name}, which is {sizes[name]} in {first[name].what}")
                    first.setdefault(name, leaf)
                elif isinstance(dim, Dim):
                    derived.append((leaf, axis, dim))
                elif dim != size:
                    self._fail_size(leaf, axis, str(dim))
        for leaf, axis, dim in derived:
            if dim.parameters <= sizes.keys() and dim.evaluate(sizes) != leaf.array.shape[axis]:
                self._fail_size(leaf, axis, f"{dim} = {dim.evaluate(sizes)}")

    def _known_dims(self, type_: TensorType) -> list[tuple[int, str | None, Dim | int]]:
        """Return the axis, the name or None, and the dim or its size, of each dim that is not dynamic."""
        dims = self._dims_by_type.get(type_)
        if dims is None:
            shape = type_.shape if type_.shape.is_ranked else ()
            axes = [(axis, dim) for axis, dim in enumerate(shape) if not dim.is_dynamic]
            dims = [(axis, dim.name, int(dim) if dim.is_static else dim) for axis, dim in axes]
            self._dims_by_type[type_] = dims
        return dims

    def _fail_size(self, leaf: _TensorFeed, axis: int, expected: str) -> NoReturn:
        if leaf.is_buffer:
            raise FeedError(
                f"{self.model}: axis {axis} of {leaf.what} is {expected}, but its value is {summary(leaf.array)}",
                operands={"buffer": str(leaf.type), "holds": summary(leaf.array)},
                help="reset it: model.buffers.reset(), use another state: model.state(), or set the buffer",
            )
        fix = f"give an array whose axis {axis} has that size, not {leaf.array.shape[axis]}"
        self._fail(leaf.type, leaf.array, f"axis {axis} of {leaf.what} must be {expected}", fix)

    def _fail(self, wanted: TensorType, array: Array, reason: str, fix: str) -> NoReturn:
        got = summary(array)
        raise FeedError(
            f"{self.model}: {reason}, got {got}",
            operands={"takes": str(wanted), "given": got},
            help=fix,
        )


def _are_pairs(wanted: TensorType, array: Array) -> bool:
    """Return True if an array has complex numbers as pairs of floats along an additional last axis."""
    if not array.ndim or array.shape[-1] != 2 or array.dtype.newbyteorder("=") != wanted.dtype.storage.numpy:
        return False
    return not wanted.shape.is_ranked or array.ndim == wanted.rank + 1


def _accepted(name: str, type_: Type, value: Any) -> _Accepted:
    if not isinstance(type_, TensorType):
        return name, None, None
    if type_.dtype.is_complex:
        return name, type_.dtype.numpy, value.shape[:-1]
    return name, None if type_.dtype is DType.string else value.dtype, value.shape


def summary(value: object) -> str:
    """Return the text of a fed value for errors: `float32[2, 3]`, `[float32[2], float32[3]]`, `None`."""
    if isinstance(value, np.ndarray):
        return f"{_dtype_name(value)}{list(value.shape)}"
    if isinstance(value, (list, tuple)):
        more = [f"and {len(value) - _MAX_LISTED} more"] if len(value) > _MAX_LISTED else []
        return f"[{', '.join([*map(summary, value[:_MAX_LISTED]), *more])}]"
    return "None" if value is None else type(value).__name__


_MAX_LISTED_INPUTS = 20
"""The number of inputs with defaults that errors list."""
_MAX_LISTED = 4
"""The number of elements of a list that errors list."""


def _dtype_name(array: Array) -> str:
    if array.dtype.kind == "S":
        return "bytes"
    try:
        return DType.of(array.dtype).name
    except DTypeError:
        return str(array.dtype)
