"""What the installed onnxruntime takes, asked of itself once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnxruntime

from graphcore.dtypes import DType
from graphcore.errors import RunError
from graphcore.graph import Graph
from graphcore.onnx.writer import IR_VERSION, OPSET
from graphcore.runtime.lowering.runtimes import Runtime, ordered, table_of
from graphcore.symbol import Constant
from graphcore.types import TensorType

Run: TypeAlias = Callable[[Sequence[str], Mapping[str, Any], Any], list[Any]]

_OLDEST = 25
"""The opset below which operators differ from those that graphs are built of."""


@functools.cache
def older() -> Runtime | None:
    """The installed release, where it is older than the one that files are written for; None where it is not.

    Raises `RunError` where it is too old to run graphs at all.
    """
    version = onnxruntime.__version__
    if ordered(version) >= ordered(table_of("cpu")["onnxruntime"]):
        return None
    opset = next((opset for opset in range(OPSET, _OLDEST - 1, -1) if takes(opset, IR_VERSION)), None)
    if opset is None:
        raise RunError(
            f"InferenceSession: onnxruntime {version} does not take opset {_OLDEST}",
            help="install a newer one: pip install -U onnxruntime",
        )
    return Runtime(version, opset)


def newest_opset() -> int:
    """The opset that sessions are given models of: the newest that graphs are written with and the installed takes."""
    runtime = older()
    return OPSET if runtime is None else runtime.opset


def broken(graph: Graph) -> tuple[str, ...]:
    """The optimisers of an older release that make something else of a lowered graph, or nodes without a kernel."""
    if older() is None:
        return ()
    is_double = any(isinstance(s.type, TensorType) and s.type.dtype is DType.float64 for s in graph._symbols)
    has_nothing = any(isinstance(s.producer, Constant) and not s.producer.array.size for s in graph._symbols)
    return (*(_SINGLE if is_double else ()), *(_NEUTRAL if has_nothing else ()))


_SINGLE = ("QuickGeluFusion", "MatmulTransposeFusion", "MatMulScaleFusion")
"""Their results have kernels in float32 alone, and they take float64 too."""

_NEUTRAL = ("NoopElimination",)
"""It takes a constant without elements for a 0 that is added, or a 1 that is multiplied with."""


def kept_apart(run: Run, names: Collection[str]) -> Run:
    """What runs a session whose outputs of these names are inputs as well.

    An older release gives the memory of such an input and does not keep it alive: they are copied.
    """
    if older() is None or not names:
        return run

    def copying(asked: Sequence[str], feed: Mapping[str, Any], options: Any) -> list[Any]:
        made = zip(asked, run(asked, feed, options), strict=True)
        return [a.copy() if name in names and isinstance(a, np.ndarray) else a for name, a in made]

    return copying


def takes(opset: int, ir: int) -> bool:
    """Whether the installed onnxruntime takes models of an opset, asked with one of one node."""
    from onnx import helper

    value = [helper.make_tensor_value_info(name, 1, [1]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "probe", value[:1], value[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception:
        return False
    return True
