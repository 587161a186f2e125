# The types of the control flow ops, which type checkers read in place of those in ops/control.py: what a loop or a
# branch returns has the structure of its state. A test holds the parameters against the functions.

from collections.abc import Callable
from typing import Any, Literal, TypeAlias, TypeVar, TypeVarTuple, overload

from graphcore.ir.symbol import Symbol, TensorLike

_Args = TypeVarTuple("_Args")
_Result = TypeVar("_Result", bound=Symbol | tuple[Symbol, ...] | list[Symbol] | dict[str, Symbol])
_State = TypeVar("_State", bound=tuple[Symbol, ...] | list[Symbol] | dict[str, Symbol])
_Xs = TypeVar("_Xs", bound=tuple[Symbol, ...] | list[Symbol] | dict[str, Symbol])
_Ys = TypeVar("_Ys")
_Nested: TypeAlias = tuple[Any, ...] | list[Any] | dict[str, Any]
_Two: TypeAlias = tuple[TensorLike, TensorLike]
_Three: TypeAlias = tuple[TensorLike, TensorLike, TensorLike]
_Symbols2: TypeAlias = tuple[Symbol, Symbol]
_Symbols3: TypeAlias = tuple[Symbol, Symbol, Symbol]

@overload
def cond(  # type: ignore[overload-overlap]
    pred: TensorLike, then_fn: Callable[[*_Args], _Result], else_fn: Callable[[*_Args], Any], *operands: *_Args
) -> _Result:
    """The results of one of two functions, chosen when the graph runs; the other is not computed."""

@overload
def cond(
    pred: TensorLike, then_fn: Callable[[*_Args], TensorLike], else_fn: Callable[[*_Args], Any], *operands: *_Args
) -> Symbol: ...
@overload
def cond(pred: TensorLike, then_fn: Callable[..., Any], else_fn: Callable[..., Any], *operands: Any) -> Any: ...

# Overloads that take the same state have functions of the same type: else mypy finds a lambda ambiguous, and infers
# Any for the result.

@overload
def while_loop(
    cond_fn: Callable[[Symbol], TensorLike], body_fn: Callable[[Symbol], TensorLike], init: TensorLike
) -> Symbol:
    """The last state of a loop that runs as long as a condition on its state holds."""

@overload
def while_loop(cond_fn: Callable[..., TensorLike], body_fn: Callable[..., Any], init: _Two) -> _Symbols2: ...
@overload
def while_loop(cond_fn: Callable[..., TensorLike], body_fn: Callable[..., Any], init: _Three) -> _Symbols3: ...
@overload
def while_loop(
    cond_fn: Callable[..., TensorLike], body_fn: Callable[..., Any], init: tuple[TensorLike, ...]
) -> tuple[Symbol, ...]: ...
@overload
def while_loop(cond_fn: Callable[..., TensorLike], body_fn: Callable[..., Any], init: _State) -> _State: ...
@overload
def while_loop(cond_fn: Callable[..., TensorLike], body_fn: Callable[..., Any], init: _Nested) -> Any: ...
@overload
def for_loop(trip_count: TensorLike, body_fn: Callable[[Symbol, Symbol], TensorLike], init: TensorLike) -> Symbol:
    """The last state of a loop with a number of iterations."""

@overload
def for_loop(trip_count: TensorLike, body_fn: Callable[..., Any], init: _Two) -> _Symbols2: ...
@overload
def for_loop(trip_count: TensorLike, body_fn: Callable[..., Any], init: _Three) -> _Symbols3: ...
@overload
def for_loop(
    trip_count: TensorLike, body_fn: Callable[..., Any], init: tuple[TensorLike, ...]
) -> tuple[Symbol, ...]: ...
@overload
def for_loop(trip_count: TensorLike, body_fn: Callable[..., Any], init: _State) -> _State: ...
@overload
def for_loop(
    trip_count: TensorLike,
    body_fn: Callable[[Symbol, Symbol], tuple[TensorLike, _Ys]],
    init: TensorLike,
    *,
    collect: Literal[True],
) -> tuple[Symbol, _Ys]: ...
@overload
def for_loop(
    trip_count: TensorLike, body_fn: Callable[..., tuple[Any, _Ys]], init: _Two, *, collect: Literal[True]
) -> tuple[_Symbols2, _Ys]: ...
@overload
def for_loop(
    trip_count: TensorLike, body_fn: Callable[..., tuple[Any, _Ys]], init: _Three, *, collect: Literal[True]
) -> tuple[_Symbols3, _Ys]: ...
@overload
def for_loop(
    trip_count: TensorLike,
    body_fn: Callable[..., tuple[Any, _Ys]],
    init: tuple[TensorLike, ...],
    *,
    collect: Literal[True],
) -> tuple[tuple[Symbol, ...], _Ys]: ...
@overload
def for_loop(
    trip_count: TensorLike, body_fn: Callable[..., tuple[Any, _Ys]], init: _State, *, collect: Literal[True]
) -> tuple[_State, _Ys]: ...
@overload
def for_loop(
    trip_count: TensorLike, body_fn: Callable[[Symbol], tuple[None, _Ys]], init: None = None, *, collect: Literal[True]
) -> tuple[None, _Ys]: ...
@overload
def for_loop(
    trip_count: TensorLike, body_fn: Callable[..., Any], init: _Nested | None = None, *, collect: bool = False
) -> Any: ...
@overload
def scan(
    body_fn: Callable[[Symbol, Symbol], tuple[TensorLike, _Ys]],
    init: TensorLike,
    xs: TensorLike,
    *,
    axis: int = 0,
    reverse: bool = False,
    out_axis: int = 0,
) -> tuple[Symbol, _Ys]:
    """A function applied along an axis, with a state that is passed from each position to the next."""

@overload
def scan(
    body_fn: Callable[[_State, Symbol], tuple[Any, _Ys]],
    init: _State,
    xs: TensorLike,
    *,
    axis: int = 0,
    reverse: bool = False,
    out_axis: int = 0,
) -> tuple[_State, _Ys]: ...
@overload
def scan(
    body_fn: Callable[[Symbol, _Xs], tuple[TensorLike, _Ys]],
    init: TensorLike,
    xs: _Xs,
    *,
    axis: int = 0,
    reverse: bool = False,
    out_axis: int = 0,
) -> tuple[Symbol, _Ys]: ...
@overload
def scan(
    body_fn: Callable[[_State, _Xs], tuple[Any, _Ys]],
    init: _State,
    xs: _Xs,
    *,
    axis: int = 0,
    reverse: bool = False,
    out_axis: int = 0,
) -> tuple[_State, _Ys]: ...
@overload
def scan(
    body_fn: Callable[[None, Symbol], tuple[None, _Ys]],
    init: None,
    xs: TensorLike,
    *,
    axis: int = 0,
    reverse: bool = False,
    out_axis: int = 0,
) -> tuple[None, _Ys]: ...
@overload
def scan(
    body_fn: Callable[[None, _Xs], tuple[None, _Ys]],
    init: None,
    xs: _Xs,
    *,
    axis: int = 0,
    reverse: bool = False,
    out_axis: int = 0,
) -> tuple[None, _Ys]: ...
@overload
def scan(
    body_fn: Callable[..., Any],
    init: _Nested | None,
    xs: Any,
    *,
    axis: int = 0,
    reverse: bool = False,
    out_axis: int = 0,
) -> Any: ...
@overload
def scan(
    body_fn: Callable[..., Any],
    init: TensorLike,
    xs: _Nested,
    *,
    axis: int = 0,
    reverse: bool = False,
    out_axis: int = 0,
) -> Any: ...
