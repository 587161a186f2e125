"""Probes: each a small graph on which onnxruntime fails or gives other numbers unless a trap is avoided."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import onnxruntime

from graphcore.arrays.casting import Array
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol
from graphcore.ir.transform.walk import operators
from graphcore.onnx.proto.model_proto import encode, join
from graphcore.runtime.lowering import lower
from graphcore.runtime.lowering.targets.legality import legality
from graphcore.runtime.lowering.targets.traps import of_kernel
from graphcore.runtime.ort import release
from graphcore.runtime.session import InferenceSession
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

D = DType
NAN, INF = float("nan"), float("inf")
SIGNED = (D.int8, D.int16, D.int32, D.int64)
UNSIGNED = (D.uint8, D.uint16, D.uint32, D.uint64)
INTEGERS = (*SIGNED, *UNSIGNED)
LONG = (D.int32, D.int64)
WIDE = (D.float32, D.float64)


@dataclass(frozen=True, slots=True)
class Probe:
    """Of a dtype: the operands' numbers, what to build with them, and the results that are right.

    rows: the operators whose kernel for the dtype is a trap. names: the traps that are not kernels. numbers: one list
    for each operand, of the dtype or another. beside: traps whose decompositions hide the one that is probed.
    """

    dtype: DType
    rows: tuple[str, ...]
    numbers: tuple[Any, ...]
    build: Callable[..., Any]
    want: tuple[Any, ...]
    types: tuple[DType, ...] = ()
    gives: tuple[DType, ...] = ()
    names: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    dies: bool = False
    """Without its decomposition the process ends."""
    before: tuple[Any, ...] = ()
    """Operands of runs that come first, whose results leave numbers in the memory that is used again."""
    is_known: bool = False
    """True if the sizes of the operands are known when the graph is lowered."""
    dims: tuple[tuple[str | int, ...], ...] = ()
    """Those of the operands, where not all are known or all are not."""
    in_session: bool = False
    """True if a session of graphcore runs it, False for onnxruntime alone."""
    near: float = 0.0
    """The tolerance of a result, relative to the greatest of them."""
    needs: str = ""
    """The operator that the session has to come to for the probe to tell anything."""

    @property
    def traps(self) -> tuple[str, ...]:
        """Return the names of the traps that the probe shows."""
        return (*self.names, *(of_kernel(row, self.dtype) for row in self.rows))

    @property
    def has_kernel(self) -> bool:
        """Return True if the installed release has the kernels, so that the probe tells anything of it."""
        rules = legality("cpu", release.runtime())
        if self.needs:
            graph = lower(self.graph(), "cpu", runtime=release.runtime(), optimize="all")
            if self.needs not in {op_type for op_type, _ in operators(graph)}:
                return False
        return all(rules.allows(row, self.dtype) for row in self.rows)

    def operands(self, numbers: Sequence[Any] | None = None) -> list[Array]:
        types = self.types or (self.dtype,) * len(self.numbers)
        value = self.numbers if numbers is None else numbers
        return [np.asarray(n).astype(d.numpy) for n, d in zip(value, types, strict=True)]

    def graph(self) -> Graph:
        types = self.types or (self.dtype,) * len(self.numbers)
        results = {
            f"x{i}": TensorType(d, self._dims(i, array))
            for i, (d, array) in enumerate(zip(types, self.operands(), strict=True))
        }
        graph = Graph("probe", results)
        result = self.build(graph, *graph.inputs)
        graph.output(*(result if isinstance(result, (tuple, list)) else (result,)))
        return graph

    def _dims(self, place: int, array: Array) -> list[str | int]:
        if self.dims:
            return list(self.dims[place])
        if self.before:  # sizes of several runs share no names
            return [f"of_{place}_{axis}" for axis in range(array.ndim)]
        return list(array.shape) if self.is_known else [f"of_{size}" for size in array.shape]

    def run(self) -> list[Array]:
        """Return the results in a plain session with its default optimisations, of a file for the installed release."""
        graph = self.graph()
        if self.in_session:
            model = InferenceSession().load(graph)
            model._empty_models = None  # the kernels are asked, not what stands in where they fail on empty arrays
            return [np.asarray(r) for r in model(*self.operands())]
        session = bare(graph)
        names = [s.name for s in graph.inputs]
        for _ in range(3 if self.before else 0):
            session.run(None, dict(zip(names, self.operands(self.before), strict=True)))
        return [np.asarray(r) for r in session.run(None, dict(zip(names, self.operands(), strict=True)))]

    def is_right(self, results: Sequence[Array]) -> bool:
        gives = self.gives or (self.dtype,) * len(self.want)
        wanted = [np.asarray(w).astype(d.numpy) for w, d in zip(self.want, gives, strict=True)]
        return len(results) == len(wanted) and all(
            got.dtype == want.dtype and np.allclose(got, want, rtol=0, atol=self.near * float(np.abs(want).max()))
            if self.near
            else _same(got, want)
            for got, want in zip(results, wanted, strict=True)
        )

    def finds(self) -> str:
        """Return a description of what is wrong; "" if nothing is."""
        results = self.run()
        return "" if self.is_right(results) else f"gives {', '.join(_shown(r) for r in results)}"[:200]


@dataclass(frozen=True, slots=True)
class Check:
    """A probe that is not one comparison of numbers. test: what is wrong; nothing where all is right."""

    names: tuple[str, ...]
    test: Callable[[], str]
    beside: tuple[str, ...] = ()
    dies: bool = False

    @property
    def traps(self) -> tuple[str, ...]:
        return self.names

    @property
    def has_kernel(self) -> bool:
        return True

    def finds(self) -> str:
        return self.test()


AnyProbe: TypeAlias = Probe | Check


@dataclass(frozen=True, slots=True)
class Family:
    """Traps of one kind. what: the sentence that says what is wrong."""

    what: str
    probes: Sequence[AnyProbe]


def bare(graph: Graph) -> onnxruntime.InferenceSession:
    """Return onnxruntime's own session of what a file for the installed release has."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(written(graph), options, providers=["CPUExecutionProvider"])


def written(graph: Graph) -> bytes:
    """Return the bytes of a file for the installed release."""
    runtime = release.runtime()
    return join(encode(lower(graph, "cpu", runtime=runtime), ir=runtime.ir))


def outcome(probe: AnyProbe) -> str:
    """Return a description of what is wrong, also an error; "" if nothing is."""
    try:
        return probe.finds()
    except Exception as error:  # its errors have no common class
        return f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0][:160]}"


def operator(op_type: str, /, *constants: Any, **attributes: Any) -> Any:
    """Return one operator of ONNX, after whose operands come constants."""

    def build(graph: Graph, *symbols: Symbol) -> tuple[Symbol, ...]:
        after = [c if c is None else graph.constant(c) for c in constants]
        return graph.op(op_type, [*symbols, *after], attributes or None)

    return build


def reduction(op_type: str, *axes: int, **attributes: Any) -> Any:
    """Return a reduction along axes, which go; by default along the second."""
    return operator(op_type, np.array(axes or (1,)), **{"keepdims": 0, **attributes})


def _same(got: Array, want: Array) -> bool:
    if (got.dtype, got.shape) != (want.dtype, want.shape):
        return False
    if got.dtype.kind != "f":
        return bool((got == want).all())
    with np.errstate(invalid="ignore", over="ignore"):
        near = np.abs(got - want) <= np.abs(want) * (1e-12 if got.dtype == np.float64 else 1e-6)
        near &= np.isfinite(want)
    alike = (got == want) & (np.signbit(got) == np.signbit(want))
    return bool((alike | (np.isnan(got) & np.isnan(want)) | (near & (want != 0))).all())


def _shown(array: Array) -> str:
    return f"{array.dtype}{list(array.shape)} {np.ravel(array)[:6].tolist()}"
