"""Each trap of onnxruntime: right on every release with its decompositions, wrong without on those that have it.

A trap that an installed release was not seen to have, or a release that was not measured, is not asked for it.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore import DType, Graph, TensorType, ops
from graphcore.runtime.lowering import functions as custom_ops
from graphcore.runtime.lowering.build import casts
from graphcore.runtime.lowering.decompositions import older, recurrent
from graphcore.runtime.lowering.decompositions.rows import DECOMPOSITIONS, OLDER_TRAPS
from graphcore.runtime.lowering.pipeline import WORKAROUNDS
from graphcore.runtime.lowering.targets import TARGETS, traps
from graphcore.runtime.lowering.targets.legality import legality
from graphcore.runtime.lowering.targets.releases import Runtime, table_of
from graphcore.runtime.ort import optimisers
from graphcore.runtime.ort import release as installed
from tests.ops.test_activation import ELEMENTWISE
from tests.support.graphs import Array
from tools.kernel_probe import probing
from tools.kernel_probe.probes.probe import Probe, operator, outcome
from tools.kernel_probe.probing import probes
from tools.kernel_probe.probing import traps as probed
from tools.kernel_probe.workers import Worker

D = DType
INF = float("inf")
ALIKE = {"ReduceL2 int64", "ReduceMax uint8"}
"""Kernels that were right in every release, in a row of decompositions with others that were not."""

UNWRITTEN = {"LSTM without features"}
"""Traps that give what lies in memory, which is right where it happens to be zeros."""

PLACES = {id(probe): place for place, probe in enumerate(probes())}
FIRST = {id(probe): name for name, trap in reversed(list(probed().items())) for probe in trap.probes}
"""The trap by whose name a probe of several is run."""


@pytest.mark.parametrize("name", probed())
def test_results_are_right_as_things_are(name: str) -> None:
    mine = [probe for probe in probed()[name].probes if FIRST[id(probe)] == name]
    wrong = {PLACES[id(probe)]: detail for probe in mine if (detail := outcome(probe))}
    assert not wrong


@pytest.fixture(scope="module")
def worker() -> Iterator[Callable[[int], str]]:
    """Run a probe without its decompositions, in a process that it may end; return its outcome."""
    workers: list[Worker] = []

    def ask(place: int) -> str:
        if not workers:
            workers.append(Worker(probing.ask))
        answer = workers[0].ask(place, True)
        if isinstance(answer, tuple):
            return str(answer[0])
        workers.clear()
        return probing.WRONG

    yield ask
    for each in workers:
        each.end()


@pytest.mark.parametrize("name", sorted(traps.trap_ranges().ranges))
def test_results_are_wrong_when_decompositions_are_switched_off(name: str, worker: Callable[[int], str]) -> None:
    version = installed.runtime().version
    if version not in traps.trap_ranges().releases:
        pytest.skip(f"onnxruntime {version} was not measured")
    if not traps.trap_ranges().ranges[name].includes(version):
        pytest.skip(f"onnxruntime {version} was not seen to have it")
    if platform.machine() not in ("x86_64", "AMD64"):
        pytest.skip("the traps were measured on x86, and on other processors some kernels are right")
    tried = sorted(probed()[name].probes, key=lambda probe: probe.dies)
    is_told = False
    for probe in tried:
        state = worker(PLACES[id(probe)])
        if state == probing.WRONG:
            return
        is_told |= state == probing.RIGHT
    if not is_told:
        pytest.skip(f"onnxruntime {version} has no kernel to be wrong")
    if name in UNWRITTEN:
        pytest.skip("the memory that it reads held zeros")
    pytest.fail("every probe is right without: its range may end")


# Which traps there are


def _named() -> set[str]:
    """Every name by which lowering and sessions ask whether there is a trap, as far as a measured release has it."""
    rows = {traps.of_kernel(*row) for row in DECOMPOSITIONS if any(rules.allows(*row) for rules in _releases())}
    rows |= {traps.of_kernel(*row) for row in OLDER_TRAPS}
    rows |= {older.trap(*row) for row in older.rows_of_empty({})}
    rows |= {
        traps.of_kernel(op, D.of(d)) for op, (dtypes, _) in TARGETS["cpu"].incorrect.items() for d in dtypes.split()
    }
    rows |= {f"{dtype} kernels" for dtype in TARGETS["cpu"].rounded}
    rows |= {f"optimiser {name}" for sign in optimisers.RISKY_PATTERNS.values() for name in sign.names}
    rows |= {trap for names in recurrent.ENDS.values() for trap in names.values()}
    rows |= {workaround.name for workaround in WORKAROUNDS if "processor" not in workaround.when}
    rows |= {casts.MERGED, casts.SATURATES, casts.TWICE, casts.OVERFLOWS, casts.FLOAT8_TO_BOOL, casts.PARTS}
    rows |= {
        installed.MEMORY,
        traps.NARROW_SCALES,
        custom_ops.STATISTICS,
        traps.REVERSED_EMPTY,
        traps.REVERSED_ONE_AXIS,
        recurrent.FLAT,
        traps.COUNTED_PADDING,
    }
    sources = Path(traps.__file__).resolve().parents[2].rglob("*.py")
    requested = re.compile(r'(?:has_trap|in_force)\("([^"]+)"')
    return rows | {name for source in sources for name in requested.findall(source.read_text())}


def _releases() -> list[Any]:
    measured = [r for r in table_of("cpu").releases if r.version in traps.trap_ranges().releases]
    return [legality("cpu", Runtime(r.version, r.opset, r.ir)) for r in measured]


def test_every_trap_that_is_named_has_a_probe_and_every_probe_a_trap() -> None:
    assert probed().keys() == _named()


def test_every_trap_has_the_releases_it_was_seen_in() -> None:
    assert traps.trap_ranges().ranges.keys() == probed().keys() - ALIKE


def test_releases_with_traps_are_measured_ones() -> None:
    assert {*traps.trap_ranges().releases} <= {release.version for release in table_of("cpu").releases}


# Without a decomposition of their own


def run(build: Callable[..., Any], *arrays: Array) -> Array:
    types = {f"x{i}": TensorType(D.of(a.dtype), [f"of_{n}" for n in a.shape]) for i, a in enumerate(arrays)}
    graph = Graph("one", types)
    graph.output(build(*graph.inputs))
    (result,) = gc.InferenceSession().load(graph)(*arrays)
    return np.asarray(result)


@pytest.mark.parametrize("dtype", [D.int32, D.float16, D.bfloat16, D.float32, D.float64], ids=str)
def test_mean_is_nan_when_x_is_empty(dtype: DType) -> None:
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
def test_softmax_is_nan_when_all_are_minus_infinity(dtype: DType) -> None:
    result = run(ops.softmax, np.array([[-INF, -INF], [0, -INF]], dtype.numpy))
    assert np.isnan(result[0]).all()
    assert result[1].tolist() == [1, 0]


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
    result = run(lambda s: (s + s) * 1.0 - s, x)
    assert (result == x).all()
    assert (result != 0).all()
