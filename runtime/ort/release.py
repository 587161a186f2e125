"""The installed release of onnxruntime: its opsets and kernels, from the measured tables or by probing it once."""

from __future__ import annotations

import functools
import json
import logging
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Protocol, TypeAlias

import numpy as np
import onnxruntime

from graphcore.errors import DTypeError, RunError
from graphcore.ir.graph import Graph, TargetName
from graphcore.ir.symbol import Constant
from graphcore.ir.transform.walk import parts
from graphcore.onnx.notes import IR_VERSION, OPSET
from graphcore.onnx.proto.model_proto import encode, join
from graphcore.runtime.lowering.targets.legality import BY_RESULT, PRIMARY
from graphcore.runtime.lowering.targets.releases import OLDEST_OPSET, Release, Runtime, table_of
from graphcore.runtime.lowering.targets.traps import in_force
from graphcore.runtime.ort.transport_dtypes import dtype_named
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

LOG = logging.getLogger("graphcore")

Run: TypeAlias = Callable[[Sequence[str], Mapping[str, Any], Any], list[Any]]


@functools.cache
def runtime() -> Runtime:
    """Return the installed release, which sessions lower for.

    A measured release has its table. Any other release is probed for its newest opset and its kernels, and a line of
    level INFO says so. Raises `RunError` if the release is too old to run graphs.
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
            f"InferenceSession: onnxruntime {version} does not support opset {OLDEST_OPSET}",
            help="install a newer release: pip install -U onnxruntime",
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
    """Return the measured release that is installed; None if it was not measured, or is another build of it.

    For a build with CUDA, the kernels of both providers must be measured.
    """
    version, commit = onnxruntime.__version__, build_commit()
    targets: tuple[TargetName, ...] = ("cpu", "cuda") if has_cuda() else ("cpu",)
    releases = [
        next((r for r in table_of(target).releases if r.version == version and commit.startswith(r.commit)), None)
        for target in targets
    ]
    return None if None in releases else releases[0]


def build_commit() -> str:
    """Return the commit of the installed build; "" if it does not report one."""
    build_info: str = getattr(onnxruntime, "get_build_info", str)()
    return next((part.strip().partition("=")[2] for part in build_info.split(",") if "git-commit-id=" in part), "")


MEMORY = "memory of parts of bytes"
_PARTS = frozenset({DType.int2, DType.uint2, DType.int4, DType.uint4})


def memory(graph: Graph) -> dict[str, Any]:
    """Return the options of a session that keep it from placing a value in memory that is too small.

    Some releases place n bytes in the memory of n integers of 2 or 4 bits: then no memory is reused.
    """
    if not in_force(MEMORY, runtime()):
        return {}
    has_parts = any(
        isinstance(s.type, TensorType) and s.type.dtype in _PARTS and not isinstance(s.producer, Constant)
        for part in parts(graph)
        for s in part.symbols
    )
    return {"enable_mem_reuse": False} if has_parts else {}


def copying_outputs(run: Run, names: Collection[str]) -> Run:
    """Return a function that runs a session and copies the outputs of these names, which are also inputs.

    Some releases return the memory of such an input and do not keep it alive.
    """
    if not names or not in_force("output that is an input", runtime()):
        return run

    def copying_run(outputs: Sequence[str], feed: Mapping[str, Any], options: Any) -> list[Any]:
        results = zip(outputs, run(outputs, feed, options), strict=True)
        return [a.copy() if name in names and isinstance(a, np.ndarray) else a for name, a in results]

    return copying_run


def takes(opset: int, ir: int = 8) -> bool:
    """Return True if the installed onnxruntime loads models of an opset. Probed with a model of one node."""
    graph = Graph("probe", {"x": TensorType(DType.float32, [1])})
    type_ = graph["x"].type  # passed on, because inferring it imports onnx: 45 ms
    graph.output(y=graph.op("Identity", list(graph.inputs), {}, [type_])[0])
    graph.opsets[""] = opset
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        onnxruntime.InferenceSession(join(encode(graph, ir=ir)), options, providers=["CPUExecutionProvider"])
    except Exception:
        return False
    return True


def newest_opset(most: int = OPSET) -> int:
    """Return the newest opset up to `most` that the installed onnxruntime loads, by probing it."""
    return next((opset for opset in range(most, 7, -1) if takes(opset)), 0)


def newest_ir(most: int = IR_VERSION) -> int:
    """Return the newest IR version up to `most` that it loads, by probing it."""
    return next((ir for ir in range(most, 8, -1) if takes(17, ir)), 8)


# int8 products on this processor: whether they saturate, and from how many rows on they are faster than 4 bits.

ROWS = {"amx_int8": 128, "avx512_vnni": 224}


"""By the instruction sets that onnxruntime's kernels use, the best first. Others were not measured.

Converting 4 bits to bytes takes 1.2 ns a number, for any number of rows. Picoseconds a number that each row then takes:

| | MatMulNBits, blocks of 128 | MatMulIntegerToFloat | break-even |
|---|---|---|---|
| AVX512-VNNI, onnxruntime 1.32 | 11.3 | 4.9 | 190 rows |
| AMX, onnxruntime 1.31 | 12 and more | 1.5 | 115 rows |
"""

_CPUINFO = "/proc/cpuinfo"


@functools.cache
def saturates() -> bool:
    """Return True if onnxruntime's products of uint8 and int8 saturate on this processor, as far as a test run shows.

    x86 processors without VNNI add pairs of such products in 16 bits.
    """
    inner, columns = 64, 16
    graph = Graph("saturation", {"x": TensorType(DType.uint8, ["rows", inner])})
    weights = graph.constant(np.full((inner, columns), 127, np.int8))
    type_ = TensorType(DType.int32, ["rows", columns])
    graph.output(y=graph.op("MatMulInteger", [graph["x"], weights], {}, [type_])[0])
    graph.opsets[""] = 21
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(join(encode(graph, ir=10)), options, providers=["CPUExecutionProvider"])
    sums = [session.run(None, {"x": np.full((rows, inner), 255, np.uint8)})[0] for rows in (1, 8)]
    return any(bool((s != 255 * 127 * inner).any()) for s in sums)


@functools.cache
def processor_flags() -> frozenset[str]:
    """Return the instruction sets of this processor by Linux' names; empty on other systems."""
    try:
        with open(_CPUINFO, encoding="utf-8", errors="replace") as file:
            return frozenset(next((line for line in file if line.startswith("flags")), "").split())
    except OSError:
        return frozenset()


@functools.cache
def many_rows() -> int | None:
    """Return the rows from which on int8 products are faster here; None if unknown, as on systems other than Linux."""
    rows = rows_of(processor_flags())
    return None if rows is None or saturates() else rows


def rows_of(flags: frozenset[str]) -> int | None:
    """Return the same for a processor with these flags, by Linux' names."""
    return next((rows for name, rows in ROWS.items() if name in flags), None)


# Read the kernels that the installed build of onnxruntime has registered.
#
# Kernels are registered for a range of an operator's versions. A range with an open end covers only its first version:
# if ONNX changed the operator since, onnxruntime needs a kernel of the new version.

PARAMETER = {"BlackmanWindow": "T2", "HammingWindow": "T2", "HannWindow": "T2", "MelWeightMatrix": "T3"}
PARAMETER |= {"If": "V", "Loop": "V"}
"""The type parameter that selects an operator's kernel, if it is not that of the primary operand."""

WITHOUT_KERNELS = frozenset(
    "Bernoulli CastLike CenterCropPad Constant GroupNormalization HardSwish ImageDecoder Mish SequenceMap "
    "NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss Swish".split()
)
"""Operators without a CPU kernel in any measured release, 1.20.1 to 1.32.0: the list says nothing about them.

They run by their function bodies, if at all, and a Constant as an initializer."""

SAFE = frozenset({"CPUExecutionProvider", "AzureExecutionProvider"})
"""The providers of builds whose kernels can be listed in this process.

onnxruntime creates each of its providers to list their kernels, and crashes (a segmentation fault) if a provider has no
list or misses a library: onnxruntime-gpu 1.27.0 and 1.30.0 without CUDA, and onnxruntime-openvino 1.24.1. Kernels of
builds with CUDA are listed in a subprocess, which may crash.
"""

_TIMEOUT = 60.0
"""Seconds to wait for the subprocess, which takes about 2 s."""

_LIST_KERNELS = """
import json, sys
from onnxruntime.capi import onnxruntime_pybind11_state as state
kernels = state.get_all_opkernel_def()
json.dump([[k.op_name, k.domain, k.provider, k.version_range, k.type_constraints] for k in kernels], sys.stdout)
"""

_OPEN = (1 << 31) - 1
"""The last version of an open-ended range."""


class KernelDef(Protocol):
    """An entry of `get_all_opkernel_def`. type_constraints: the types of each type parameter."""

    op_name: str
    domain: str
    provider: str
    version_range: tuple[int, int]
    type_constraints: Mapping[str, list[str]]


def is_safe() -> bool:
    """Return True if the installed build can list its kernels in this process."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    return SAFE.issuperset(state.get_available_providers())


def has_cuda() -> bool:
    """Return True if the installed build has the CUDA provider, started or not."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    return "CUDAExecutionProvider" in state.get_available_providers()


class KernelRegistry:
    """The kernels of ONNX's own operators in an installed build, read lazily by operator."""

    def __init__(self, kernels: Iterable[KernelDef], schemas: Iterable[Any]) -> None:
        self._kernels: dict[tuple[str, str], list[KernelDef]] = {}
        for kernel in kernels:
            if not kernel.domain:
                self._kernels.setdefault((kernel.provider, kernel.op_name), []).append(kernel)
        self._providers = {provider for provider, _ in self._kernels}
        self._schemas: dict[str, list[Any]] = {}
        for schema in schemas:
            if not schema.domain:
                self._schemas.setdefault(schema.name, []).append(schema)
        self._cached: dict[tuple[str, str, int], frozenset[DType] | None] = {}
        self._is_readable = True

    @classmethod
    def installed(cls) -> KernelRegistry | None:
        """Return the registry of the installed build; None if its kernels cannot be listed safely.

        Returns None and logs a line if the build has no list, or one that cannot be read.
        """
        try:
            from onnxruntime.capi import onnxruntime_pybind11_state as state

            if is_safe():
                kernels = state.get_all_opkernel_def()
            elif has_cuda():
                kernels = _list_in_subprocess()
            else:
                return None
            registry = cls(kernels, state.get_all_operator_schema())
            registry._check()
        except Exception as error:  # a build without the list, or with another format
            LOG.info("the kernels of the installed onnxruntime cannot be read: %s: %s", type(error).__name__, error)
            return None
        return registry

    def _check(self) -> None:
        """Raise an exception if the list has another format than the one that is read here."""
        if not self._dtypes("CPUExecutionProvider", "Identity", 13):
            raise LookupError("it lists no kernel of Identity")

    def versions(self, op_type: str) -> list[int]:
        """Return the versions of an operator that the build has, oldest first."""
        return sorted(schema.since_version for schema in self._schemas.get(op_type, ()))

    def dtypes(self, provider: str, op_type: str, opset: int) -> frozenset[DType] | None:
        """Return the dtypes that a provider has registered for an operator at an opset.

        Returns None if the list does not say: for kernels that take any dtype, operators that run without a kernel,
        providers that are not in the list, and all operators after the first unreadable entry.
        """
        key = provider, op_type, opset
        if key not in self._cached:
            try:
                self._cached[key] = self._dtypes(*key) if self._is_readable else None
            except Exception as error:
                self._is_readable, self._cached[key] = False, None
                LOG.info("the kernels of %s that onnxruntime lists cannot be read: %r", op_type, error)
        return self._cached[key]

    def _dtypes(self, provider: str, op_type: str, opset: int) -> frozenset[DType] | None:
        kernels = self._kernels.get((provider, op_type))
        if kernels is None:
            return None if op_type in WITHOUT_KERNELS or provider not in self._providers else frozenset()
        schema = max(
            (s for s in self._schemas.get(op_type, ()) if s.since_version <= opset),
            key=lambda s: s.since_version,
            default=None,
        )
        if schema is None:
            return frozenset()
        return registered(kernels, schema.since_version, parameter_of(op_type, schema))


def _list_in_subprocess() -> list[KernelDef]:
    """Return the kernels that a subprocess lists. Raises `LookupError` if it fails."""
    import subprocess  # other loads do not need it

    if getattr(sys, "frozen", False):  # sys.executable is the program itself
        raise LookupError("a frozen program has no Python interpreter that could list them")
    done = subprocess.run(
        [sys.executable, "-c", _LIST_KERNELS],
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=_TIMEOUT,
        check=False,
    )
    if done.returncode:
        raise LookupError(f"the process that lists them exited with status {done.returncode}")
    names = ("op_name", "domain", "provider", "version_range", "type_constraints")
    return [SimpleNamespace(**dict(zip(names, entry, strict=True))) for entry in json.loads(done.stdout)]


def registered(kernels: Iterable[KernelDef], since: int, parameter: str) -> frozenset[DType] | None:
    """Return the dtypes of the kernels that cover a version; None if one of them takes every dtype."""
    dtypes: set[DType] = set()
    for kernel in kernels:
        if not _covers(kernel.version_range, since):
            continue
        names = kernel.type_constraints.get(parameter)
        if names is None:
            return None
        tensors = [name for name in names if name.startswith("tensor(")]  # not sequences or optionals
        dtypes.update(filter(None, map(_dtype, tensors or names)))
    return frozenset(dtypes)


def _covers(versions: tuple[int, int], since: int) -> bool:
    first, last = versions
    return first == since or (last != _OPEN and first < since <= last)


def parameter_of(op_type: str, schema: Any) -> str:
    """Return the type parameter that selects an operator's kernel."""
    if op_type in PARAMETER:
        return PARAMETER[op_type]
    if op_type in BY_RESULT or not schema.inputs:
        return str(schema.outputs[0].typeStr)
    return str(schema.inputs[min(PRIMARY.get(op_type, 0), len(schema.inputs) - 1)].typeStr)


@functools.cache
def _dtype(name: str) -> DType | None:
    """Return the dtype of a type in onnxruntime's spelling ("seq(tensor(float))"); None if graphcore lacks it."""
    try:
        return dtype_named(name.rpartition("(")[2].rstrip(")"))
    except DTypeError:  # complex numbers, and formats that graphcore does not have
        return None
