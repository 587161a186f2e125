"""Random expressions under `numpy`, `jax` and `torch`: the dtypes and values that the package gives, step by step."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType
from graphcore.errors import GraphcoreError
from tests.promotion.test_packages import made_by, wanted
from tests.support.peer_dtypes import COMPLEX, DTYPES, FLOAT8, NO_KERNEL, PEERS, REFUSED, Peer

pytestmark = pytest.mark.filterwarnings("ignore::graphcore.errors.LossyCastWarning")

Array = np.ndarray[Any, Any]

OF_ONE_SHAPE = ("sort", "cumsum", "argmax", "var", "concat", "where", "min", "max", "sum", "prod", "mean")

STEPS = 14
PROGRAMS = {"numpy": 80, "jax": 10, "torch": 60}
OF_COMPLEX = {"numpy": 20, "jax": 5, "torch": 30}
"""Programs with complex numbers among floats and integers, by package."""

ONE = (
    "negate", "abs", "sign", "square", "floor", "trunc", "sqrt", "exp", "tanh", "is_nan", "bitwise_not", "logical_not",
    "sum", "prod", "cumsum", "mean", "var", "max", "min", "argmax", "sort",
)  # fmt: skip
TWO = (
    "add", "sub", "mul", "div", "floor_div", "mod", "pow", "maximum", "minimum", "less", "equal", "bitwise_and",
    "left_shift", "logical_and", "atan2", "where", "concat",
)  # fmt: skip
OF_LITERALS = tuple(set(TWO) - {"concat", "atan2", "logical_and", "maximum", "minimum"})
COMPLEX_ONE = (
    "negate", "abs", "sign", "square", "sqrt", "exp", "tanh", "is_nan", "logical_not", "sum", "prod", "cumsum", "mean",
    "var", "real", "imag", "conj", "angle", "max", "floor", "sort",
)  # fmt: skip
COMPLEX_TWO = (
    "add", "sub", "mul", "div", "pow", "equal", "logical_and", "where", "concat", "less", "maximum", "bitwise_and",
)  # fmt: skip
NUMBERS: tuple[bool | int | float, ...] = (True, False, 0, 1, 2, 3, -1, 7, 100, 0.5, 2.0, -1.25)

# The library rounds such functions as docs/numbers.md says, and sums in another order than the package.
NOT_EXACT = {
    "sqrt": 2, "exp": 8, "tanh": 8, "atan2": 8, "mean": 8, "var": 16, "sum": 16, "prod": 16, "cumsum": 16, "div": 1,
    "pow": 8, "sign": 2, "abs": 2, "square": 2, "mul": 2, "angle": 2,
}  # fmt: skip


STEP = {
    "float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-22, "complex64": 2.0**-20, "float64": 2.0**-40,
    "complex128": 2.0**-40,
}  # fmt: skip


@dataclass(frozen=True)
class Step:
    """An op and its operands: positions in the pool, or numbers."""

    op: str
    operands: tuple[tuple[str, Any], ...]


def value_of(peer: Peer, value: Any) -> Array:
    """Return a package's array as one of NumPy, in which bfloat16 and the like are float32."""
    if peer.name == "torch":
        value = value.detach().resolve_conj()
        if str(value.dtype) in ("torch.bfloat16", "torch.float8_e4m3fn", "torch.float8_e5m2"):
            value = value.float()
        return np.asarray(value.numpy())
    return np.asarray(value)


def exact(array: Array) -> Array:
    """Return floats as float64, and everything else as it is."""
    return array if array.dtype.kind in "biuc" else array.astype(np.float64)


def tolerance(op: str, dtype: str) -> float:
    steps = NOT_EXACT.get(op, 0)
    return steps * STEP.get(dtype, 0.0)


def inputs_of(rng: random.Random, package: str, has_complex: bool) -> dict[str, Array]:
    """Return arrays of some dtypes, and one without axes."""
    names = [n for n in DTYPES[package] if n not in (*FLOAT8, "int4", "uint4", *COMPLEX)]
    if package == "torch":
        names = [n for n in names if n not in ("uint16", "uint32", "uint64")]
    arrays = {}
    for i in range(5):
        is_complex = has_complex and (i in (0, 4) or rng.random() < 0.3)
        dtype = DType.of(rng.choice(COMPLEX if is_complex else names))
        shape = () if i == 4 else (3,)
        low, high = (0, 2) if dtype is DType.bool else (-5, 6) if dtype.is_signed else (0, 9)
        whole = np.array([rng.randrange(low, high) for _ in range(3)]).reshape(3)[: 1 if i == 4 else 3].reshape(shape)
        rest = rng.choice([0.5j, -1j, 2j]) if dtype.is_complex else rng.choice([0.0, 0.25]) * dtype.is_float
        arrays[f"x{i}"] = (whole + rest).astype(dtype.numpy)
    return arrays


def complex_step_of(rng: random.Random, package: str, count: int) -> Step:
    def place() -> tuple[str, Any]:
        return "at", rng.randrange(count)

    if rng.random() < 0.5:
        return Step(rng.choice(COMPLEX_ONE), (place(),))
    op = rng.choice(COMPLEX_TWO)
    if op == "pow":
        return Step(op, (place(), ("number", rng.choice((2, 3, 1 + 1j)))))
    if op in OF_LITERALS and rng.random() < 0.4:
        operands = [place(), ("number", rng.choice((1, 0.5, 2j, 1 - 1j)))]
        rng.shuffle(operands)
        return Step(op, tuple(operands))
    return Step(op, (place(), place()))


def step_of(rng: random.Random, package: str, count: int) -> Step:
    def place() -> tuple[str, Any]:
        return "at", rng.randrange(count)

    if rng.random() < 0.3:
        op = rng.choice(ONE)
        return Step("abs" if (package, op) == ("torch", "sign") else op, (place(),))  # its sign of NaN is 0
    op = rng.choice(TWO)
    if op in ("floor_div", "mod", "pow"):  # a divisor of 0 and a negative power are not the packages' alike
        return Step(op, (place(), ("number", rng.choice((1, 2, 3, 0.25)))))
    if op == "left_shift":
        return Step(op, (place(), ("number", rng.choice((0, 1, 3)))))
    if op in OF_LITERALS and rng.random() < 0.4:
        operands = [place(), ("number", rng.choice(NUMBERS))]
        if package != "torch" or op in ("add", "sub", "mul", "div", "less", "equal", "bitwise_and"):
            rng.shuffle(operands)
        return Step(op, tuple(operands))
    return Step(op, (place(), place()))


def is_asked(peer: Peer, op: str, operands: list[Any]) -> bool:
    """Return True if a package answers as it would for any values and shapes."""
    shapes = [np.shape(value_of(peer, v)) for v in operands if type(v) not in (bool, int, float, complex)]
    # Of no axes there is no reduction here, whose result would not be weak in JAX.
    if op in OF_ONE_SHAPE and shapes != [(3,)] * len(shapes):
        return False
    return all(len(shape) < 2 and shape in ((), (3,)) for shape in shapes)


def run(peer: Peer, seed: int, has_complex: bool = False) -> None:
    rng = random.Random(seed)
    arrays = inputs_of(rng, peer.name, has_complex)
    graph = Graph("random", {n: TensorType(DType.of(a.dtype), a.shape) for n, a in arrays.items()}, promotion=peer.name)
    symbols: list[Symbol] = [graph[name] for name in arrays]
    values: list[Any] = [peer.from_numpy(array) for array in arrays.values()]
    items: list[tuple[int, str, Step]] = []
    for _ in range(STEPS):
        step = (complex_step_of if has_complex else step_of)(rng, peer.name, len(values))
        theirs = [values[v] if kind == "at" else v for kind, v in step.operands]
        if not is_asked(peer, step.op, theirs):
            continue
        arguments = [symbols[v] if kind == "at" else v for kind, v in step.operands]
        shown = ", ".join(str(g.type) if isinstance(g, Symbol) else repr(g) for g in arguments)
        function: Callable[..., Any] = {**peer.one, **peer.two}[step.op]
        cell = peer.dtype_or_error(function, *theirs)
        if cell == NO_KERNEL or (cell == REFUSED and "string" in shown):
            continue
        try:
            symbol = made_by(graph, step.op, *arguments)
        except GraphcoreError as error:
            if "cannot be held" in str(error) and (peer.name != "numpy" or step.op == "where"):
                continue  # JAX, PyTorch and numpy.where wrap such numbers
            kinds = [g.dtype.name if isinstance(g, Symbol) else "2j" * (type(g) is complex) for g in arguments]
            is_half = "complex32" in str(error)
            if cell != REFUSED and not is_half and wanted(peer.name, step.op, cell, *kinds) != REFUSED:
                pytest.fail(f"{seed}: {step.op}({shown}) is {cell} in {peer.name}: {error}")
            continue
        named = symbol.dtype.name + "?" * symbol.ambiguous
        assert named == (cell.rstrip("?") if cell.startswith("bool") else cell), f"{seed}: {step.op}({shown})"
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            values.append(function(*theirs))
        items.append((len(symbols), f"{seed}: {step.op}({shown})", step))
        symbols.append(symbol)
    graph.output(**{f"y{i}": symbol for i, symbol in enumerate(symbols)})
    results = [np.asarray(result) for result in gc.InferenceSession().load(graph)(**arrays)]
    for i, text, step in items:
        # The package is given what the library made, so that what one step rounds is not held against the next.
        if any(kind == "at" and symbols[v].ambiguous for kind, v in step.operands):
            continue
        theirs = [peer.from_numpy(results[v]) if kind == "at" else v for kind, v in step.operands]
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            want = {**peer.one, **peer.two}[step.op](*theirs)
        compare(peer, text, results[i], value_of(peer, want))


def compare(peer: Peer, text: str, got: Array, want: Array) -> None:
    op = text.partition(": ")[2].partition("(")[0]
    assert got.shape == want.shape, text
    a, b = exact(got), exact(want)
    if "c" in (a.dtype.kind, b.dtype.kind):
        compare_complex(text, a, b, tolerance(op, DType.of(got.dtype).name))
        return
    with np.errstate(all="ignore"):
        near = np.abs(a.astype(np.float64) - b.astype(np.float64)) <= tolerance(
            op, DType.of(got.dtype).name
        ) * np.maximum(1, np.abs(b))
    same = (a == b) | near | ((a != a) & (b != b))
    assert same.all(), f"{text}: {got}, and {want} in {peer.name}"


def compare_complex(text: str, got: Array, want: Array, steps: float) -> None:
    """Compare finite complex numbers: the packages do not agree with each other on the others."""
    finite = np.isfinite(want) & (np.abs(want) < 1e15)
    with np.errstate(all="ignore"):
        near = np.abs(got - want) <= steps * np.maximum(1, np.abs(want))
    assert ((got == want) | near | ~finite).all(), f"{text}: {got}, and {want} in the package"


@pytest.mark.parametrize("package", PEERS)
def test_random_expressions_of_complex_numbers_have_the_packages_dtypes_and_values(package: str) -> None:
    pytest.importorskip(package)
    peer = PEERS[package]()
    for seed in range(OF_COMPLEX[package]):
        run(peer, seed, has_complex=True)


@pytest.mark.parametrize("package", PEERS)
def test_random_expressions_have_the_packages_dtypes_and_values(package: str) -> None:
    pytest.importorskip(package)
    peer = PEERS[package]()
    for seed in range(PROGRAMS[package]):
        run(peer, seed)
