"""Read the kernels that the installed build of onnxruntime has registered.

Kernels are registered for a range of an operator's versions. One with an open end holds for the version that it begins
with alone: where ONNX changed the operator since, onnxruntime wants a kernel of the new version.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any, Protocol

from graphcore.errors import DTypeError
from graphcore.runtime.lowering.targets.legality import BY_RESULT, PRIMARY
from graphcore.types.dtypes import DType

LOG = logging.getLogger("graphcore")

PARAMETER = {"BlackmanWindow": "T2", "HammingWindow": "T2", "HannWindow": "T2", "MelWeightMatrix": "T3"}
PARAMETER |= {"If": "V", "Loop": "V"}
"""The type parameter that an operator's dtypes are counted by, where not that of the operand that decides."""

WITHOUT_KERNELS = frozenset(
    "Bernoulli CastLike CenterCropPad Constant GroupNormalization HardSwish ImageDecoder Mish SequenceMap "
    "NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss Swish".split()
)
"""Operators of which no measured release, 1.20.1 to 1.32.0, has a kernel on the CPU: the list tells nothing of them.

They run by their function bodies, if at all, and Constant as what it holds."""

SAFE = frozenset({"CPUExecutionProvider", "AzureExecutionProvider"})
"""The providers of builds that are asked in this process.

onnxruntime makes each of its providers to list their kernels, and ends the process (a segmentation fault) where one has
no list or misses a library: seen in onnxruntime-gpu 1.27.0 and 1.30.0 without CUDA and in onnxruntime-openvino 1.24.1.
Builds with CUDA are asked in a process of their own, which may end.
"""

_SECONDS = 60.0
"""The most that another process is waited for: it takes some 2 s."""

_ASK = """
import json, sys
from onnxruntime.capi import onnxruntime_pybind11_state as state
kernels = state.get_all_opkernel_def()
json.dump([[k.op_name, k.domain, k.provider, k.version_range, k.type_constraints] for k in kernels], sys.stdout)
"""

_OPEN = (1 << 31) - 1
"""The last version of a range without an end."""


class KernelDef(Protocol):
    """An entry of `get_all_opkernel_def`. type_constraints: the types of each type parameter."""

    op_name: str
    domain: str
    provider: str
    version_range: tuple[int, int]
    type_constraints: Mapping[str, list[str]]


def is_safe() -> bool:
    """Return whether the installed build can be asked for its kernels."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    return SAFE.issuperset(state.get_available_providers())


def has_cuda() -> bool:
    """Return whether the installed build has the CUDA provider, started or not."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    return "CUDAExecutionProvider" in state.get_available_providers()


class KernelRegistry:
    """The kernels of ONNX's own operators in an installed build, read operator by operator as they are asked for."""

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
        self._found: dict[tuple[str, str, int], frozenset[DType] | None] = {}
        self._is_readable = True

    @classmethod
    def installed(cls) -> KernelRegistry | None:
        """Return what the installed build says; None where it is not safe to ask, and where that ends the process.

        None too, and a line in the log, where it has no list or one that cannot be read.
        """
        try:
            from onnxruntime.capi import onnxruntime_pybind11_state as state

            if is_safe():
                kernels = state.get_all_opkernel_def()
            elif has_cuda():
                kernels = _asked_apart()
            else:
                return None
            made = cls(kernels, state.get_all_operator_schema())
            made._check()
        except Exception as error:  # a build without it, or one that answers in another form
            LOG.info("the kernels of the installed onnxruntime cannot be read: %s: %s", type(error).__name__, error)
            return None
        return made

    def _check(self) -> None:
        """Raise an exception where the answer is of another form than the one that is read here."""
        if not self._dtypes("CPUExecutionProvider", "Identity", 13):
            raise LookupError("there is no kernel of Identity")

    def versions(self, op_type: str) -> list[int]:
        """Return the versions of an operator that the build knows, oldest first."""
        return sorted(schema.since_version for schema in self._schemas.get(op_type, ()))

    def dtypes(self, provider: str, op_type: str, opset: int) -> frozenset[DType] | None:
        """Return the dtypes that a provider has registered for an operator at an opset.

        Returns None where the list does not tell: kernels that take any dtype, operators that run without one,
        providers that are not in the list, and all operators from the first on whose entries cannot be read.
        """
        key = provider, op_type, opset
        if key not in self._found:
            try:
                self._found[key] = self._dtypes(*key) if self._is_readable else None
            except Exception as error:
                self._is_readable, self._found[key] = False, None
                LOG.info("the kernels of %s that onnxruntime lists cannot be read: %r", op_type, error)
        return self._found[key]

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


def _asked_apart() -> list[KernelDef]:
    """Return the kernels that another process lists. Raises `LookupError` where it ends without an answer."""
    import subprocess  # which no other load needs

    if getattr(sys, "frozen", False):  # sys.executable is the program itself
        raise LookupError("there is no Python to ask them with")
    done = subprocess.run(
        [sys.executable, "-c", _ASK], capture_output=True, stdin=subprocess.DEVNULL, timeout=_SECONDS, check=False
    )
    if done.returncode:
        raise LookupError(f"the process that lists them ended with {done.returncode}")
    names = ("op_name", "domain", "provider", "version_range", "type_constraints")
    return [SimpleNamespace(**dict(zip(names, entry, strict=True))) for entry in json.loads(done.stdout)]


def registered(kernels: Iterable[KernelDef], since: int, parameter: str) -> frozenset[DType] | None:
    """Return the dtypes of the kernels that hold for a version; None where one of them takes every dtype."""
    dtypes: set[DType] = set()
    for kernel in kernels:
        if not _holds(kernel.version_range, since):
            continue
        names = kernel.type_constraints.get(parameter)
        if names is None:
            return None
        tensors = [name for name in names if name.startswith("tensor(")]  # and not lists or optionals
        dtypes.update(filter(None, map(_dtype, tensors or names)))
    return frozenset(dtypes)


def _holds(versions: tuple[int, int], since: int) -> bool:
    first, last = versions
    return first == since or (last != _OPEN and first < since <= last)


def parameter_of(op_type: str, schema: Any) -> str:
    """Return the type parameter that an operator's dtypes are counted by."""
    if op_type in PARAMETER:
        return PARAMETER[op_type]
    if op_type in BY_RESULT or not schema.inputs:
        return str(schema.outputs[0].typeStr)
    return str(schema.inputs[min(PRIMARY.get(op_type, 0), len(schema.inputs) - 1)].typeStr)


def _dtype(name: str) -> DType | None:
    """Return the dtype of a type as onnxruntime spells it, such as "seq(tensor(float))"; None if graphcore has none."""
    if name not in _DTYPES:
        inner = name.rpartition("(")[2].rstrip(")")
        inner = {"float": "float32", "double": "float64"}.get(inner, inner)
        for family in ("float8", "float4"):
            inner = inner.replace(f"{family}e", f"{family}_e")
        try:
            _DTYPES[name] = DType.of(inner)
        except DTypeError:  # complex numbers, and formats that graphcore does not have
            _DTYPES[name] = None
    return _DTYPES[name]


_DTYPES: dict[str, DType | None] = {}
