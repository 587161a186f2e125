"""A case for every op, and one-op graphs of them in any dtype, for the sweep and docs/dtypes.md."""

from __future__ import annotations

import itertools
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphcore import DType, Graph, TensorType, promotion
from graphcore.errors import DTypeError, GraphcoreError, LossyCastWarning, PromotionError
from graphcore.ir.symbol import Node, Symbol
from graphcore.runtime.lowering import lower
from graphcore.runtime.lowering.targets.legality import BY_RESULT, CONTROL, PRIMARY
from graphcore.types.tensor_types import OptionalType, SequenceType
from tests.support.every import layers, movement, numbers, values
from tests.support.every.case import SIZES, Array, Case

CASES: dict[str, Case] = {
    **numbers.CASES,
    **movement.CASES,
    **layers.CASES,
    **values.CASES,
}


def graph_of(names: list[str], dtype: DType) -> tuple[Graph, dict[str, tuple[Symbol, ...]], list[Array]]:
    """The ops of one dtype in a graph, each on operands of its own; what each gives; the arrays to feed.

    Raises what an op raises that refuses the dtype.
    """
    graph, result = built_ops(names, dtype)
    return graph, result, [array for name in names for array in CASES[name].arrays(dtype)]


def built_ops(names: list[str], dtype: DType) -> tuple[Graph, dict[str, tuple[Symbol, ...]]]:
    """Return the graph of `graph_of` and what each op gives."""
    types = {}
    for name in names:
        for i, operand in enumerate(CASES[name].operands):
            types[f"{name}_{i}"] = TensorType(operand.dtype or dtype, operand.shape)
    graph = Graph("every", types)
    by_name = {}
    with graph, warnings.catch_warnings():
        warnings.simplefilter("ignore", LossyCastWarning)
        for name in names:
            count = len(CASES[name].operands)
            by_name[name] = CASES[name].results([graph[f"{name}_{i}"] for i in range(count)])
    graph.output(**{f"out_{name}_{i}": s for name, results in by_name.items() for i, s in enumerate(results)})
    return graph, by_name


# The state of an op in a dtype, from the lowered graph of the op's case

STORAGE = frozenset({"Cast", "BitCast", "Identity", "Constant"})
"""Operators that bring values into a dtype and compute nothing."""

SIZE_OPERATORS = frozenset({"Shape", "Size"})
"""Operators that read no values, beside those that do."""

SOFT = frozenset({DType.tensor_float32, DType.float8_e4m3fn, DType.float8_e5m2})
"""Dtypes that no Cast of the runtime rounds to: it takes more operators, which are part of the conversion."""


def state(name: str, dtype: DType) -> str:
    """ "refused", "itself", "native", "expanded", or the dtypes that the op's operators are computed in instead."""
    try:
        graph, _ = built_ops([name], dtype)
        lowered = lower(graph, "cpu")
    except GraphcoreError:
        return "refused"
    return of_graph(graph, lowered, dtype)


def of_graph(graph: Graph, lowered: Graph, dtype: DType) -> str:
    """Return the state of a lowered graph of operands of a dtype, one of `state`'s words but "refused"."""
    built, results = _operators(graph), _operators(lowered)
    if not built:
        converts = any(node.op_type == "Cast" for node in graph.nodes)
        return "itself" if not converts else "expanded" if results else "native"
    wanted, result = (Counter(op for op, _ in operators) for operators in (built, results))
    soft = any(isinstance(s.type, TensorType) and s.dtype in SOFT for s in graph.symbols)
    if wanted - result or (result - wanted and not soft):
        return "expanded"
    if dtype is DType.tensor_float32:  # stored so, with operators that round it beside those of the op
        return DType.float32.name
    here = {computed.storage for _, computed in built}
    dtypes = {computed for op, computed in results if op in wanted}
    if dtypes <= here and not result - wanted:
        return "native"
    elsewhere = dtypes - here or dtypes
    return ", ".join(sorted(d.name for d in elsewhere - {DType.bool} or elsewhere))


def _operators(graph: Graph) -> list[tuple[str, DType]]:
    results = [(node.op_type, _decides(node)) for node in graph.nodes if node.op_type not in STORAGE]
    return [pair for pair in results if pair[0] not in SIZE_OPERATORS] or results


def _decides(node: Node) -> DType:
    if node.op_type in CONTROL:
        return _leaf(node.outputs[0])
    position = PRIMARY.get(node.op_type, 0)
    operand = node.inputs[position] if position < len(node.inputs) and node.op_type not in BY_RESULT else None
    return _leaf(node.outputs[0] if operand is None else operand)


def _leaf(symbol: Symbol) -> DType:
    """The dtype of a tensor, or of those in a list or optional."""
    type_ = symbol.type
    while isinstance(type_, (SequenceType, OptionalType)):
        type_ = type_.element
    return type_.dtype if isinstance(type_, TensorType) else symbol.dtype


# Ops on complex numbers: a graph of one op, and what becomes of it


def complex_graph_of(name: str, dtype: DType = DType.complex64) -> tuple[Graph, tuple[Symbol, ...], list[Array]]:
    """Return a graph of an op on complex numbers, what it gives, and the arrays to feed.

    Operands whose dtype the op's case says keep that. Raises what an op raises that refuses complex numbers.
    """
    case = CASES[name]
    types, arrays = {}, []
    for i, operand in enumerate(case.operands):
        types[f"x{i}"] = TensorType(operand.dtype or dtype, operand.shape)
        sizes = [SIZES[d] if isinstance(d, str) else d for d in operand.shape]
        arrays.append(operand.array(dtype, i) if operand.dtype else drawn(sizes, dtype, i))
    graph = Graph("every", types, promotion=promotion.system("max", complex=True))
    with graph:
        result = case.results(list(graph.inputs))
    graph.output(**{f"y{i}": symbol for i, symbol in enumerate(result)})
    return graph, result, arrays


def drawn(shape: list[int], dtype: DType, seed: int) -> Array:
    """Return complex numbers of every quadrant."""
    rng = np.random.default_rng((seed, *shape))
    graph: Array = (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype.numpy)
    return graph


def complex_state(name: str) -> str:
    """Return "parts" where an op is computed on the parts of complex numbers, "refused" where it has no meaning."""
    try:
        complex_graph_of(name)
    except (DTypeError, PromotionError):
        return "refused"
    except GraphcoreError as error:
        return f"{type(error).__name__}"
    return "parts"


# What ops give


def rooted(z: Array, epsilon: float) -> Array:
    result: Array = z / np.sqrt((abs(z) ** 2).mean(-1, keepdims=True) + epsilon)
    return result


def gate(z: Array) -> Array:
    result: Array = 1 / (1 + np.exp(-z))
    return result


def solved(triangle: Array, right: Array) -> Array:
    lower = np.tril(triangle, -1) + np.eye(len(triangle))
    result: Array = np.linalg.solve(lower, right)
    return result


FORMULAS: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "pow": np.power,
    "fma": lambda x, y, z: x * y + z,
    "negate": np.negative, "positive": np.positive, "abs": np.abs, "sign": np.sign, "square": np.square,
    "reciprocal": np.reciprocal, "conj": np.conj, "real": np.real, "angle": np.angle, "imag": np.imag, "sqrt": np.sqrt,
    "rsqrt": lambda z: 1 / np.sqrt(z), "exp": np.exp, "exp2": lambda z: 2**z, "exp10": lambda z: 10**z,
    "expm1": np.expm1,
    "log": np.log, "log1p": np.log1p, "log2": np.log2, "log10": np.log10, "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "sigmoid": gate, "silu": lambda z: z * gate(z), "softsign": lambda z: z / (1 + abs(z)),
    "glu": lambda z: np.split(z, 2, -1)[0] * gate(np.split(z, 2, -1)[1]), "swiglu": lambda x, y: x * gate(x) * y,
    "sum": lambda z: z.sum(1), "prod": lambda z: z.prod(1), "mean": lambda z: z.mean(1), "var": lambda z: z.var(1),
    "stdev": lambda z: z.std(1), "mag": lambda z: np.linalg.norm(z, axis=1), "cumsum": lambda z: z.cumsum(1),
    "cumprod": lambda z: z.cumprod(1), "logsumexp": lambda z: np.log(np.exp(z).sum(1)),
    "matmul": np.matmul, "linear": lambda x, w, b: x @ w.T + b, "outer": np.outer, "vecdot": np.vecdot,
    "tensordot": np.matmul, "einsum": lambda x, y: x @ y.T, "linspace": lambda x, y: np.linspace(x, y, 5),
    "fft": lambda z: np.fft.fft(z, axis=1), "ifft": lambda z: np.fft.ifft(z, axis=1),
    "irfft": lambda z: np.fft.irfft(z, axis=1), "triangular_solve": solved,
    "layer_norm": lambda z, gamma, beta: rooted(z - z.mean(-1, keepdims=True), 1e-5) * gamma + beta,
    "rms_norm": lambda z, weight: rooted(z, 1e-6) * weight,
    "shape_of": np.shape, "shape_to_tensor": lambda z: [*z.shape, 7], "list_length": len, "nonzero": np.argwhere,
    "any": lambda z: z.any(1), "all": lambda z: z.all(1), "count_nonzero": lambda z: np.count_nonzero(z, 1),
    "is_nan": np.isnan, "is_inf": np.isinf, "is_finite": np.isfinite, "unique": np.unique,
    "logical_and": np.logical_and, "logical_or": np.logical_or, "logical_xor": np.logical_xor,
    "logical_not": np.logical_not,
    "lp_normalize": lambda z: z / np.linalg.norm(z, axis=-1, keepdims=True),
}  # fmt: skip
"""NumPy's functions of the operands of an op's case."""

IN_PARTS = frozenset(
    "avg_pool avg_pool1d avg_pool2d avg_pool3d dropout fold index_add resize resize_bicubic resize_linear scatter_add "
    "scatter_nd_add segment_sum".split()
)
"""Ops that do to each part what they do to real numbers."""

PRODUCTS = frozenset("conv1d conv2d conv3d conv1d_transpose conv2d_transpose conv3d_transpose cross".split())
"""Ops that are linear in each of their operands."""


def wanted(name: str, arrays: Sequence[Array]) -> tuple[Array, ...] | None:
    """Return the result of an op on complex arrays; None for the decompositions, of which there are several."""
    if name in ("lu", "lu_factor"):
        return None
    if name in FORMULAS:
        return (np.asarray(FORMULAS[name](*arrays)),)
    case = CASES[name]
    if name in IN_PARTS:
        real, imag = (case.wanted(DType.float64, [part_of(x, place) for x in arrays]) for place in (0, 1))
        return tuple(a + 1j * b for a, b in zip(real, imag, strict=True))
    if name in PRODUCTS:
        result: Any = 0
        for places in itertools.product((0, 1), repeat=len(arrays)):
            parts = [part_of(x, place) for x, place in zip(arrays, places, strict=True)]
            result = result + 1j ** sum(places) * case.wanted(DType.float64, parts)[0]
        return (result,)
    return case.wanted(DType.complex64, arrays)


def part_of(x: Array, place: int) -> Array:
    """Return a part of complex numbers in float64; other arrays as they are."""
    return x if x.dtype.kind != "c" else (x.real, x.imag)[place].astype(np.float64)
