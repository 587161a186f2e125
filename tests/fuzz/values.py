"""Random programs on values that have references of their own: complex numbers, wide integers, matrices, packages.

Each subject makes its program of a number, one step after the other, so that fewer steps are the beginning of the same
program. A step is checked on what the graph itself gave as its operands.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType, ops, promotion
from graphcore.errors import GraphcoreError
from tests.fuzz.limit import limited
from tests.fuzz.matrices import matrices
from tests.promotion import test_package_values
from tests.support.peer_dtypes import PEERS
from tests.support.wide import drawn, wrap

Array = np.ndarray[Any, Any]
STEPS = 12
ONE: dict[str, Any] = {"intra_op_num_threads": 1, "inter_op_num_threads": 1}


def failure(subject: str, number: int, steps: int = STEPS) -> tuple[str | None, int]:
    """Return a description of what is wrong with the program of a number, or None, and the number of results
    compared."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            with limited():
                return None, SUBJECTS[subject](random.Random(f"{subject} {number}"), number, steps)
        except KeyboardInterrupt:
            raise
        except GraphcoreError as error:
            return f"{type(error).__name__}: {error.summary}", 0
        except BaseException as error:  # pytest's failures are not Exceptions
            return f"{type(error).__name__}: {str(error)[:600]}", 0


def shrunk(subject: str, number: int) -> int:
    """Return the least number of steps that fail."""
    return next((steps for steps in range(1, STEPS) if failure(subject, number, steps)[0]), STEPS)


# Complex numbers

PARTS = (0.0, -0.0, 1.0, -1.0, 0.5, -2.0, 3.0, 1e-3, 1e4)
_C = np.clongdouble

UNARY: dict[str, tuple[Callable[[Any], Any], Callable[[Array], Any]]] = {
    "neg": (lambda x: -x, np.negative), "abs": (abs, np.abs), "conj": (ops.conj, np.conj), "real": (ops.real, np.real),
    "imag": (ops.imag, np.imag), "angle": (ops.angle, np.angle), "exp": (ops.exp, np.exp), "log": (ops.log, np.log),
    "sqrt": (ops.sqrt, np.sqrt), "sin": (ops.sin, np.sin), "cos": (ops.cos, np.cos), "tan": (ops.tan, np.tan),
    "sinh": (ops.sinh, np.sinh), "cosh": (ops.cosh, np.cosh), "tanh": (ops.tanh, np.tanh),
    "asin": (ops.asin, np.arcsin),
    "acos": (ops.acos, np.arccos), "atan": (ops.atan, np.arctan), "asinh": (ops.asinh, np.arcsinh),
    "acosh": (ops.acosh, np.arccosh), "atanh": (ops.atanh, np.arctanh), "square": (ops.square, np.square),
    "reciprocal": (ops.reciprocal, np.reciprocal), "log2": (ops.log2, np.log2), "log10": (ops.log10, np.log10),
    "log1p": (ops.log1p, np.log1p), "expm1": (ops.expm1, np.expm1),
    "flip": (lambda x: x[::-1], lambda x: x[::-1]), "sum": (lambda x: ops.sum(x, axis=-1), lambda x: x.sum(-1)),
    "prod": (lambda x: ops.prod(x, axis=0), lambda x: x.prod(0)),
    "mean": (lambda x: ops.mean(x, axis=0), lambda x: x.mean(0)),
    "turned": (ops.transpose, np.transpose), "cumsum": (lambda x: ops.cumsum(x, axis=0), lambda x: x.cumsum(0)),
}  # fmt: skip


FROM_ZERO = frozenset("log log2 log10 log1p acosh asinh atanh asin acos atan expm1 tanh sin cos sinh".split())
"""Functions whose errors are of the size of 1/4 where they are near 0."""


def _joined(x: Array, y: Array) -> Array:
    array = np.empty(np.broadcast_shapes(x.shape, y.shape), _C)
    array.real, array.imag = x.real, y.real
    return array


BINARY: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Array, Array], Any]]] = {
    "+": (lambda x, y: x + y, np.add), "-": (lambda x, y: x - y, np.subtract), "*": (lambda x, y: x * y, np.multiply),
    "/": (lambda x, y: x / y, np.divide), "==": (lambda x, y: x == y, np.equal),
    "!=": (lambda x, y: x != y, np.not_equal),
    "@": (lambda x, y: x @ y, np.matmul),
    "where": (lambda x, y: ops.where(ops.real(x) > 0, x, y), lambda x, y: np.where(x.real > 0, x, y)),
    "complex": (lambda x, y: ops.complex(ops.real(x), ops.real(y)), _joined),
    "concat": (lambda x, y: ops.concat([x, y], axis=0), lambda x, y: np.concatenate([x, y], 0)),
}  # fmt: skip


def complex_numbers(rng: random.Random, number: int, steps: int) -> int:
    """Compare expressions of complex numbers with NumPy's in extended precision."""
    random_ = np.random.default_rng(number)
    arrays = []
    for _ in range(rng.randint(1, 3)):
        parts = [random_.choice(PARTS, (3, 3)) if rng.random() < 0.5 else random_.normal(size=(3, 3)) for _ in "ri"]
        kind = rng.choice((np.complex64, np.complex64, np.complex128, np.float32, np.float64))
        value = np.empty((3, 3), np.complex128)
        value.real, value.imag = parts
        arrays.append((value if np.dtype(kind).kind == "c" else value.real).astype(kind))
    rules = rng.choice((promotion.system("max", complex=True), promotion.system("array_api")))
    graph = Graph(
        "complex", {f"x{i}": TensorType(DType.of(a.dtype), ["n", 3]) for i, a in enumerate(arrays)}, promotion=rules
    )
    symbols: list[Symbol] = list(graph.inputs)
    items: list[tuple[int, str, list[int]]] = []
    with graph:
        for _ in range(steps):
            name = rng.choice([*UNARY, *BINARY, *BINARY])
            count = 1 if name in UNARY else 2
            places = [rng.randrange(len(symbols)) for _ in range(count)]
            values = [symbols[p] for p in places]
            if name not in ("==", "!=", "flip", "turned") and any(s.dtype is DType.bool for s in values):
                continue
            if (name in UNARY or name in ("@", "concat")) and any(s.rank != 2 for s in values):
                continue
            try:
                function: Any = UNARY[name][0] if count == 1 else BINARY[name][0]
                symbol = function(*values)
            except GraphcoreError:
                continue  # of shapes that do not fit, and what a system has not
            items.append((len(symbols), name, places))
            symbols.append(symbol)
    graph.output(**{f"y{i}": s for i, s in enumerate(symbols)})
    results = _run(rng, graph, arrays)
    compared = 0
    for at, name, places in items:
        operands = [results[p] for p in places]
        compared += _check_complex(name, operands, results[at], symbols[at])
    return compared


def _check_complex(name: str, operands: Sequence[Array], got: Array, symbol: Symbol) -> int:
    assert got.dtype == symbol.dtype.numpy, f"{name}: {got.dtype}, not {symbol.dtype}"
    function: Any = UNARY[name][1] if name in UNARY else BINARY[name][1]
    exact = {"flip", "turned", "concat", "where", "==", "!=", "conj", "real", "imag", "neg", "complex"}
    if name in exact:
        want = np.asarray(function(*operands))
        assert got.shape == want.shape, f"{name}: {got.shape}, not {want.shape}"
        np.testing.assert_array_equal(got, want.astype(got.dtype), err_msg=f"{name} of {operands}")
        return got.size
    wide = [o.astype(_C if o.dtype.kind == "c" else np.longdouble) for o in operands]
    sizes = [np.abs(o) for o in wide]
    if not all(np.isfinite(o).all() and (s < 20).all() for o, s in zip(wide, sizes, strict=True)):
        return 0
    want = np.asarray(function(*wide))
    assert got.shape == want.shape, f"{name}: {got.shape}, not {want.shape}"
    eps = np.finfo(min((o.dtype for o in (*operands, got) if o.dtype.kind in "fc"), key=lambda d: np.finfo(d).bits)).eps
    scale = np.abs(want)
    if name in ("+", "-", "sum", "mean", "cumsum"):
        scale = np.asarray(function(*sizes)) if name != "-" else sizes[0] + sizes[1]
    elif name in ("@", "prod"):
        scale = np.asarray(function(*sizes))
    elif name in (
        "log",
        "log2",
        "log10",
        "log1p",
        "acosh",
        "asinh",
        "atanh",
        "asin",
        "acos",
        "atan",
        "expm1",
        "tanh",
        "sin",
        "cos",
        "sinh",
    ):
        scale = np.maximum(scale, 0.25)
    elif name == "tan" and operands[0].dtype.kind == "f":
        scale = 1 + scale**2  # by how much the result moves with the last place of the operand
    finite = np.isfinite(want) & (scale > 1e-30)
    wrong = finite & ~(np.abs(got.astype(want.dtype) - want) <= 32 * eps * scale)
    if wrong.any():
        shown = [np.broadcast_to(o, wrong.shape)[wrong][:1] if o.shape == wrong.shape else o for o in operands]
        raise AssertionError(f"{name} of {shown} is {got[wrong][0]}, not {want[wrong][0]}")
    return int(finite.sum())


def _run(rng: random.Random, graph: Graph, arrays: Sequence[Array], **options: Any) -> list[Array]:
    """Return the results by one of the ways to run a graph."""
    way = rng.randrange(4)
    source: Any = graph
    if way == 1:
        source = graph.to_onnx(target="onnx").SerializeToString()
    elif way == 2:
        source = graph.optimize()
    session = gc.InferenceSession(**ONE, optimize="off" if way == 3 else "exact")
    return list(session.load(source).execute(*arrays, **options))


# Integers of any width

_Along = tuple[Callable[[Any], Any], Callable[[Array], Any]]


def _most(x: Symbol, count: int) -> int:
    """Return a count, or the length of the first axis if that is less."""
    return min([count, *(dim.evaluate({"n": 4}) for dim in x.shape[:1])])


ALONG: dict[str, _Along] = {
    "sum": (lambda x: ops.sum(x, axis=0), lambda x: np.add.reduce(x, 0)),
    "prod": (lambda x: ops.prod(x, axis=0), lambda x: np.multiply.reduce(x, 0)),
    "max": (lambda x: ops.max(x, axis=0, keepdims=True), lambda x: x.max(0, keepdims=True)),
    "min": (lambda x: ops.min(x, axis=0, keepdims=True), lambda x: x.min(0, keepdims=True)),
    "argmax": (lambda x: ops.argmax(x, axis=0), lambda x: np.argmax(x, 0)),
    "argmin": (lambda x: ops.argmin(x, axis=0), lambda x: np.argmin(x, 0)),
    "cumsum": (lambda x: ops.cumsum(x, axis=0), lambda x: np.add.accumulate(x, 0)),
    "cumprod": (lambda x: ops.cumprod(x, axis=0), lambda x: np.multiply.accumulate(x, 0)),
    "sort": (lambda x: ops.sort(x, axis=0), lambda x: np.sort(x, 0)),
    "argsort": (lambda x: ops.argsort(x, axis=0), lambda x: np.argsort(x, 0, kind="stable")),
    "down": (lambda x: ops.sort(x, axis=0, descending=True), lambda x: np.sort(x, 0)[::-1]),
    "top": (lambda x: ops.top_k(x, _most(x, 3), axis=0)[0], lambda x: np.sort(x, 0)[::-1][:3]),
    "neg": (lambda x: -x, lambda x: -x), "abs": (abs, np.abs), "not": (lambda x: ~x, lambda x: -x - 1),
    "square": (ops.square, lambda x: x * x), "cube": (lambda x: x**3, lambda x: x**3),
    "sign": (ops.sign, lambda x: (x > 0) * 1 - (x < 0) * 1), "flip": (lambda x: x[::-1], lambda x: x[::-1]),
    "dot": (lambda x: x @ x, lambda x: (x * x).sum()), "tail": (lambda x: x[1:], lambda x: x[1:]),
    "double": (lambda x: ops.concat([x, x]), lambda x: np.concatenate([x, x])),
}  # fmt: skip
PAIRS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[int, int], int]]] = {
    "+": (lambda x, y: x + y, lambda a, b: a + b), "-": (lambda x, y: x - y, lambda a, b: a - b),
    "*": (lambda x, y: x * y, lambda a, b: a * b), "&": (lambda x, y: x & y, lambda a, b: a & b),
    "|": (lambda x, y: x | y, lambda a, b: a | b), "^": (lambda x, y: x ^ y, lambda a, b: a ^ b),
    "//": (lambda x, y: x // y, lambda a, b: a // b if b else 0),
    "%": (lambda x, y: x % y, lambda a, b: a % b if b else 0),
    "<": (lambda x, y: x < y, lambda a, b: int(a < b)), ">=": (lambda x, y: x >= y, lambda a, b: int(a >= b)),
    "==": (lambda x, y: x == y, lambda a, b: int(a == b)), "max": (ops.maximum, max), "min": (ops.minimum, min),
    "where": (lambda x, y: ops.where(x > y, x, y), max),
}  # fmt: skip
_WIDEST = 300
_WIDTHS = (2, 7, 31, 33, 63, 64, 65, 70, 96, 127, 128, 129, 200)


def wide_integers(rng: random.Random, number: int, steps: int) -> int:
    """Compare expressions of integers of up to hundreds of bits with Python's."""
    types = [
        rng.choice((DType.int, DType.uint))(rng.choice((2, 7, 31, 33, 63, 64, 65, 70, 96, 127, 128, 129, 200)))
        for _ in range(3)
    ]
    arrays = [drawn(d, [4], number + i).astype(d.numpy) for i, d in enumerate(types)]
    rules = rng.choice(("allo_hls", "allo_cpp", "max"))
    graph = Graph(
        "wide", {f"x{i}": TensorType(d, [rng.choice((4, "n"))]) for i, d in enumerate(types)}, promotion=rules
    )
    symbols: list[Symbol] = list(graph.inputs)
    items: list[tuple[int, str, list[int], DType | None]] = []
    with graph:
        for _ in range(steps):
            places = [rng.randrange(len(symbols))]
            x, common = symbols[places[0]], None
            name = rng.choice((*ALONG, *PAIRS, *PAIRS, "cast"))
            try:
                if name == "cast" or x.dtype.bits > _WIDEST or not x.dtype.is_integer:
                    name, common = "cast", rng.choice((DType.int, DType.uint))(rng.randint(2, 200))
                    symbol = x.cast(common)
                elif name in ALONG:
                    symbol = ALONG[name][0](x)
                else:
                    places.append(rng.randrange(len(symbols)))
                    common = rng.choice((DType.int, DType.uint))(rng.randint(2, 200))
                    symbol = PAIRS[name][0](x.cast(common), symbols[places[1]].cast(common))
            except GraphcoreError:
                continue
            items.append((len(symbols), name, places, common))
            symbols.append(symbol)
    graph.output(**{f"y{i}": s for i, s in enumerate(symbols)})
    results = _run(rng, graph, arrays, wide="object")
    compared = 0
    for at, name, places, common in items:
        operands = [_whole(results[p]) for p in places]
        if common is not None:
            operands = [_wrapped(o, common) for o in operands]
        if not _is_whole(symbols[at]) or not all(_is_whole(symbols[p]) for p in places):
            continue  # quotients and powers of some systems are floats
        if name in ("//", "%") and common is not None and common.bits > 64 and symbols[at].dtype is not common:
            continue
        want: Any = operands[0]
        if name in ALONG:
            want = ALONG[name][1](operands[0])
        elif name != "cast":
            want = np.frompyfunc(PAIRS[name][1], 2, 1)(*np.broadcast_arrays(*operands))
        want = np.asarray(want, object)
        got, dtype = results[at], symbols[at].dtype
        assert got.dtype == dtype.numpy, f"{name}: {got.dtype}, not {dtype}"
        if dtype.is_integer:
            want = _wrapped(want, dtype)
        shown = f"{name} of {[str(symbols[p].type) for p in places]} as {common}, to {dtype}"
        assert _whole(got).tolist() == want.tolist(), (
            f"{shown}: {_whole(got).tolist()}, not {want.tolist()} of {operands}"
        )
        compared += want.size
    return compared


def _is_whole(symbol: Symbol) -> bool:
    return symbol.dtype.is_integer or symbol.dtype is DType.bool


def _whole(array: Array) -> Array:
    return array.astype(np.int8).astype(object) if array.dtype == bool else array.astype(object)


def _wrapped(array: Array, dtype: DType) -> Array:
    values = np.empty(array.shape, object)
    for place in np.ndindex(array.shape):
        values[place] = wrap(int(array[place]), dtype)
    return values


# Systems of packages


def packages(rng: random.Random, number: int, steps: int) -> int:
    """Compare expressions under the systems of installed packages with the packages."""
    names = [name for name in ("numpy", "torch", "jax") if _is_installed(name)]
    test_package_values.run(PEERS[rng.choice(names)](), number)
    return test_package_values.STEPS


def _is_installed(name: str) -> bool:
    try:
        __import__(name)
    except ImportError:
        return False
    return True


SUBJECTS: dict[str, Callable[[random.Random, int, int], int]] = {
    "complex": complex_numbers, "wide": wide_integers, "packages": packages, "matrices": matrices,
}  # fmt: skip

__all__ = ["STEPS", "SUBJECTS", "failure", "shrunk"]
