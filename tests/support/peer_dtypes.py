"""The result dtypes of NumPy, JAX and PyTorch, from the installed packages.

`PYTHONPATH=. python -m tests.support.peer_dtypes numpy > tests/promotion/matrices/numpy.csv` (or `jax`, `torch`) writes
the table of a package, and `jax_x32` or `jax_strict` that of JAX with an option. A row is a call, such as
`add,int8,x`; `x` is an array of the dtype of the column, `x[]` one without axes.
"""

from __future__ import annotations

import csv
import importlib
import operator
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphcore import DType

Functions = Mapping[str, Callable[..., Any]]
"""The function of a package for each op of the library."""

REFUSED = "-"
NO_KERNEL = "."
"""The rule has a dtype, or would have one: nothing computes it on the CPU."""
LITERALS: dict[str, bool | int | float | complex] = {"True": True, "2": 2, "2.5": 2.5, "2j": 2j}

INTEGERS = tuple("int8 int16 int32 int64 uint8 uint16 uint32 uint64".split())
FLOAT8 = ("float8_e4m3fn", "float8_e5m2")
FLOATS = ("float32", "float64")
COMPLEX = ("complex64", "complex128")
DTYPES = {
    "numpy": ("bool", *INTEGERS, "float16", *FLOATS, *COMPLEX),
    "jax": ("bool", "int4", *INTEGERS[:4], "uint4", *INTEGERS[4:], *FLOAT8, "float16", "bfloat16", *FLOATS, *COMPLEX),
    "torch": ("bool", *INTEGERS, *FLOAT8, "float16", "bfloat16", *FLOATS, *COMPLEX),
}
DTYPES["jax_strict"] = DTYPES["jax"]
DTYPES["jax_x32"] = tuple(n for n in DTYPES["jax"] if n not in ("int64", "uint64", "float64", "complex128"))
"""The dtypes that the package and the library know."""
NARROW = tuple("int2 uint2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0 float4_e2m1".split())
"""Narrow dtypes that JAX and the library know too; those of PyTorch have no common dtype with others."""

NO_LITERALS = {
    "numpy": {"matmul", "outer", "concat", "clip"},
    "jax": {"matmul", "outer", "concat"},
    "torch": {"matmul", "outer", "concat", "clip", "maximum", "minimum", "logical_and", "atan2"},
}
"""Functions that take no Python numbers, or not on both sides."""

ONE = (
    "negate=negative positive abs sign square floor ceil trunc round sqrt exp log sin tanh is_nan=isnan bitwise_not "
    "logical_not sum prod mean any all count_nonzero argmax argsort real imag conj angle"
)
TWO = (
    "add sub=subtract mul=multiply div=true_divide floor_div=floor_divide mod=remainder pow maximum minimum "
    "bitwise_and logical_and matmul outer"
)
"""Functions that NumPy, JAX and PyTorch share: the op of the library, and after `=` another name in the packages."""
ARRAY_API = "cumsum cumprod var stdev=std max min sort", "less equal left_shift atan2=arctan2"
"""Functions of one and of two operands that NumPy and JAX share."""


@dataclass(frozen=True)
class Peer:
    """A package: its functions, how arrays are created in it, and the dtypes of its results."""

    name: str
    release: str
    one: Functions
    """Ops of one operand."""
    two: Functions
    """Ops of two operands."""
    array: Callable[[str, int], Any]
    """Return ones of a dtype and a rank, in a shape of twos."""
    from_numpy: Callable[[Any], Any]
    dtype_of: Callable[[Any], str]
    """Return the name of a result's dtype, with a question mark where it is weak."""
    called: Callable[..., Any] = operator.call
    no_kernel: tuple[str, ...] = ()
    """Words of errors that say that only a kernel is missing."""

    def dtype_or_error(self, function: Callable[..., Any], *operands: Any) -> str:
        """Return the name of the result's dtype, `-` where the call is refused, `.` where a kernel is missing."""
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                return self.dtype_of(self.called(function, *operands))
            except Exception as error:
                return NO_KERNEL if any(words in str(error) for words in self.no_kernel) else REFUSED


def functions(package: Any, names: str) -> dict[str, Callable[..., Any]]:
    """Return the functions of a package that have these names."""
    pairs = (name.partition("=") for name in names.split())
    return {op: getattr(package, other or op) for op, _, other in pairs}


def numpy() -> Peer:
    return Peer(
        "numpy",
        np.__version__,
        one=functions(np, f"{ONE} {ARRAY_API[0]}"),
        two=functions(np, f"{TWO} {ARRAY_API[1]}") | {
            "where": lambda x, y: np.where(np.True_, x, y), "clip": lambda x, y: np.clip(x, y, y),
            "concat": lambda x, y: np.concat([x, y]),
        },
        array=lambda dtype, rank: np.ones((2,) * rank, dtype),
        from_numpy=np.asarray,
        dtype_of=lambda result: str(np.asarray(result).dtype),
    )  # fmt: skip


def jax(x64: bool = True, dtype_promotion: str = "standard") -> Peer:
    jax = importlib.import_module("jax")
    jax.config.update("jax_enable_x64", x64)
    jax.config.update("jax_numpy_dtype_promotion", dtype_promotion)
    jnp = importlib.import_module("jax.numpy")
    return Peer(
        "jax",
        jax.__version__,
        one=functions(jnp, f"{ONE} {ARRAY_API[0]} reciprocal") | functions(jax.nn, "logsumexp softmax") | {
            "rsqrt": jax.lax.rsqrt, "erf": jax.scipy.special.erf,
        },
        two=functions(jnp, f"{TWO} {ARRAY_API[1]}") | {
            "where": lambda x, y: jnp.where(jnp.ones((), bool), x, y), "clip": lambda x, y: jnp.clip(x, y, y),
            "concat": lambda x, y: jnp.concatenate([x, y]),
        },
        array=lambda dtype, rank: jnp.ones((2,) * rank, DType.of(dtype).numpy),
        from_numpy=jnp.asarray,
        dtype_of=lambda result: DType.of(result.dtype).name + "?" * bool(result.weak_type),
        called=lambda function, *operands: jax.eval_shape(lambda: function(*operands)),  # traces, compiles nothing
        no_kernel=("Invalid integer data type", "narrow-width", "Invalid float dtype"),
    )  # fmt: skip


def torch() -> Peer:
    torch = importlib.import_module("torch")

    def from_numpy(array: Any) -> Any:
        if array.dtype.kind == "V":  # a dtype that NumPy itself lacks, such as bfloat16
            name = DType.of(array.dtype).name
            return torch.from_numpy(np.asarray(array.astype(np.float32))).to(getattr(torch, name))
        return torch.tensor(array)

    return Peer(
        "torch",
        torch.__version__.partition("+")[0],
        one=functions(torch, f"{ONE} rsqrt reciprocal erf max=amax min=amin") | {
            "cumsum": lambda x: torch.cumsum(x, 0), "sort": lambda x: torch.sort(x).values,
            "var": lambda x: torch.var(x, correction=0), "stdev": lambda x: torch.std(x, correction=0),
            "logsumexp": lambda x: torch.logsumexp(x, 0), "softmax": lambda x: torch.softmax(x, 0),
        },
        two=functions(torch, f"{TWO} left_shift=bitwise_left_shift atan2") | {
            "less": operator.lt, "equal": operator.eq,
            "where": lambda x, y: torch.where(torch.ones((), dtype=torch.bool), x, y),
            "clip": lambda x, y: torch.clip(x, y, y), "concat": lambda x, y: torch.concat([x, y]),
        },
        array=lambda dtype, rank: torch.ones((2,) * rank).to(getattr(torch, dtype)),
        from_numpy=from_numpy,
        dtype_of=lambda result: str(result.dtype).removeprefix("torch."),
        no_kernel=("not implemented for", "imag is not implemented"),
    )  # fmt: skip


PEERS: dict[str, Callable[[], Peer]] = {"numpy": numpy, "jax": jax, "torch": torch}
OPTIONS: dict[str, dict[str, Any]] = {"jax_x32": {"x64": False}, "jax_strict": {"dtype_promotion": "strict"}}
"""The options of JAX, and of its system, with a table of their own."""


def table(name: str) -> Iterator[list[str]]:
    """Yield the header, with the release in its first cell, and a row for each call."""
    peer = jax(**OPTIONS[name]) if name in OPTIONS else PEERS[name]()
    columns = DTYPES[name]
    narrow = NARROW if name == "jax" else ()
    yield [f"op in {peer.name} {peer.release}", "left", "right", *columns, *narrow]

    def operands(operand: str) -> list[Any]:
        """Return the operand of each column."""
        if operand in ("x", "x[]"):
            return [peer.array(dtype, operand == "x") for dtype in columns]
        return [LITERALS[operand] if operand in LITERALS else peer.array(operand, 1)] * len(columns)

    def row(op: str, left: str, right: str) -> list[str]:
        pairs = zip(operands(left), operands(right), strict=True)
        return [op, left, right, *(peer.dtype_or_error(peer.two[op], x, y) for x, y in pairs)]

    for op, function in peer.one.items():
        yield [op, "x", "", *(peer.dtype_or_error(function, x) for x in operands("x"))]
    for op in peer.two:
        yield from (row(op, dtype, "x") for dtype in columns)
    for op in ("add", "div"):  # one that promotes, and one that divides
        yield from (row(op, dtype, "x[]") for dtype in columns)
    for i, dtype in enumerate(narrow):
        x = peer.array(dtype, 1)
        yield [*row("add", dtype, "x"), *[""] * i, peer.dtype_or_error(peer.two["add"], x, x)]
    for op in peer.two:
        if op not in NO_LITERALS[peer.name]:
            yield from (row(op, "x", literal) for literal in LITERALS)
            yield from (row(op, literal, "x") for literal in LITERALS)


if __name__ == "__main__":
    csv.writer(sys.stdout, lineterminator="\n").writerows(table(sys.argv[1]))
