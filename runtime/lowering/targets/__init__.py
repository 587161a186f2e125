"""Targets of lowering, one row each. `releases.Runtime` has the onnxruntime release and processor facts of one run.

To add a provider, add a row, a table of its kernels, and a file of decompositions for what it lacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from graphcore.ir.graph import TargetName
from graphcore.runtime.lowering.targets import compute_dtypes
from graphcore.runtime.lowering.targets.compute_dtypes import HALVES, Incorrect
from graphcore.types.dtypes import DType

_KERNELS_OF_FNUZ = frozenset("DequantizeLinear Identity Reshape Shape Transpose".split())
_KERNELS_OF_BITS = frozenset("DequantizeLinear Transpose".split())


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """A target that graphs are lowered for.

    provider: onnxruntime's name; "" for standard ONNX. table: the file of its measured kernels; "" if ONNX's schemas
    decide what is legal. host: the target that runs operators without a kernel here. has_bitcast: whether it has
    kernels of BitCast of its own, without another provider's help.

    incorrect: kernels that are not used. rounded: dtypes that are legal only for `compute_dtypes.UNROUNDED` and `once`,
    because the other kernels round between their steps or omit a rounding. extra: operators that were tried on dtypes
    which only imported models have and which the measurement leaves out, by dtype.

    by_release: whether traps, and operators of com.microsoft, were measured release by release; otherwise all traps are
    avoided. lists_kernels: whether the installed build lists its kernels. is_late: whether its package follows the
    releases of onnxruntime late, so that files are lowered for its newest one. takes_empty_operands: whether calls with
    empty operands reach it. packs_weights: whether it has the kernels of quantised products of com.microsoft.
    runs_whole_graphs: whether it runs only whole graphs, so that files with other graphs are refused. unverified:
    dtypes in which imported models keep operators of other domains, whose kernels were not compared. saturates: whether
    products of unsigned with signed bytes saturate on some processor. is_web: whether it is onnxruntime-web, which no
    session runs.

    options: provider options of a session, for exact products. tensor_cores: the same if all products are of
    tensor_float32, whose values are rounded already. missing_help: how to install the provider.
    """

    name: TargetName
    provider: str = ""
    table: str = ""
    host: TargetName | None = None
    has_bitcast: bool = False
    incorrect: Incorrect = field(default_factory=dict)
    rounded: frozenset[DType] = frozenset()
    once: frozenset[str] = frozenset()
    extra: Mapping[DType, frozenset[str]] = field(default_factory=dict)
    by_release: bool = False
    lists_kernels: bool = True
    is_late: bool = False
    takes_empty_operands: bool = True
    packs_weights: bool = False
    runs_whole_graphs: bool = False
    unverified: frozenset[DType] = frozenset()
    saturates: bool = True
    is_web: bool = False
    options: Mapping[str, str] = field(default_factory=dict)
    tensor_cores: Mapping[str, str] = field(default_factory=dict)
    missing_help: str = ""

    @property
    def is_host(self) -> bool:
        """True if it runs every operator, and those that other targets leave to it."""
        return bool(self.table) and self.host is None


_CPU = Target(
    "cpu",
    "CPUExecutionProvider",
    "cpu.json",
    has_bitcast=True,
    incorrect=compute_dtypes.CPU,
    # Some kernels round between their steps or not at all, or omit a rounding between two operators in float32.
    rounded=HALVES,
    extra={
        DType.int2: _KERNELS_OF_BITS,
        DType.uint2: _KERNELS_OF_BITS,
        DType.float8_e4m3fnuz: _KERNELS_OF_FNUZ,
        DType.float8_e5m2fnuz: _KERNELS_OF_FNUZ,
    },
    by_release=True,
    packs_weights=True,
)

_WASM = replace(
    _CPU,
    name="wasm",
    provider="wasm",
    table="wasm.json",
    is_late=True,
    saturates=False,
    is_web=True,
    missing_help='onnxruntime-web is not a package of Python: graph.export(path, target="wasm") writes a file for it',
)

TARGETS: Mapping[TargetName, Target] = {
    row.name: row
    for row in (
        Target("onnx", has_bitcast=True),
        _CPU,
        Target(
            "cuda",
            "CUDAExecutionProvider",
            "cuda.json",
            host="cpu",
            incorrect=compute_dtypes.CUDA,
            rounded=HALVES,  # by activations, normalisations and running sums, between their steps
            once=compute_dtypes.CUDA_ONCE,
            unverified=frozenset({DType.float16, DType.float32, DType.int8, DType.uint8}),
            options={"use_tf32": "0"},  # by default it rounds the operands of float32 products
            tensor_cores={"use_tf32": "1"},
            missing_help="pip install 'graphcore-engine[gpu]' and uninstall onnxruntime: both bring one module",
        ),
        Target(
            "openvino",
            "OpenVINOExecutionProvider",
            "openvino.json",
            host="cpu",
            incorrect=compute_dtypes.OPENVINO,
            lists_kernels=False,
            is_late=True,
            takes_empty_operands=False,
            runs_whole_graphs=True,
            # By default it rounds the operands of all products on processors that have instructions for it.
            options={"device_type": "CPU", "load_config": '{"CPU": {"INFERENCE_PRECISION_HINT": "f32"}}'},
            missing_help="pip install 'graphcore-engine[openvino]' and uninstall onnxruntime: both bring one module",
        ),
        _WASM,
        # A session has the kernels of the GPU and, for the other nodes, those of a build for the CPU with fewer dtypes.
        replace(
            _WASM,
            name="webgpu",
            provider="webgpu",
            table="webgpu.json",
            packs_weights=False,
            unverified=frozenset({DType.float16, DType.float32}),
        ),
    )
}
"""By name."""

BY_PROVIDER: Mapping[str, Target] = {row.provider: row for row in TARGETS.values() if row.provider}
"""By onnxruntime's name of the provider."""
