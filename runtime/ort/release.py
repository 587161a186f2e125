"""The installed release of onnxruntime: what it takes and has, from the measured tables, or asked of itself once."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import onnxruntime

from graphcore.errors import RunError
from graphcore.ir.graph import Graph, TargetName
from graphcore.ir.symbol import Constant
from graphcore.ir.transform.walk import parts
from graphcore.onnx.opset import IR_VERSION, OPSET
from graphcore.onnx.proto.model_proto import encode, join
from graphcore.runtime.lowering.targets.releases import OLDEST_OPSET, Release, Runtime, table_of
from graphcore.runtime.lowering.targets.traps import in_force
from graphcore.runtime.ort.kernel_registry import KernelRegistry, has_cuda
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

LOG = logging.getLogger("graphcore")

Run: TypeAlias = Callable[[Sequence[str], Mapping[str, Any], Any], list[Any]]


@functools.cache
def runtime() -> Runtime:
    """Return the installed release, as what sessions lower for.

    A release that was measured has its table. Another one is asked which opset it takes and which kernels it has, and a
    line of level INFO says so. Raises `RunError` where it is too old to run graphs at all.
    """
    version = onnxruntime.__version__
    release = measured_release()
    if release is not None:
        return Runtime(
            version, min(release.opset, OPSET), min(release.ir, IR_VERSION), saturates=saturates, many_rows=many_rows
        )
    opset = newest_opset()
    if opset < OLDEST_OPSET:
        raise RunError(
            f"InferenceSession: onnxruntime {version} does not take opset {OLDEST_OPSET}",
            help="install a newer one: pip install -U onnxruntime",
        )
    registry = KernelRegistry.installed()
    table = table_of("cpu")
    LOG.info(
        "%sonnxruntime %s was not measured: graphs are lowered by the table of %s%s, with every trap of it",
        "this build of " if table.measures(version) else "",
        version,
        table.nearest(version).version,
        "" if registry is None else " and the kernels that the build lists",
    )
    return Runtime(version, opset, newest_ir(), registry, saturates=saturates, many_rows=many_rows)


def measured_release() -> Release | None:
    """Return the measured release that is installed; None where it was not measured, or is another build of it.

    Of a build with CUDA the kernels of both providers have to be measured.
    """
    version, commit = onnxruntime.__version__, build_commit()
    targets: tuple[TargetName, ...] = ("cpu", "cuda") if has_cuda() else ("cpu",)
    found = [
        next((r for r in table_of(target).releases if r.version == version and commit.startswith(r.commit)), None)
        for target in targets
    ]
    return None if None in found else found[0]


def build_commit() -> str:
    """Return the commit that the installed build was made from; nothing where it does not say so."""
    said: str = getattr(onnxruntime, "get_build_info", str)()
    return next((part.strip().partition("=")[2] for part in said.split(",") if "git-commit-id=" in part), "")


MEMORY = "memory of parts of bytes"
_PARTS = frozenset({DType.int2, DType.uint2, DType.int4, DType.uint4})


def memory(graph: Graph) -> dict[str, Any]:
    """Return the options of a session in which no value of a lowered graph lies where there is no room for it.

    Some releases put bytes where as many integers of 2 or 4 bits were: nothing is used again then.
    """
    if not in_force(MEMORY, runtime()):
        return {}
    has_parts = any(
        isinstance(s.type, TensorType) and s.type.dtype in _PARTS and not isinstance(s.producer, Constant)
        for part in parts(graph)
        for s in part.symbols
    )
    return {"enable_mem_reuse": False} if has_parts else {}


def kept_apart(run: Run, names: Collection[str]) -> Run:
    """Return what runs a session whose outputs of these names are inputs as well.

    Some releases give the memory of such an input and do not keep it alive: they are copied.
    """
    if not names or not in_force("output that is an input", runtime()):
        return run

    def copying(asked: Sequence[str], feed: Mapping[str, Any], options: Any) -> list[Any]:
        made = zip(asked, run(asked, feed, options), strict=True)
        return [a.copy() if name in names and isinstance(a, np.ndarray) else a for name, a in made]

    return copying


def takes(opset: int, ir: int = 8) -> bool:
    """Return whether the installed onnxruntime takes models of an opset, asked with one of one node."""
    graph = Graph("probe", {"x": TensorType(DType.float32, [1])})
    kind = graph["x"].type  # told, since to infer it imports onnx: 45 ms
    graph.output(y=graph.op("Identity", list(graph.inputs), {}, [kind])[0])
    graph.opsets[""] = opset
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        onnxruntime.InferenceSession(join(encode(graph, ir=ir)), options, providers=["CPUExecutionProvider"])
    except Exception:
        return False
    return True


def newest_opset() -> int:
    """Return the newest opset that the installed onnxruntime takes and graphs are written at, asked of it."""
    return next((opset for opset in range(OPSET, 7, -1) if takes(opset)), 0)


def newest_ir() -> int:
    """Return the newest version of the file format that it takes and graphs are written in, asked of it."""
    return next((ir for ir in range(IR_VERSION, 8, -1) if takes(17, ir)), 8)


# Products of bytes on this processor: whether they saturate, and from how many rows on they pay beside 4 bits.

ROWS = {"amx_int8": 128, "avx512_vnni": 224}
"""By the sets of instructions that onnxruntime's kernels look for, the best first; of others nothing is known.

Making bytes of 4 bits takes 1.2 ns a number, whatever the rows. Each row then takes so many picoseconds a number:

| | MatMulNBits, blocks of 128 | MatMulIntegerToFloat | so they are even at |
|---|---|---|---|
| AVX512-VNNI, onnxruntime 1.32 | 11.3 | 4.9 | 190 rows |
| AMX, onnxruntime 1.31 | 12 and more | 1.5 | 115 rows |
"""

_CPUINFO = "/proc/cpuinfo"


@functools.cache
def saturates() -> bool:
    """Return whether onnxruntime's products of unsigned with signed bytes saturate here, as far as one tells by trying.

    x86 processors without VNNI add pairs of such products in 16 bits. True where there is no onnxruntime to try.
    """
    try:
        import onnxruntime
    except ImportError:
        return True
    from onnx import TensorProto, helper, numpy_helper

    inner, columns = 64, 16
    graph = helper.make_graph(
        [helper.make_node("MatMulInteger", ["x", "w"], ["y"])],
        "saturation",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, [None, inner])],
        [helper.make_tensor_value_info("y", TensorProto.INT32, [None, columns])],
        [numpy_helper.from_array(np.full((inner, columns), 127, np.int8), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    sums = [session.run(None, {"x": np.full((rows, inner), 255, np.uint8)})[0] for rows in (1, 8)]
    return any(bool((s != 255 * 127 * inner).any()) for s in sums)


@functools.cache
def many_rows() -> int | None:
    """Return the rows from which on bytes are faster here; None where that is not known, as off Linux."""
    try:
        with open(_CPUINFO, encoding="utf-8", errors="replace") as file:
            line = next((line for line in file if line.startswith("flags")), "")
    except OSError:
        return None
    found = rows_of(frozenset(line.split()))
    return None if found is None or saturates() else found


def rows_of(flags: frozenset[str]) -> int | None:
    """Return the same for a processor of these flags, in the names that Linux has for them."""
    return next((rows for name, rows in ROWS.items() if name in flags), None)
