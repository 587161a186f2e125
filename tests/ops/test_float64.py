"""Functions of float64 against mpmath, in units in the last place: docs/numbers.md, "Functions of float64".

`python -m tests.ops.test_float64 [--points 20000] [NAME ...]` prints the table.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest

import graphcore as gc
from graphcore import Graph, TensorType, ops
from graphcore.runtime.lowering import lower
from tests.support.graphs import NEWEST

pytestmark = [pytest.mark.numbers, pytest.mark.releases]

Array = np.ndarray[Any, Any]
mpmath: Any = pytest.importorskip("mpmath")  # which has no types
INF = math.inf
PI = math.pi


@dataclass(frozen=True)
class Case:
    """An op, its value by mpmath, its domain, and the points beside which it is tested most.

    units: the units in the last place that it holds. zeros: the second operand with which the first one gives 0.
    """

    op: Callable[..., Any]
    true: Callable[..., Any]
    low: float = -INF
    high: float = INF
    beside: tuple[float, ...] = (0.0,)
    units: float = 4
    count: int = 1
    zeros: Callable[[Any], Any] | None = None


def _logistic(x: Any) -> Any:
    return 1 / (1 + mpmath.exp(-x))


def _gelu_tanh(x: Any) -> Any:
    return x * _logistic(mpmath.sqrt(8 / mpmath.pi) * (x + mpmath.mpf(0.044715) * x**3))


def _softplus(x: Any) -> Any:
    return mpmath.log1p(mpmath.exp(x)) if x < 0 else x + mpmath.log1p(mpmath.exp(-x))


def _elu(x: Any, alpha: float = 1.0) -> Any:
    return x if x >= 0 else alpha * mpmath.expm1(x)


def _celu(x: Any) -> Any:
    return x if x >= 0 else mpmath.mpf(1.7) * mpmath.expm1(x / mpmath.mpf(1.7))


def _selu(x: Any) -> Any:
    return mpmath.mpf(1.0507009873554805) * _elu(x, mpmath.mpf(1.6732632423543772))


def _inverse(op: Callable[..., Any], function: Callable[..., Any], slope: Callable[..., Any]) -> Callable[[Any], Any]:
    """Return the inverse of a function, by Newton's method from the result of the op."""
    models: list[Any] = []

    def true(y: Any) -> Any:
        if not models:
            models.append(_model(op, 1))
        x = mpmath.mpf(float(models[0](np.array([float(y)]))[0][0]))
        for _ in range(3 if x else 0):
            x -= (function(x) - y) / slope(x)
        return x

    return true


def _gauss(x: Any) -> Any:
    return 2 / mpmath.sqrt(mpmath.pi) * mpmath.exp(-x * x)


def _erfc(x: Any) -> Any:
    return mpmath.erfc(min(max(x, -1e6), 1e6))  # beyond it takes mpmath long, and is 0 or 2 in float64


def _erfcx(x: Any) -> Any:
    if x > 1e10:
        return (1 - 1 / (2 * x * x)) / (x * mpmath.sqrt(mpmath.pi))
    return mpmath.exp(x * x) * mpmath.erfc(x)


def _sinc(x: Any) -> Any:
    return mpmath.sinpi(x) / (mpmath.pi * x) if x else mpmath.mpf(1)


def _log_add(x: Any, y: Any) -> Any:
    high, low = max(x, y), min(x, y)
    return high + mpmath.log1p(mpmath.exp(low - high))


def _cbrt(x: Any) -> Any:
    return mpmath.sign(x) * mpmath.cbrt(abs(x))


_QUARTERS = tuple(k * PI / 2 for k in (1, 2, 3, 4, 5, 10, 101, 10_001, 333_333, 1_048_576, 2**40 + 1, 2**52 + 3))
_WHOLE = tuple(float(-k) for k in (0, 1, 2, 3, 4, 5, 10, 20, 100, 170))
_ZEROS_OF_LGAMMA = (
    -2.4570247382208006, -2.7476826467274127, -3.1435808883499803, -3.955294284858598, -4.039361839740537,
    -5.998607480080875, -9.000002755714823, -15.999999999999952, -17.000000000000004,
)  # fmt: skip
_ZEROS_OF_DIGAMMA = (
    -0.5040830082644554, -1.5734984731623904, -2.610720868444145, -9.702672540001864, -100.80985503754677,
    -999.8641449289525,
)  # fmt: skip

CASES: dict[str, Case] = {
    "exp": Case(ops.exp, mpmath.exp, -760, 720, (0.0, 1.0, 709.782712893384, -708.3964185322641, -745.1332191019411)),
    "exp2": Case(ops.exp2, lambda x: mpmath.mpf(2) ** x, -1090, 1030, (0.0, 1.0, 1024.0, -1022.0, -1074.0)),
    "exp10": Case(ops.exp10, lambda x: mpmath.mpf(10) ** x, -330, 310, (0.0, 1.0, 308.2547155599167, -307.652655568)),
    "expm1": Case(ops.expm1, mpmath.expm1, -800, 720, (0.0, 0.5, -1.0, 709.782712893384, -36.7, LN2 := math.log(2))),
    "log": Case(ops.log, mpmath.log, 0, INF, (1.0, 0.0, math.e, 0.5, 2.0)),
    "log1p": Case(ops.log1p, mpmath.log1p, -1, INF, (0.0, -1.0, 1.0, -0.5)),
    "log2": Case(ops.log2, lambda x: mpmath.log(x) / mpmath.log(2), 0, INF, (1.0, 0.0, 2.0, 8.0)),
    "log10": Case(ops.log10, lambda x: mpmath.log(x) / mpmath.log(10), 0, INF, (1.0, 0.0, 10.0, 1000.0)),
    "sqrt": Case(ops.sqrt, mpmath.sqrt, 0, INF),
    "rsqrt": Case(ops.rsqrt, lambda x: 1 / mpmath.sqrt(x), 0, INF),
    "reciprocal": Case(ops.reciprocal, lambda x: 1 / x),
    "sin": Case(ops.sin, mpmath.sin, beside=(0.0, *_QUARTERS)),
    "cos": Case(ops.cos, mpmath.cos, beside=(0.0, *_QUARTERS)),
    "tan": Case(ops.tan, mpmath.tan, beside=(0.0, PI / 4, *_QUARTERS)),
    "asin": Case(ops.asin, mpmath.asin, -1, 1, (0.0, 1.0, -1.0, 0.5)),
    "acos": Case(ops.acos, mpmath.acos, -1, 1, (0.0, 1.0, -1.0, 0.5)),
    "atan": Case(ops.atan, mpmath.atan, beside=(0.0, 1.0, 0.66, 2.414213562373095)),
    "sinh": Case(ops.sinh, mpmath.sinh, -720, 720, (0.0, 0.5, 1.0, 22.0, 710.4758600739439)),
    "cosh": Case(ops.cosh, mpmath.cosh, -720, 720, (0.0, 0.5, 22.0, 710.4758600739439)),
    "tanh": Case(ops.tanh, mpmath.tanh, beside=(0.0, 0.5, 1.0, 19.0)),
    "asinh": Case(ops.asinh, mpmath.asinh, beside=(0.0, 0.5, 1.0, 1e150)),
    "acosh": Case(ops.acosh, mpmath.acosh, 1, INF, (1.0, 2.0, 1e150)),
    "atanh": Case(ops.atanh, mpmath.atanh, -1, 1, (0.0, 0.5, 1.0, -1.0)),
    "sinc": Case(ops.sinc, _sinc, beside=(0.0, 0.5, 1.0, 2.0, 3.0, 1000.0)),
    "sigmoid": Case(ops.sigmoid, _logistic, beside=(0.0, -18.0, -709.0, -745.0, 37.0)),
    "silu": Case(ops.silu, lambda x: x * _logistic(x), beside=(0.0, -709.0, -745.0)),
    "softplus": Case(ops.softplus, _softplus, beside=(0.0, -37.0, 37.0, -745.0)),
    "softsign": Case(ops.softsign, lambda x: x / (1 + abs(x))),
    "mish": Case(ops.mish, lambda x: x * mpmath.tanh(_softplus(x)), beside=(0.0, -37.0, 20.0, -745.0)),
    "gelu": Case(ops.gelu, lambda x: x * _erfc(-x / mpmath.sqrt(2)) / 2, beside=(0.0, -1.0, -8.3, -9.0, -38.5)),
    "gelu tanh": Case(lambda x: ops.gelu(x, "tanh"), _gelu_tanh, beside=(0.0, -1.0, -9.0, -20.0)),
    "gelu quick": Case(
        lambda x: ops.gelu(x, "quick"), lambda x: x * _logistic(mpmath.mpf(1.702) * x), beside=(0.0, -10.0, -437.0)
    ),
    "hardsigmoid": Case(
        ops.hardsigmoid, lambda x: min(max(mpmath.mpf(1 / 6) * x + 0.5, 0), 1) + mpmath.mpf(0), beside=(0.0, -3.0, 3.0)
    ),
    "hardswish": Case(
        ops.hardswish, lambda x: x * min(max((x + 3) / 6, 0), 1) + mpmath.mpf(0), beside=(0.0, -3.0, 3.0)
    ),
    "elu": Case(ops.elu, _elu),
    "celu": Case(lambda x: ops.celu(x, 1.7), _celu),
    "selu": Case(ops.selu, _selu),
    "cbrt": Case(ops.cbrt, _cbrt),
    "rcbrt": Case(ops.rcbrt, lambda x: 1 / _cbrt(x)),
    "erf": Case(ops.erf, mpmath.erf, beside=(0.0, 0.5, 1.0, 5.9), units=8),
    "erfc": Case(ops.erfc, _erfc, -INF, INF, (0.0, 0.5, 1.0, 26.5, 27.2), units=8),
    "erfcx": Case(ops.erfcx, _erfcx, -26.7, INF, (0.0, 0.5, 28.0), units=8),
    "erfinv": Case(ops.erfinv, _inverse(ops.erfinv, mpmath.erf, _gauss), -1, 1, (0.0, 0.5, 1.0, -1.0), units=8),
    "erfcinv": Case(
        ops.erfcinv, _inverse(ops.erfcinv, mpmath.erfc, lambda x: -_gauss(x)), 0, 2, (0.0, 0.5, 1.0, 2.0), units=8
    ),
    "normcdf": Case(
        ops.normcdf, lambda x: _erfc(-x / mpmath.sqrt(2)) / 2, beside=(0.0, 0.7, -0.7, -37.6, -38.5), units=8
    ),
    "normcdfinv": Case(
        ops.normcdfinv, _inverse(ops.normcdfinv, mpmath.ncdf, mpmath.npdf), 0, 1, (0.0, 0.25, 0.5, 1.0), units=8
    ),
    "lgamma": Case(
        ops.lgamma, lambda x: mpmath.re(mpmath.loggamma(x)), -1000, INF, (1.0, 2.0, 8.0, *_ZEROS_OF_LGAMMA, *_WHOLE),
        units=8,
    ),
    "tgamma": Case(ops.tgamma, mpmath.gamma, -185, 172, (1.0, 8.0, 171.6, *_WHOLE), units=8),
    "digamma": Case(
        ops.digamma, mpmath.digamma, -(2.0**52), INF, (1.4616321449683622, 10.0, *_ZEROS_OF_DIGAMMA, *_WHOLE), units=8,
    ),
    "pow": Case(ops.pow, lambda x, y: x**y, 0, INF, (1.0, 2.0), count=2),
    "atan2": Case(ops.atan2, mpmath.atan2, beside=(0.0, 1.0), count=2),
    "hypot": Case(ops.hypot, mpmath.hypot, beside=(0.0, 1.0), count=2),
    "rhypot": Case(ops.rhypot, lambda x, y: 1 / mpmath.hypot(x, y), beside=(0.0, 1.0), count=2),
    "logaddexp": Case(
        ops.logaddexp, _log_add, beside=(0.0, -LN2, 1.0), count=2, zeros=lambda x: mpmath.log(-mpmath.expm1(x))
    ),
}  # fmt: skip


def points(case: Case, count: int, seed: int = 0) -> list[Array]:
    """Return operands: uniform, of every size, subnormal, beside special points and at the ends of the domain."""
    rng = np.random.default_rng(seed)
    low, high = max(case.low, -1e308), min(case.high, 1e308)
    n = count // 5

    def sizes(least: float, greatest: float, amount: int) -> Array:
        magnitude = np.exp2(rng.uniform(least, greatest, amount))
        return np.asarray(magnitude * rng.choice([-1.0, 1.0], amount))

    fields = []
    for _ in range(case.count):
        near = [
            c + sizes(-60, 2, 2 * n // len(case.beside)) * np.spacing(1.0) ** rng.integers(0, 2) for c in case.beside
        ]
        steps = [np.array(c).view(np.int64) + np.arange(-9, 10) for c in case.beside if c]
        field = np.concatenate(
            [
                rng.uniform(max(low, -1100.0), min(high, 1100.0), n // 2),
                rng.uniform(max(low, -10.0), min(high, 10.0), n),
                sizes(-1074, 1023.9, n),
                sizes(-40, 10, n // 2),
                sizes(-1074, -1015, n // 10),
                *near,
                *(s.view(np.float64) for s in steps),
                [5e-324, -5e-324, 2.0**-1022, 1.7976931348623157e308, -1.7976931348623157e308],
            ]
        )
        fields.append(field[(field >= case.low) & (field <= case.high)])
    if case.count == 2:
        length = min(map(len, fields))
        x, y = (rng.permutation(f)[:length] for f in fields)
        m = length // 4
        close = np.clip(x[:m], -1e307, 1e307) * (1 + sizes(-52, 0, m) / 2)
        x, y = np.concatenate([x, x[:m], x[:m]]), np.concatenate([y, close, sizes(-3, 3, m)])
        if case.zeros:
            first = -np.concatenate([np.exp2(rng.uniform(-1074, 9, m)), np.exp2(rng.uniform(-52, 5, m)), np.abs(close)])
            with mpmath.workprec(100):
                second = np.array([float(case.zeros(mpmath.mpf(float(v)))) for v in first])
            second *= 1 + sizes(-60, -2, len(first))  # the nearest numbers, and some near them
            x, y = np.concatenate([x, first, second]), np.concatenate([y, second, first])
        return [x, y]
    return fields


def truth(case: Case, *operands: float) -> Any:
    """Return the true value as an mpmath number, right to more than 60 bits even where terms cancel."""
    exponents = [abs(math.frexp(x)[1]) for x in operands]
    extra = 0 if case.count == 1 and max(exponents) > 80 else max(exponents)
    with mpmath.workprec(140 + 2 * min(extra, 80)):
        try:
            return case.true(*map(mpmath.mpf, operands))
        except (ZeroDivisionError, ValueError):  # poles
            return None


def units(result: float, true: Any) -> float:
    """Return the error in units in the last place of the true value; infinity stands for 2^1024."""
    if true is None:  # a pole
        return 0.0
    if math.isnan(result) or mpmath.isinf(true):
        return 0.0 if result == true else INF
    size = abs(true)
    exponent = int(mpmath.frexp(size)[1]) if size else -1074
    unit = mpmath.ldexp(1, min(max(exponent - 53, -1074), 971))
    end = mpmath.ldexp(1, 1024)
    if size > end:
        size, true = end, mpmath.sign(true) * end
    number = math.copysign(1, result) * end if math.isinf(result) else mpmath.mpf(result)
    with mpmath.workprec(200):
        return float(abs(number - true) / unit)


def _model(op: Callable[..., Any], count: int) -> Any:
    graph = Graph("float64", {f"x{i}": TensorType("float64", ["n"]) for i in range(count)})
    with graph:
        graph.output(y=op(*graph.inputs))
    return gc.InferenceSession().load(graph)


def worst(case: Case, operands: Sequence[Array]) -> tuple[float, tuple[float, ...], float]:
    """Return the greatest error, the operands that have it and the result there."""
    result = _model(case.op, case.count)(*operands)[0]
    errors = [
        (units(float(r), truth(case, *map(float, xs))), tuple(map(float, xs)), float(r))
        for r, *xs in zip(result, *operands, strict=True)
    ]
    return max(errors)


@pytest.mark.parametrize("name", CASES)
def test_function_holds_its_units_at_a_few_points(name: str) -> None:
    case = CASES[name]
    count = 100 if case.units < 8 else 30  # mpmath takes long for special functions
    operands = [x[:: len(x) // count + 1] for x in points(case, 2000)]
    error, at, result = worst(case, operands)
    assert error <= case.units, (at, result)


@pytest.mark.full
@pytest.mark.parametrize("name", CASES)
def test_function_holds_its_units(name: str) -> None:
    error, at, result = worst(CASES[name], points(CASES[name], 4000))
    assert error <= CASES[name].units, (at, result)


# An op, and operands at which float64 had wrong digits, or where a formula for all sizes ends.
POINTS: dict[str, tuple[float, ...]] = {
    "sin": (PI, 2 * PI, 3 * PI, 6.282992740202632, 63.99, 64.01, 22 * PI, 1e300, 5e-324),
    "cos": (PI / 2, 3 * PI / 2, 7.852584184298924, 63.99, 64.01, 20.5 * PI, 1e300, 1e-300, 313.82996849168865,
            12883.661998927975, 1.3417366434205833e308, 1.241672507613542e308),
    "tan": (PI / 2, 1e6 * PI / 2, 1e7, 2.0**47 + 1, 2.0**48, 1e300, 1e-300, 1.6e6, 1.7e6),
    "tanh": (17.9, 17.865513362582487, 1.0, 1.0000001, 3.0, 800.0, 5e-324),
    "acos": (1 - 2.0**-53, 1 - 1e-9, 0.9999, 0.5, 0.49999, -0.5, -1.0, 1.0),
    "acosh": (1 + 2.0**-52, 1 + 1e-9, 1.0001, 2.0, 1e150, 1e308),
    "sigmoid": (-576.7, -700.5, -709.5, -740.0, -745.0, 40.0),
    "silu": (-576.7, -700.5, -709.5, -745.0, -746.0, -750.5, 1e308),
    "mish": (-576.7, -700.5, -709.5, -745.0, -751.0, 700.5, 1e308),
    "gelu": (-9.09, -0.11788236022209998, -21.092379313818622, -17.413775541007176, -26.0, -37.5, -38.5,
             1e308, -1e308, -1e-300),
    "gelu tanh": (-9.09, -20.0, -21.5, -30.0, 1e308, -1e308, -1e-300),
    "gelu quick": (-379.4088121093107, -430.0, -440.0, 1e308, -1e308),
    "sinh": (710.4, -3.439183065148457, 0.49999, 710.475860073943),
    "cosh": (710.4, -2.0535257299073306, 710.475860073943),
    "erf": (0.5000000000000051, 0.49999999, 1.1e-8, 5.9),
    "erfcx": (-26.6, -0.3, 0.0035358276486730325, 1e10, 1.7976931348623157e308),
    "lgamma": (*_ZEROS_OF_LGAMMA, -2.5, -2.647, -2.65, -2.6504849946405984, -2.7, -2.708, -2.8316323212411416, -3.393,
               -10.00000355511183, -18.000000000000426, -19.000000000000004, -19.399, -19.4, -20.999999999999996,
               -1.65, -2.0),
    "digamma": (*_ZEROS_OF_DIGAMMA, -0.504083008264455, -971.8636468810507, -964.8635162598537, -1.82, -1.83, -2.0,
                -5.6671624415568855, -87.80536027839507, -2900.8805221260695, -17938.90120418923, -2.0**50 + 0.875),
    "normcdf": (-38.0, -0.7, 0.7, -6.138284953731933e-05, -1e9),
    "hardsigmoid": (-2.9999999999, -3.0000001),
    "hardswish": (-2.9999999999, -3.0000001),
}  # fmt: skip


@pytest.mark.parametrize("name", POINTS)
@pytest.mark.parametrize("count", [1, 5])
def test_hard_points(name: str, count: int) -> None:
    case = CASES[name]
    operand = np.repeat(np.array(POINTS[name]), count)  # one, and whole registers
    error, at, result = worst(case, [operand])
    assert error <= case.units, (at, result)


@pytest.mark.parametrize("name", ["sin", "tan", "tanh", "asinh", "silu", "erf", "sinh", "gelu", "mish", "hardswish"])
def test_zeros_keep_their_sign_and_nan_stays(name: str) -> None:
    result = _model(CASES[name].op, 1)(np.array([0.0, -0.0, math.nan, 1.0]))[0]
    assert result[:2].tolist() == [0, 0]
    assert np.signbit(result[:2]).tolist() == [False, True]
    assert np.isnan(result[2])


def test_limits_and_ends_of_domains() -> None:
    x = np.array([INF, -INF, -2.0])
    expected = {
        "sin": "nan nan", "cos": "nan nan", "tan": "nan nan", "tanh": "1 -1", "acosh": "inf nan nan",
        "acos": "nan nan nan", "sigmoid": "1 0", "sinh": "inf -inf", "cosh": "inf inf", "erf": "1 -1",
        "normcdf": "1 0", "hardsigmoid": "1 0",
    }  # fmt: skip
    for name, words in expected.items():
        want = np.array([float(word) for word in words.split()])
        result = _model(CASES[name].op, 1)(x)[0][: len(want)]
        assert np.array_equal(result, want, equal_nan=True), (name, result)


def _operators(graph: Graph) -> list[str]:
    return [node.op_type for node in lower(graph, "cpu", precision=None, runtime=NEWEST).nodes]


@pytest.mark.parametrize("op_type", ["Sin", "Cos", "Tanh", "Sigmoid"])
def test_imported_and_fast_nodes_keep_the_kernel(op_type: str) -> None:
    node = onnx.helper.make_node(op_type, ["x"], ["y"])
    values = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.DOUBLE, ["n"]) for name in "xy"]
    model = onnx.helper.make_model(onnx.helper.make_graph([node], "g", values[:1], values[1:]))
    assert _operators(Graph.load(model)) == [op_type]
    graph = Graph("g", {"x": TensorType("float64", ["n"])})
    with graph, gc.accuracy("fast"):
        graph.output(y=getattr(ops, op_type.lower())(graph["x"]))
    assert _operators(graph) == [op_type]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(CASES))
    parser.add_argument("--points", type=int, default=20_000)
    options = parser.parse_args()
    for name in options.names:
        start = time.perf_counter()
        error, operands, result = worst(CASES[name], points(CASES[name], options.points))
        print(f"{name:12} {error:12.4g} {operands} {result} {time.perf_counter() - start:.1f}s", flush=True)


if __name__ == "__main__":
    main()
