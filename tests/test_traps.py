"""Each trap of onnxruntime: right with its detour, and wrong without, so that no detour stays that is not needed.

With the runtime's own numbers changed by an update, the second half of a test fails: then the detour may go.
"""

from __future__ import annotations

import importlib
import platform
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType, ops
from graphcore.runtime.lowering.detours import DETOURS
from graphcore.runtime.lowering.legality import legality
from graphcore.runtime.lowering.wrong import ROUNDED, WRONG
from tests import reference
from tests.test_activation import ELEMENTWISE
from tests.traps import ALIKE, ELSEWHERE, PROBES, Array, Probe, is_wrong, operator

D = DType
F32 = D.float32
NAN, INF = float("nan"), float("inf")
LEGALITY = importlib.import_module("graphcore.runtime.lowering.legality")


# On other processors some kernels are right: those that divide and those of vector instructions.
WRONG_HERE = PROBES if platform.machine() in ("x86_64", "AMD64") else []

DEADLY = [place for place, probe in enumerate(PROBES) if WRONG_HERE and probe.dies]


def shown(probe: Probe) -> str:
    return f"{'+'.join(probe.rows)}-{probe.dtype}{'-dies' if probe.dies else ''}"


def without(probe: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes the probe's rows out of the table of detours."""
    for row in probe.rows:
        monkeypatch.delitem(DETOURS, (row, probe.dtype))


@pytest.fixture(autouse=True)
def table_is_read_anew() -> Any:
    yield
    LEGALITY.legality.cache_clear()


@pytest.mark.parametrize("probe", PROBES, ids=shown)
def test_detour_gives_the_right_numbers(probe: Probe) -> None:
    assert probe.is_right(probe.run())


@pytest.mark.parametrize("probe", [p for p in WRONG_HERE if not p.dies], ids=shown)
def test_numbers_are_wrong_when_the_detour_is_switched_off(probe: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    without(probe, monkeypatch)
    assert is_wrong(probe)


@pytest.mark.parametrize(
    "place", [i for i, p in enumerate(PROBES) if p in WRONG_HERE and p.dies], ids=lambda i: shown(PROBES[i])
)
def test_process_dies_when_the_detour_is_switched_off(place: int) -> None:
    script = (
        "from graphcore.runtime.lowering.detours import DETOURS\n"
        "from tests.traps import PROBES\n"
        f"probe = PROBES[{place}]\n"
        "for row in probe.rows:\n"
        "    del DETOURS[row, probe.dtype]\n"
        "probe.run()\n"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=120, check=False)
    assert ended.returncode < 0, ended.stderr.decode()


def test_every_detour_of_a_kernel_has_a_probe() -> None:
    """The others are for want of a kernel, which needs no proof."""
    rules = legality("cpu")
    probed = {(row, probe.dtype) for probe in PROBES for row in probe.rows}
    there = {row for row in DETOURS if rules.allows(*row)}
    assert there - probed - ALIKE - ELSEWHERE == set()
    assert there & ALIKE == ALIKE
    assert there & ELSEWHERE == ELSEWHERE
    assert probed <= DETOURS.keys()


# Kernels that are not used


def _group_norm(graph: Graph, x: Symbol) -> Any:
    one, zero = (graph.constant(np.full(2, v, x.dtype.numpy)) for v in (1, 0))
    return graph.op("GroupNormalization", [x, one, zero], {"num_groups": 2, "epsilon": 1e-5}, [x.type])


def _attention(graph: Graph, x: Symbol) -> Any:
    """Three features, so that there is a scale."""
    wide = ops.concat([x, x, x], 3)
    return graph.op("Attention", [wide, wide, x], None, [x.type])


SPREAD = 1e4 + np.arange(4) / 4
EVEN = (SPREAD - SPREAD.mean()) / np.sqrt(SPREAD.var() + 1e-5)
KEYS = np.array([0.1, 1.7, -2.3, 0.9])
SCORES = np.exp(3 * np.outer(KEYS, KEYS) / np.sqrt(3))
UNUSED: dict[tuple[str, DType], Probe] = {
    ("Attention", D.float64): Probe(
        D.float64,
        (),
        (KEYS.reshape(1, 1, 4, 1),),
        _attention,
        ((SCORES @ KEYS / SCORES.sum(1)).reshape(1, 1, 4, 1),),
    ),
    **{
        ("GroupNormalization", dtype): Probe(dtype, (), ([[SPREAD, SPREAD]],), _group_norm, ([[EVEN, EVEN]],))
        for dtype in (D.float32, D.float64)
    },
    **{
        ("Sign", dtype): Probe(
            D.float32,
            (),
            ([NAN, -2.0],),
            lambda graph, x, d=dtype: ops.sign(x.cast(d)).cast(D.float32),
            ([NAN, -1.0],),
        )
        for dtype in (D.float16, D.bfloat16)
    },
}


def test_every_kernel_that_is_not_used_has_a_probe() -> None:
    assert UNUSED.keys() == {(op, D.of(d)) for op, (dtypes, _) in WRONG["cpu"].items() for d in dtypes.split()}


@pytest.mark.parametrize(("op_type", "dtype"), UNUSED, ids=str)
def test_kernel_that_is_not_used_gives_other_numbers(
    op_type: str, dtype: DType, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe = UNUSED[op_type, dtype]
    assert probe.is_right(probe.run())
    real = LEGALITY.wrong
    monkeypatch.setattr(LEGALITY, "wrong", lambda target, op: frozenset() if op == op_type else real(target, op))
    LEGALITY.legality.cache_clear()
    assert is_wrong(probe)


def test_float16_kernels_are_not_used_for_they_do_not_round_between_ops(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    x, y = (random.standard_normal(300).astype(np.float16) for _ in range(2))
    product = reference._float(np.multiply, D.float16, x, y)
    want = reference.arithmetic("+", product, y, D.float16)
    probe = Probe(D.float16, (), (x, y), lambda graph, a, b: a * b + b, (want,))
    same = [np.array_equal(probe.run()[0], want)]
    monkeypatch.setitem(ROUNDED, "cpu", frozenset())
    monkeypatch.setattr(
        LEGALITY, "kernels", lambda target, real=LEGALITY.kernels: {
            op: row | ({D.float16} if op in ("Add", "Mul") else set()) for op, row in real(target).items()
        },
    )  # fmt: skip
    LEGALITY.legality.cache_clear()
    same.append(np.array_equal(probe.run()[0], want))
    assert same == [True, False]


# What has no detour of its own


def run(build: Callable[..., Any], *arrays: Array) -> Array:
    types = {f"x{i}": TensorType(D.of(a.dtype), [f"of_{n}" for n in a.shape]) for i, a in enumerate(arrays)}
    graph = Graph("one", types)
    graph.output(build(*graph.inputs))
    (result,) = gc.InferenceSession().load(graph)(*arrays)
    return np.asarray(result)


@pytest.mark.parametrize("dtype", [D.int32, D.float16, D.bfloat16, D.float32, D.float64], ids=str)
def test_mean_of_nothing_is_nan(dtype: DType) -> None:
    nothing = np.zeros((2, 0), dtype.numpy)
    for op in (ops.mean, ops.var, ops.stdev):
        assert np.isnan(run(lambda x, op=op: op(x, axis=1), nothing).astype(float)).tolist() == [True, True]
        assert np.isnan(run(op, nothing).astype(float))
        assert run(lambda x, op=op: op(x, axis=0), nothing).shape == (0,)
    (raw,) = Probe(
        D.float32, (), (nothing,), operator("ReduceMean", np.array([1]), keepdims=0), ([0, 0],), types=(D.float32,)
    ).run()
    assert raw.tolist() == [0, 0], "the runtime tells now: mean needs no Where"


@pytest.mark.parametrize("dtype", [D.float16, D.float32, D.float64], ids=str)
def test_softmax_of_nothing_but_minus_infinity_is_nan(dtype: DType) -> None:
    made = run(ops.softmax, np.array([[-INF, -INF], [0, -INF]], dtype.numpy))
    assert np.isnan(made[0]).all()
    assert made[1].tolist() == [1, 0]


@pytest.mark.parametrize(("op", "formula"), [(ops.gelu, "gelu"), (ops.elu, "elu"), (ops.celu, "elu")])
def test_tails_of_activations_are_as_near_as_promised(op: Callable[..., Any], formula: str) -> None:
    x = np.concatenate([-np.logspace(-8, 2, 400), np.logspace(-8, 2, 400)])
    want = np.where(x < 0, np.expm1(x), x) if formula == "elu" else ELEMENTWISE["gelu"][1](x.astype(np.float32))
    want = (
        np.where(x < 0, np.expm1(x.astype(np.float32).astype(float)), x.astype(np.float32))
        if formula == "elu"
        else want
    )
    got = run(op, x.astype(np.float32)).astype(float)
    assert (np.abs(got - want) <= np.maximum(np.abs(want) * 4 * 2.0**-23, 1e-6)).all()


@pytest.mark.parametrize("dtype", [D.float32, D.float64, D.float16, D.bfloat16], ids=str)
def test_numbers_too_small_to_be_normal_are_kept(dtype: DType) -> None:
    least = {D.float32: 2.0**-149, D.float64: 2.0**-1074, D.float16: 2.0**-24, D.bfloat16: 2.0**-133}[dtype]
    x = np.full(200_000, least, np.float64).astype(dtype.numpy)  # enough for several threads
    made = run(lambda s: (s + s) * 1.0 - s, x)
    assert (made == x).all()
    assert (made != 0).all()
