"""The suites of `graphcore conform`, and the process that runs their cases.

The process, `python -m graphcore.conformance.suites SUITE RUNTIME PROVIDER`, prints the names of the cases as JSON.
Then it reads a name a line, and prints the outcome of that case. A kernel that crashes ends no more than this process.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import onnx

from graphcore.arrays.external_data import Folder
from graphcore.conformance import cells, runtimes
from graphcore.onnx.proto.tensors import array_of

_NODE_TESTS = "onnx.backend.test.case.node"


@dataclass(frozen=True, slots=True)
class CellCase:
    """A cell of `cells` with the fields of ONNX's test cases."""

    name: str
    model: Any
    data_sets: Sequence[tuple[Sequence[Any], Sequence[Any]]]
    rtol: float
    atol: float = 0.0


def node_modules() -> list[str]:
    """Return the modules of ONNX's node tests, those of the domain ai.onnx.ml after the name of their package."""
    package, prefix = importlib.import_module(_NODE_TESTS), f"{_NODE_TESTS}."
    return [info.name.removeprefix(prefix) for info in pkgutil.walk_packages(package.__path__, prefix)]


def node_tests(*modules: str) -> dict[str, Any]:
    """Return ONNX's backend tests of single nodes, by name. modules: of `node_modules`; by default all."""
    package = importlib.import_module(_NODE_TESTS)
    results: dict[str, Any] = {}
    for name in modules or node_modules():
        if name not in _collected:
            before = len(package._NodeTestCases)
            importlib.import_module(f"{_NODE_TESTS}.{name}")
            _collected[name] = package._NodeTestCases[before:]
        results |= {case.name: case for case in _collected[name]}
    return results


_collected: dict[str, list[Any]] = {}


def cell_cases(as_graph: bool) -> dict[str, CellCase]:
    """Return the cells by name, as graphs or as models of one operator."""
    make = cells.graph_of if as_graph else cells.onnx_model
    results = {}
    for cell in cells.CELLS:
        arrays = cells.operands(cell)
        want = cells.expected(cell, *arrays)
        inexact = cell.op in ("pow", "mean", "div") and want.dtype.kind not in "iub"
        rtol = 2 * float(ml_dtypes.finfo(want.dtype).eps) if inexact else 0.0  # type: ignore[no-untyped-call]
        name = " ".join([cell.op, cell.left.name, *([] if cell.right is None else [cell.right.name])])
        results[name] = CellCase(name, _Lazy(make, cell, arrays), [(arrays, [want])], rtol)
    return results


@dataclass(frozen=True, slots=True)
class _Lazy:
    """A model that is made when its case runs."""

    make: Callable[..., Any]
    cell: cells.Cell
    arrays: tuple[Any, ...]

    def __call__(self) -> Any:
        return self.make(self.cell, *self.arrays)


def value_of(data: Any) -> Any:
    """Return an input or expected output of a test as an array, a list of them, or None."""
    if isinstance(data, onnx.TensorProto):
        return array_of(data, Folder(None))[0]
    if isinstance(data, (list, tuple)):
        return [value_of(v) for v in data]
    return None if data is None else np.asarray(data)


def difference(result: Any, want: Any, rtol: float, atol: float) -> str:
    """Return "ok", `type: ...` for other kinds, dtypes or shapes, "values" for other numbers, or "near".

    near: numbers that differ by no more than two units in the last place of a float of 16 bits.
    """
    if want is None or isinstance(want, list):
        if want is None or not isinstance(result, list) or len(result) != len(want):
            return "ok" if result is None and want is None else f"type: {result!r:.80} for {want!r:.80}"
        return next((c for f, w in zip(result, want, strict=True) if (c := difference(f, w, rtol, atol)) != "ok"), "ok")
    result = np.asarray(result)
    is_text = want.dtype.kind in "OUST"
    if result.shape != want.shape or (result.dtype != want.dtype and not (is_text and result.dtype.kind in "OUST")):
        return f"type: {result.dtype}{list(result.shape)} for {want.dtype}{list(want.shape)}"
    if is_text:
        return "ok" if (result.astype(str) == want.astype(str)).all() else "values"
    kind = np.complex128 if want.dtype.kind == "c" else np.float64
    if np.allclose(result.astype(kind), want.astype(kind), rtol=rtol, atol=atol, equal_nan=True):
        return "ok"
    if want.dtype.itemsize == 2 and want.dtype.kind not in "iu":
        step = float(ml_dtypes.finfo(want.dtype).eps)  # type: ignore[no-untyped-call]
        if np.allclose(result.astype(kind), want.astype(kind), rtol=2 * step, atol=atol, equal_nan=True):
            return "near"
    return "values"


def outcome(case: Any, load: Callable[[Any], Any]) -> str:
    """Return "ok", or what went wrong: `load: ...`, `run: ...`, or a `difference`."""
    try:
        model = load(case.model() if isinstance(case.model, _Lazy) else case.model)
    except Exception as error:
        return f"load: {type(error).__name__}: {error}"
    for inputs, outputs in case.data_sets:
        try:
            results: Sequence[Any] = model(**dict(zip(model.inputs, map(value_of, inputs), strict=False)))
        except Exception as error:
            return f"run: {type(error).__name__}: {error}"
        result = difference(list(results), [value_of(o) for o in outputs], case.rtol, case.atol)
        if result != "ok":
            return result
    return "ok"


SUITES: Mapping[str, Callable[[str], Mapping[str, Any]]] = {
    "onnx": lambda runtime: node_tests(),
    "dtypes": lambda runtime: cell_cases(as_graph=runtime == "graphcore"),
}
"""By name, what returns the cases of a suite for a runtime."""


def main() -> None:
    suite, runtime, provider = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # kernels print to stdout
    warnings.simplefilter("ignore")
    load = runtimes.RUNTIMES[runtime](provider)
    cases = SUITES[suite](runtime)
    print(json.dumps(list(cases)), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(outcome(cases[line.rstrip("\n")], load)), file=answers, flush=True)


if __name__ == "__main__":
    main()
