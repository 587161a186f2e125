"""The dtypes that NumPy, JAX and PyTorch give, asked of the installed packages.

`PYTHONPATH=. python -m tests.support.peer_dtypes numpy > tests/promotion/matrices/of_numpy.py` (or `jax`, `torch`)
writes the literals anew, with the release that they were made from.
"""

from __future__ import annotations

import importlib
import operator
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from graphcore import DType

Functions = Mapping[str, Callable[..., Any]]
"""Ops of the library, and the function of the package that each is."""
Cells = dict[str, str]
"""Rows of cells: the left operand's dtype -> the result's, one for each right operand."""

REFUSED = "-"
NO_KERNEL = "."
"""The rule has a dtype, or would have one: nothing computes it on the CPU."""
LITERALS: dict[str, bool | int | float | complex] = {"True": True, "2": 2, "2.5": 2.5, "2j": 2j}

SHORT = {
    "b1": "bool", "i4": "int4", "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "u4": "uint4",
    "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2",
    "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "i2": "int2", "u2": "uint2",
    "fnu4": "float8_e4m3fnuz", "fnu5": "float8_e5m2fnuz", "e8m0": "float8_e8m0", "e2m1": "float4_e2m1",
    "c64": "complex64", "c128": "complex128", "c32": "complex32",
}  # fmt: skip
"""The names of dtypes in the literals; the digits are bits. complex32 is PyTorch's alone."""
LONG = {long: short for short, long in SHORT.items()}

WHOLE = tuple("b1 i8 i16 i32 i64 u8 u16 u32 u64".split())
COMPLEX = ("c64", "c128")
DTYPES = {
    "numpy": (*WHOLE, "f16", "f32", "f64", *COMPLEX),
    "jax": ("b1", "i4", *WHOLE[1:5], "u4", *WHOLE[5:], "e4m3", "e5m2", "f16", "bf16", "f32", "f64", *COMPLEX),
    "torch": (*WHOLE, "e4m3", "e5m2", "f16", "bf16", "f32", "f64", *COMPLEX),
}
"""The dtypes that the package and the library know."""


class Peer:
    """A package: how arrays are made, which function each op of the library is, and what has come out."""

    name: str
    one: Functions
    """Ops of one operand."""
    two: Functions
    """Ops of two operands."""
    no_kernel: tuple[str, ...] = ()
    """Words of errors that say that only a kernel is missing."""

    def release(self) -> str:
        raise NotImplementedError

    def array(self, dtype: str, rank: int = 1) -> Any:
        """Return ones of a dtype, in a shape of twos."""
        raise NotImplementedError

    def from_numpy(self, array: Any) -> Any:
        """Return an array of the package."""
        raise NotImplementedError

    def dtype_of(self, result: Any) -> str:
        """Return the short name of a result's dtype, with a question mark where it is weak."""
        raise NotImplementedError

    def called(self, function: Callable[..., Any], *operands: Any) -> Any:
        return function(*operands)

    def asked(self, function: Callable[..., Any], *operands: Any) -> str:
        """Return the short name of the result's dtype, `-` where it is refused, `.` where a kernel is missing."""
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                return self.dtype_of(self.called(function, *operands))
            except Exception as error:
                return NO_KERNEL if any(words in str(error) for words in self.no_kernel) else REFUSED


class NumPy(Peer):
    name = "numpy"

    def __init__(self) -> None:
        self.one = {
            "negate": np.negative, "positive": np.positive, "abs": np.abs, "sign": np.sign, "square": np.square,
            "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round": np.round, "sqrt": np.sqrt, "exp": np.exp,
            "log": np.log, "sin": np.sin, "tanh": np.tanh, "is_nan": np.isnan, "bitwise_not": np.invert,
            "logical_not": np.logical_not, "sum": np.sum, "prod": np.prod, "cumsum": np.cumsum, "mean": np.mean,
            "var": np.var, "stdev": np.std, "max": np.max, "min": np.min, "argmax": np.argmax, "any": np.any,
            "all": np.all, "count_nonzero": lambda x: np.asarray(np.count_nonzero(x)), "sort": np.sort,
            "argsort": np.argsort, "real": np.real, "imag": np.imag, "conj": np.conj, "angle": np.angle,
        }  # fmt: skip
        self.two = {
            "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.true_divide, "floor_div": np.floor_divide,
            "mod": np.remainder, "pow": np.power, "maximum": np.maximum, "minimum": np.minimum, "less": np.less,
            "equal": np.equal, "bitwise_and": np.bitwise_and, "left_shift": np.left_shift,
            "logical_and": np.logical_and,
            "atan2": np.arctan2, "where": lambda x, y: np.where(np.True_, x, y),
            "clip": lambda x, y: np.clip(x, y, y), "matmul": np.matmul, "outer": np.multiply.outer,
            "concat": lambda x, y: np.concatenate([x, y]),
        }  # fmt: skip

    def release(self) -> str:
        return np.__version__

    def array(self, dtype: str, rank: int = 1) -> Any:
        return np.ones((2,) * rank, DType.of(SHORT[dtype]).numpy)

    def from_numpy(self, array: Any) -> Any:
        return array

    def dtype_of(self, result: Any) -> str:
        return LONG[str(np.asarray(result).dtype)]


class Jax(Peer):
    name = "jax"
    no_kernel = ("Invalid integer data type", "narrow-width", "Invalid float dtype")

    def __init__(self) -> None:
        jax = importlib.import_module("jax")
        jax.config.update("jax_enable_x64", True)
        jax.config.update("jax_numpy_dtype_promotion", "standard")
        self.jax = jax
        self.jnp = jnp = importlib.import_module("jax.numpy")
        like_numpy = {name: function.__name__ for name, function in NumPy().one.items() if name not in _OWN}
        self.one = {name: getattr(jnp, there) for name, there in like_numpy.items()} | {
            "count_nonzero": jnp.count_nonzero, "abs": jnp.abs, "logsumexp": jax.nn.logsumexp, "rsqrt": jax.lax.rsqrt,
            "reciprocal": jnp.reciprocal, "erf": jax.scipy.special.erf, "softmax": jax.nn.softmax,
        }  # fmt: skip
        self.two = {
            "add": jnp.add, "sub": jnp.subtract, "mul": jnp.multiply, "div": jnp.true_divide,
            "floor_div": jnp.floor_divide, "mod": jnp.remainder, "pow": jnp.power, "maximum": jnp.maximum,
            "minimum": jnp.minimum, "less": jnp.less, "equal": jnp.equal, "bitwise_and": jnp.bitwise_and,
            "left_shift": jnp.left_shift, "logical_and": jnp.logical_and, "atan2": jnp.arctan2,
            "where": lambda x, y: jnp.where(jnp.ones((), bool), x, y), "clip": lambda x, y: jnp.clip(x, y, y),
            "matmul": jnp.matmul, "outer": jnp.outer, "concat": lambda x, y: jnp.concatenate([x, y]),
        }  # fmt: skip

    def release(self) -> str:
        return str(importlib.import_module("jax").__version__)

    def array(self, dtype: str, rank: int = 1) -> Any:
        return self.jnp.ones((2,) * rank, DType.of(SHORT[dtype]).numpy)

    def from_numpy(self, array: Any) -> Any:
        return self.jnp.asarray(array)

    def called(self, function: Callable[..., Any], *operands: Any) -> Any:
        return self.jax.eval_shape(lambda: function(*operands))  # traces, and compiles nothing

    def dtype_of(self, result: Any) -> str:
        return LONG[DType.of(result.dtype).name] + "?" * bool(result.weak_type)


_OWN = {"count_nonzero", "abs"}


class Torch(Peer):
    name = "torch"
    no_kernel = ("not implemented for", "imag is not implemented")

    def __init__(self) -> None:
        self.torch = torch = importlib.import_module("torch")
        self.one = {
            "negate": torch.negative, "positive": torch.positive, "abs": torch.abs, "sign": torch.sign,
            "square": torch.square, "floor": torch.floor, "ceil": torch.ceil, "trunc": torch.trunc,
            "round": torch.round, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "reciprocal": torch.reciprocal,
            "exp": torch.exp, "log": torch.log, "sin": torch.sin, "tanh": torch.tanh, "erf": torch.erf,
            "is_nan": torch.isnan, "bitwise_not": torch.bitwise_not, "logical_not": torch.logical_not,
            "sum": torch.sum, "prod": torch.prod, "cumsum": lambda x: torch.cumsum(x, 0), "mean": torch.mean,
            "var": lambda x: torch.var(x, correction=0),
            "stdev": lambda x: torch.std(x, correction=0), "max": torch.amax, "min": torch.amin, "argmax": torch.argmax,
            "any": torch.any, "all": torch.all, "count_nonzero": torch.count_nonzero,
            "sort": lambda x: torch.sort(x).values, "argsort": torch.argsort,
            "logsumexp": lambda x: torch.logsumexp(x, 0), "softmax": lambda x: torch.softmax(x, 0),
            "real": torch.real, "imag": torch.imag, "conj": torch.conj, "angle": torch.angle,
        }  # fmt: skip
        self.two = {
            "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.true_divide,
            "floor_div": torch.floor_divide, "mod": torch.remainder, "pow": torch.pow, "maximum": torch.maximum,
            "minimum": torch.minimum, "less": operator.lt, "equal": operator.eq, "bitwise_and": torch.bitwise_and,
            "left_shift": torch.bitwise_left_shift, "logical_and": torch.logical_and, "atan2": torch.atan2,
            "where": lambda x, y: torch.where(torch.ones((), dtype=torch.bool), x, y),
            "clip": lambda x, y: torch.clip(x, y, y), "matmul": torch.matmul, "outer": torch.outer,
            "concat": lambda x, y: torch.concat([x, y]),
        }  # fmt: skip

    def release(self) -> str:
        return str(self.torch.__version__).partition("+")[0]

    def array(self, dtype: str, rank: int = 1) -> Any:
        return self.torch.ones((2,) * rank).to(getattr(self.torch, SHORT[dtype]))

    def from_numpy(self, array: Any) -> Any:
        name = DType.of(array.dtype).name
        if array.dtype.kind == "V":  # what NumPy has not itself, such as bfloat16
            return self.torch.from_numpy(np.asarray(array.astype(np.float32))).to(getattr(self.torch, name))
        return self.torch.tensor(array)

    def dtype_of(self, result: Any) -> str:
        return LONG[str(result.dtype).removeprefix("torch.")]


PEERS: dict[str, Callable[[], Peer]] = {"numpy": NumPy, "jax": Jax, "torch": Torch}

NARROW = {"numpy": (), "jax": ("i2", "u2", "fnu4", "fnu5", "e8m0", "e2m1"), "torch": ()}
"""Narrow dtypes that the package and the library know too; torch's meet themselves alone."""

NO_LITERALS = {
    "numpy": {"matmul", "outer", "concat", "clip"},
    "jax": {"matmul", "outer", "concat"},
    "torch": {"matmul", "outer", "concat", "clip", "maximum", "minimum", "logical_and", "atan2"},
}
"""Functions that take no Python numbers, or not on both sides."""

Tables = Iterator[tuple[str, Cells]]


def of_one(peer: Peer) -> Tables:
    """For each op of one operand its result for each dtype."""
    for op, function in peer.one.items():
        yield op, {"": " ".join(peer.asked(function, peer.array(dtype)) for dtype in DTYPES[peer.name])}


def of_two(peer: Peer) -> Tables:
    """For each op of two operands its result for each pair."""
    for op, function in peer.two.items():
        yield op, _rows(peer, function, 1)


def of_two_without_axes(peer: Peer) -> Tables:
    """The same where the right operand has no axes, for an op that promotes and one that divides."""
    for op in ("add", "div"):
        yield op, _rows(peer, peer.two[op], 0)


def _rows(peer: Peer, function: Callable[..., Any], rank: int) -> Cells:
    rows = {}
    for left in DTYPES[peer.name]:
        x = peer.array(left)
        rows[left] = " ".join(peer.asked(function, x, peer.array(y, rank)) for y in DTYPES[peer.name])
    return rows


def of_narrow(peer: Peer) -> Tables:
    """For an op that promotes its result for each pair of a narrow dtype and another, or itself."""
    rows = {}
    for left in NARROW[peer.name]:
        x = peer.array(left)
        rows[left] = " ".join(peer.asked(peer.two["add"], x, peer.array(y)) for y in (*DTYPES[peer.name], left))
    if rows:
        yield "add", rows


def of_literals(peer: Peer) -> Tables:
    """For each op of two operands its result for each dtype with Python's numbers, on the right and on the left."""
    for op, function in peer.two.items():
        if op in NO_LITERALS[peer.name]:
            continue
        rows = {}
        for dtype in DTYPES[peer.name]:
            x = peer.array(dtype)
            right = [peer.asked(function, x, value) for value in LITERALS.values()]
            left = [peer.asked(function, value, x) for value in LITERALS.values()]
            rows[dtype] = " ".join([*right, *left])
        yield op, rows


PARTS: dict[str, Callable[[Peer], Tables]] = {
    "ONE": of_one, "TWO": of_two, "WITHOUT_AXES": of_two_without_axes, "NARROW": of_narrow,
    "LITERALS": of_literals,
}  # fmt: skip


def module(name: str) -> str:
    """Return the literals of a package as a module: tables of which one stands for all ops that have it."""
    peer = PEERS[name]()
    columns = " ".join(DTYPES[name])
    lines = [
        f'"""The dtypes that {type(peer).__name__} {peer.release()} gives. Made by tests/support/peer_dtypes.py."""',
        "",
    ]
    lines += [f'RELEASE = "{peer.release()}"', f'COLUMNS = "{columns}".split()', ""]
    for part, tables in PARTS.items():
        grouped: dict[tuple[tuple[str, str], ...], list[str]] = {}
        for op, rows in tables(peer):
            grouped.setdefault(tuple(rows.items()), []).append(op)
        lines.append(f'{part} = """')
        for table, ops in grouped.items():
            lines.append("# " + " ".join(ops))
            lines += [f"{row:5}: {' '.join(c.ljust(4) for c in cells.split())}".strip() for row, cells in table]
        lines += ['"""', ""]
    return "\n".join(lines)


if __name__ == "__main__":
    print(module(sys.argv[1]), end="")
