"""`python -m tests.support.backend.worker`: runs node tests of ONNX, so that a crash ends no more than this process.

Reads lines of a way (of `WAYS`) and the name of a test, and writes for each one line: how it went. Before that, the
names of all.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx.backend.test.case.node import collect_testcases

import graphcore as gc
from graphcore.arrays.external_data import Folder
from graphcore.onnx.proto.tensors import array_of
from tests.support.backend import bare
from tests.support.backend.rebuilding import rebuilt


def value(given: Any) -> Any:
    """An input or an expected output: an array, a list of them, or None."""
    if isinstance(given, onnx.TensorProto):
        return array_of(given, Folder(None))[0]
    if isinstance(given, (list, tuple)):
        return [value(v) for v in given]
    return None if given is None else np.asarray(given)


def compared(found: Any, wanted: Any, rtol: float, atol: float) -> str:
    """ "ok", or how the two differ: `type` for other kinds, dtypes or shapes, `values` for other numbers.

    `near`: by no more than two units in the last place of a float of 16 bits.
    """
    if wanted is None or isinstance(wanted, list):
        if wanted is None or not isinstance(found, list) or len(found) != len(wanted):
            return "ok" if found is None and wanted is None else f"type: {found!r:.80} for {wanted!r:.80}"
        return next((c for f, w in zip(found, wanted, strict=True) if (c := compared(f, w, rtol, atol)) != "ok"), "ok")
    is_text = wanted.dtype.kind in "OUST"
    if found.shape != wanted.shape or (found.dtype != wanted.dtype and not (is_text and found.dtype.kind in "OUST")):
        return f"type: {found.dtype}{list(found.shape)} for {wanted.dtype}{list(wanted.shape)}"
    if is_text:
        return "ok" if (found.astype(str) == wanted.astype(str)).all() else "values"
    kind = np.complex128 if wanted.dtype.kind == "c" else np.float64
    is_near = np.allclose(found.astype(kind), wanted.astype(kind), rtol=rtol, atol=atol, equal_nan=True)
    if is_near:
        return "ok"
    if wanted.dtype.itemsize == 2 and wanted.dtype.kind not in "iu":
        step = float(ml_dtypes.finfo(wanted.dtype).eps)  # type: ignore[no-untyped-call]
        if np.allclose(found.astype(kind), wanted.astype(kind), rtol=2 * step, atol=atol, equal_nan=True):
            return "near"
    return "values"


def outcome(case: Any, load: Callable[[onnx.ModelProto], Any]) -> str:
    """Return the outcome of a test: "ok", `load`, `run`, `type`, `values` or `near`, and why. load: loads a model."""
    try:
        model = load(case.model)
    except Exception as error:
        return f"load: {type(error).__name__}: {error}"
    for inputs, outputs in case.data_sets:
        try:
            found: Sequence[Any] = model(**dict(zip(model.inputs, map(value, inputs), strict=False)))
        except Exception as error:
            return f"run: {type(error).__name__}: {error}"
        wanted = [value(o) for o in outputs]
        made = compared(list(found), wanted, case.rtol, case.atol)
        if made != "ok":
            return made
    return "ok"


def ways(folder: Path) -> Mapping[str, Callable[[onnx.ModelProto], Any]]:
    """By name what loads a model: graphcore or onnxruntime itself, the model or what is exported of it.

    `rebuilt`: the graph that calls of `ops.onnx` make of the model's nodes.
    """
    session = gc.InferenceSession()

    def exported(model: onnx.ModelProto) -> str:
        path = str(folder / "model.onnx")
        gc.Graph.load(model).export(path, target="onnx")
        onnx.checker.check_model(path, full_check=_is_inferred(model))
        return path

    return {
        "loaded": session.load,
        "rebuilt": lambda model: session.load(rebuilt(model)),
        "exported": lambda model: session.load(exported(model)),
        "bare": lambda model: bare.Bare(model.SerializeToString()),
        "exported-bare": lambda model: bare.Bare(exported(model)),
    }


def _is_inferred(model: onnx.ModelProto) -> bool:
    """Return whether ONNX's inference takes the model: it refuses ONNX's own body of MeanVarianceNormalization."""
    try:
        onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    except onnx.shape_inference.InferenceError:
        return False
    return True


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what kernels print is no answer
    cases = {case.name: case for case in collect_testcases(None)}
    print(json.dumps(list(cases)), file=answers, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        loads = ways(Path(folder))
        for line in sys.stdin:
            way, name = line.split()
            print(json.dumps(outcome(cases[name], loads[way])), file=answers, flush=True)


if __name__ == "__main__":
    main()
