"""The eager tensor of a promotion system: values with a dtype, which may be only a default."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from graphcore.arrays.eager_array import EagerArray, OutOfBounds
from graphcore.build.declare import REGISTRY, register_eager
from graphcore.build.operands import graph_of
from graphcore.errors import DTypeError, GraphError, PromotionError, ShapeError
from graphcore.ir.literals import array_of, checked_cast, holds_numpy, python_dtype
from graphcore.ir.state.attaching import attach
from graphcore.ir.symbol import Symbol, TensorMethods
from graphcore.promotion import PromotionSystem, system
from graphcore.promotion.rules import NoPromotion, Scalar, check_literal
from graphcore.runtime.tracing.dispatch import Eager, call_with, printed, run, split_operands
from graphcore.support.escaping import method_hint
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import DimLike, TensorType, Type

Values = np.ndarray[Any, Any]


class Tensor(EagerArray, TensorMethods):
    """An eager array that computes by a promotion system. Made by `tensor`, by ops on Tensors, and by `jit`.

    Python's operators, the methods of Symbol and the functions of `ops` take Tensors, together with NumPy arrays, whose
    dtypes are known, and Python numbers. They return Tensors with the result of a graph of that system, which is traced
    once for each signature. Tensors are immutable, and have no hash, because `==` compares elements.
    """

    __slots__ = ("_type", "promotion")

    _type: _TensorKind
    promotion: PromotionSystem
    """The promotion system."""

    if TYPE_CHECKING:

        def __iter__(self) -> Iterator[Tensor]: ...
        def __array_namespace__(self, /, *, api_version: str | None = None) -> Any: ...
        def __array_ufunc__(self, ufunc: Any, how: str, /, *inputs: Any, **options: Any) -> Any: ...

    def __init__(self, *arguments: object, **named: object) -> None:
        raise GraphError(
            "Tensor(): a Tensor is not created by its class", help="call gc.tensor(value, dtype, promotion=...)"
        )

    # Attributes

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self._type.dtype

    @property
    def ambiguous(self) -> bool:
        """Whether the dtype is only a default, which a known dtype overrides."""
        return self._type.ambiguous

    @property
    def rank(self) -> int:
        """The number of axes."""
        return self.ndim

    @property
    def type(self) -> TensorType:
        """The type of a Symbol with these values."""
        return TensorType(self.dtype, self.shape, ambiguous=self.ambiguous)

    @property
    def T(self) -> Tensor:  # noqa: N802 - NumPy's name
        """The matrix with rows and columns exchanged.

        Raises:
            ShapeError: For other ranks.
        """
        return at_once(_property, (self, "T"), {})  # type: ignore[no-any-return]

    @property
    def mT(self) -> Tensor:  # noqa: N802 - the array API's name
        """The last two axes exchanged.

        Raises:
            ShapeError: Below rank 2.
        """
        return at_once(_property, (self, "mT"), {})  # type: ignore[no-any-return]

    @property
    def real(self) -> Tensor:
        """The real part of complex numbers; other numbers unchanged."""
        return at_once(_property, (self, "real"), {})  # type: ignore[no-any-return]

    @property
    def imag(self) -> Tensor:
        """The imaginary part of complex numbers, zeros for other numbers."""
        return at_once(_property, (self, "imag"), {})  # type: ignore[no-any-return]

    @property
    def bits(self) -> TensorBits:
        """The bits of integers: `x.bits[3]` is a bool, `x.bits[7:4]` those from 7 down to 4, both included."""
        return TensorBits(self)

    # Values

    def numpy(self) -> Values:
        """Return the values as a NumPy array that shares their memory and cannot be written to.

        Its dtype is `dtype.numpy`: of index uint64, of tensor_float32 float32, of more than 64 bits Python integers.
        """
        return self.__array__()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Values:
        if copy:
            return np.array(self._data, dtype=dtype)
        view = self._data.view()
        view.flags.writeable = False
        return np.asarray(view, dtype=dtype) if copy is None else np.array(view, dtype=dtype, copy=False)

    def item(self) -> Any:
        """Return the only element as a Python number or text.

        Raises:
            ShapeError: For another number of elements.
        """
        if self.size != 1:
            raise ShapeError(
                f"item: a Tensor of shape {list(self.shape)} has {self.size} elements",
                help="take one: x[0].item(), or all: x.numpy().tolist()",
            )
        value = self._data.reshape(())[()]
        return float(value) if self.dtype.is_float else value.item() if isinstance(value, np.generic) else value

    def tolist(self) -> Any:
        """Return the values as nested lists of Python numbers."""
        return (self._data.astype(np.float64) if self.dtype.is_float else self._data).tolist()

    # Elements

    def __getitem__(self, key: Any, /) -> Tensor:
        """Return elements as a Symbol gives them; integers, slices, None and `...` need no graph."""
        entries = key if isinstance(key, tuple) else (key,)
        if not all(entry is None or entry is ... or type(entry) in (int, slice) for entry in entries):
            return at_once(_subscript, (self, key), {})  # type: ignore[no-any-return]
        if any(type(e) is slice and not all(type(b) in (int, type(None)) for b in _bounds(e)) for e in entries):
            return at_once(_subscript, (self, key), {})  # type: ignore[no-any-return]
        try:
            return _new_tensor(np.asarray(self._data[key]), self._type, self.promotion)
        except (IndexError, ValueError) as error:
            raise OutOfBounds(f"getitem: {error}", operands={"x": self}, help="use an index within the shape") from None

    def __setitem__(self, key: object, value: object, /) -> None:
        raise GraphError(
            "setitem: a Tensor is immutable", operands={"x": self}, help="use ops.where(mask, value, x), a new Tensor"
        )

    def __contains__(self, item: object, /) -> bool:
        return bool((self._data == (item._data if isinstance(item, EagerArray) else item)).any())

    # Text

    def __repr__(self) -> str:
        values = np.array2string(self._data, separator=", ", prefix="Tensor(")
        return f"Tensor({values}, dtype={self._type}, promotion={self.promotion})"

    def __str__(self) -> str:
        """The publication's print under "anvil", otherwise `repr`."""
        return printed(self._data, str(self.dtype)) if self.promotion.name == "anvil" else repr(self)

    def _describe(self) -> tuple[str, str, str]:
        return "", f"{self._type}{list(self.shape)}", ""

    def __reduce__(self) -> tuple[Any, ...]:
        return _new_tensor, (self._data, self._type, self.promotion)

    def __copy__(self) -> Tensor:
        return self

    def __deepcopy__(self, memo: object) -> Tensor:
        return self

    def __bool__(self, /) -> bool:
        return bool(self._scalar("bool"))

    # Operators and methods are those of Symbol. `_attach_operators` attaches what Python looks up on the class.

    if not TYPE_CHECKING:  # with it, type checkers would accept every name

        def __getattr__(self, name: str) -> Any:
            """Return a method of Symbol that computes eagerly. Raises `AttributeError`."""
            method = None if name.startswith("_") else getattr(Symbol, name, None)
            if not callable(method):
                hint = method_hint(name, REGISTRY, (Tensor, Symbol))
                raise AttributeError(f"a Tensor has no attribute {name!r}{hint and f'; {hint}'}", name=name)
            return functools.partial(_method, method, self)


class TensorBits:
    """The bits of a Tensor of integers, as `x.bits` has them; see `Symbol.bits`."""

    __slots__ = ("_of",)

    def __init__(self, of: Tensor) -> None:
        self._of = of

    def __getitem__(self, place: Any) -> Tensor:
        return at_once(_bits, (self._of, place), {})  # type: ignore[no-any-return]

    def __setitem__(self, place: Any, value: Any) -> None:
        raise GraphError(
            "bits: a Tensor is immutable",
            operands={"x": self._of},
            help="use x.with_bits(high, low, value), a new Tensor",
        )

    def __repr__(self) -> str:
        return f"<bits of {self._of!r}>"


class _TensorKind(NamedTuple):
    """The part of a type other than the shape; printed as `int32?`."""

    dtype: DType
    ambiguous: bool = False

    def __str__(self) -> str:
        return f"{self.dtype}{'?' if self.ambiguous else ''}"


_put = {slot: Tensor.__dict__[slot].__set__ for slot in Tensor.__slots__}
_put_data = EagerArray.__dict__["_data"].__set__


def _new_tensor(values: Values, kind: _TensorKind, promotion: PromotionSystem) -> Tensor:
    tensor: Tensor = object.__new__(Tensor)
    _put_data(tensor, values)
    _put["_type"](tensor, kind)
    _put["promotion"](tensor, promotion)
    return tensor


def tensor(
    value: Any, dtype: object = None, *, promotion: str | PromotionSystem = "max", ambiguous: bool = False
) -> Tensor:
    """Make a Tensor of values, which are copied.

    Args:
        value: A NumPy array, a Tensor or another eager array, a Python number or text, or nested lists of them, of any
            shape.
        dtype: A DType, anything `DType.of` takes or the publication's spelling; by default the array's own, or what the
            system makes of Python numbers.
        promotion: A system's name or a `PromotionSystem`.
        ambiguous: The dtype is only a default, in "anvil" and "kernel_float". A Tensor without a `dtype` also keeps
            whether its own is ambiguous.

    Raises:
        DTypeError: For values that are not tensors, and for values that `dtype` cannot represent.
        PromotionError: For an unknown system, and for a dtype that the system does not have.
        GraphError: For `ambiguous` under another system.

    Example:
        x = gc.tensor([1, 2], "i16", promotion="anvil")
        print(x * 3)
    """
    rules = system(promotion)
    if ambiguous and not rules.knows_ambiguous:
        raise GraphError(
            f"tensor: promotion system {rules} has no ambiguous dtypes",
            help="leave out ambiguous, or give promotion='anvil' or 'kernel_float'",
        )
    wanted = None if dtype is None else rules.dtype_of(dtype)
    if isinstance(value, EagerArray):
        own = value.dtype
        if isinstance(value, Tensor):
            ambiguous = ambiguous or (wanted is None and value.ambiguous and rules.knows_ambiguous)
        array = value._data
    else:
        array, own = _array_of(value, wanted)
    if wanted is None:
        is_given = isinstance(value, EagerArray) or holds_numpy(value)
        wanted = rules.aliases.get(own, own) if is_given else python_dtype(array, own, rules)
    if wanted is not own:
        array = checked_cast(array, own, wanted, "tensor")
    return _new_tensor(np.array(array), _TensorKind(wanted, ambiguous), rules)


def _array_of(value: Any, wanted: DType | None) -> tuple[Values, DType]:
    try:
        return array_of(value, wanted)
    except DTypeError as error:
        raise DTypeError(f"tensor: {error.summary.removeprefix('constant: ')}", help=error.help) from None


def of_symbol(values: Values, type_: Type, promotion: PromotionSystem) -> Any:
    """Return the values of a Symbol as a Tensor; those of lists and optionals unchanged."""
    if not isinstance(type_, TensorType):
        return values
    return _new_tensor(np.asarray(values), _TensorKind(type_.dtype, type_.ambiguous), promotion)


def guessed(value: Scalar, promotion: PromotionSystem, op: str) -> Tensor:
    """Return a Python number as a Tensor of its default dtype. Raises `DTypeError`."""
    dtype = promotion.default_dtype([value])
    try:
        check_literal(value, dtype)
    except NoPromotion as refusal:
        raise DTypeError(
            f"{op}: {refusal.reason}, the dtype of such a Python number in {promotion}",
            help="give a NumPy array of the dtype that is meant",
        ) from None
    return _new_tensor(np.asarray(value, dtype.numpy), _TensorKind(dtype, True), promotion)


# Computing


@functools.cache
def _eager(promotion: PromotionSystem) -> Eager:
    """Return the eager evaluator of the Tensors of a promotion system."""
    return Eager(
        promotion,
        lambda value: value._type if type(value) is Tensor else _TensorKind(_dtype_of(value)),
        _input_type,
        lambda values, type_: of_symbol(values, type_, promotion),
    )


def _input_type(kind: _TensorKind, shape: Iterable[DimLike]) -> TensorType:
    return TensorType(kind.dtype, shape, ambiguous=kind.ambiguous)


def _dtype_of(value: Any) -> DType:
    return value.dtype if isinstance(value, EagerArray) else DType.of(value.dtype)


def at_once(body: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Return the results of a function over Symbols for arguments that include a Tensor.

    With a Symbol among them it builds in that one's graph, where Tensors are constants. Raises `PromotionError` for
    Tensors of different systems, `DTypeError` for arguments that are neither operands nor hashable.
    """
    leaves: list[Any] = []
    structure = split_operands(body, arguments, named, leaves, _is_operand)
    operands = [np.asarray(value) if isinstance(value, np.generic) else value for value in leaves]
    if any(isinstance(value, Symbol) for value in operands):
        graph = graph_of(body.__name__, operands)
        role = f"an operand of {body.__name__}"
        symbols = [v if isinstance(v, Symbol) else graph.build.operand(v, body.__name__, role) for v in operands]
        return call_with(body, structure, symbols)
    return run(_eager(common_system(body.__name__, operands)), body, operands, structure)


def common_system(op: str, values: Iterable[Any]) -> PromotionSystem:
    """Return the promotion system of the Tensors among values. Raises `PromotionError` if there are several."""
    tensors = [value for value in values if type(value) is Tensor]
    first = tensors[0].promotion
    for other in tensors[1:]:
        if other.promotion is not first:
            raise PromotionError(
                f"{op}: Tensors must be of one promotion system, got {first} and {other.promotion}",
                operands={"x": tensors[0], "y": other},
                help=f"convert one: gc.tensor(y, promotion={first.name!r})",
            )
    return first


def _is_operand(value: object) -> bool:
    return isinstance(value, (EagerArray, Symbol, np.ndarray, np.generic))


def _method(function: Callable[..., Any], self: Tensor, /, *arguments: Any, **named: Any) -> Any:
    return at_once(function, (self, *arguments), named)


def _subscript(x: Symbol, key: Any) -> Symbol:
    return x[key]


def _property(x: Symbol, name: str) -> Symbol:
    value: Symbol = getattr(x, name)
    return value


def _bits(x: Symbol, place: Any) -> Symbol:
    return x.bits[place]


def _bounds(part: slice) -> tuple[Any, Any, Any]:
    return part.start, part.stop, part.step


_OF_ONE = ("abs", "ceil", "floor", "invert", "neg", "pos", "round", "trunc")
_OF_TWO = (
    "add", "and", "divmod", "floordiv", "lshift", "matmul", "mod", "mul", "or", "pow", "rshift", "sub", "truediv", "xor"
)  # fmt: skip
_COMPARISONS = ("eq", "ge", "gt", "le", "lt", "ne")
_PROTOCOLS = ("__array_function__", "__array_namespace__", "__array_ufunc__")
_OTHERS = (EagerArray, Symbol, np.ndarray, np.generic, bool, int, float, complex, str)


def _attach_operators() -> None:
    """Give Tensor the operators that Symbol has."""
    attach()  # of Symbol
    names = [f"__{n}__" for n in (*_OF_ONE, *_OF_TWO, *_COMPARISONS)] + [f"__r{n}__" for n in _OF_TWO]
    for name in names:
        if name in Symbol.__dict__:
            setattr(Tensor, name, _operator(name, Symbol.__dict__[name]))
    for name in _PROTOCOLS:
        setattr(Tensor, name, Symbol.__dict__[name])


def _operator(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(self: Tensor, /, *others: Any) -> Any:
        if not all(isinstance(other, _OTHERS) for other in others):
            return NotImplemented
        return at_once(function, (self, *others), {})

    call.__name__, call.__qualname__ = name, f"Tensor.{name}"
    return call


_attach_operators()
register_eager(Tensor, at_once)
