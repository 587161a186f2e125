"""What the installed onnxruntime takes, asked of itself once."""

from __future__ import annotations

import functools

import onnxruntime
from onnx import helper

from graphcore.dtypes import DType
from graphcore.errors import RunError
from graphcore.graph import Graph
from graphcore.onnx.writer import IR_VERSION, OPSET
from graphcore.runtime.lowering.runtimes import Runtime, ordered, table_of
from graphcore.types import TensorType

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
    """The optimisers of an older release that make nodes of a lowered graph which it has no kernel for."""
    is_double = older() is not None and any(
        isinstance(s.type, TensorType) and s.type.dtype is DType.float64 for s in graph._symbols
    )
    return _SINGLE if is_double else ()


_SINGLE = ("QuickGeluFusion", "MatmulTransposeFusion", "MatMulScaleFusion")
"""Their results have kernels in float32 alone, and they take float64 too."""


def takes(opset: int, ir: int) -> bool:
    """Whether the installed onnxruntime takes models of an opset, asked with one of one node."""
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
