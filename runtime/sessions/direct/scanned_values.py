"""The values of a scanned model: their dtypes, and properties of its inputs and constants."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from graphcore.arrays.resource_limits import USUAL
from graphcore.onnx.proto.ranges import MAX_AXES
from graphcore.runtime.lowering.targets.legality import Legality
from graphcore.runtime.lowering.workarounds import empty, moves
from graphcore.runtime.lowering.workarounds.arithmetic import is_infinite_factor, is_rounded
from graphcore.types.dtypes import DType

if TYPE_CHECKING:
    import onnx

    from graphcore.runtime.sessions.direct.parts import Path

_DTYPES: dict[int, DType] = {
    dtype.onnx: dtype
    for dtype in (
        DType.bool, DType.int8, DType.uint8, DType.int32, DType.int64, DType.float32, DType.float64, DType.string
    )
}  # fmt: skip
"""Dtypes of models that run without lowering, by ONNX's number; also float16 if onnxruntime's kernels compute it."""

STATES = 5
"""The operand of recurrent operators with a state for each sequence. onnxruntime checks the number of sequences against
the first operand before it computes."""

_MAX_COMPARED_BYTES = 64
"""Constants of up to this many bytes are compared."""


class ScannedValues:
    """The values that a scan has met.

    dtypes, dims: of values by name; dims of constants only. casts: the source dtype of each Cast, by the name of its
    result. constants: their number. operators: the names of those in the model. signs: patterns that optimisers break,
    by their names in `runtime/ort/optimisers.py`. has_unknown_ranks: whether some input has no shape. opset, versions:
    of the model.
    """

    def __init__(self, rules: Legality, *, keeps_halves: bool = False) -> None:
        """keeps_halves: whether onnxruntime's kernels compute float16."""
        self.rules = rules
        self.opset = 0
        self.versions: dict[str, int] = {}
        self._stored = {**_DTYPES, DType.float16.onnx: DType.float16} if keeps_halves else _DTYPES
        self.dtypes: dict[str, DType] = {}
        self.dims: dict[str, tuple[int, ...]] = {}
        self.casts: dict[str, DType] = {}
        self.constants = 0
        self.operators: set[str] = set()
        self.signs: set[str] = set()
        self.has_unknown_ranks = False
        self._tensors: dict[str, onnx.TensorProto] = {}
        self._many: set[str] = set()
        self._lengths: dict[str, tuple[int, ...]] = {}
        self._empties: set[str] = set()
        self._path: Path = ()
        self._filled: list[tuple[Path, onnx.NodeProto, str, int]] = []

    def note_signs(self, nodes: Sequence[onnx.NodeProto]) -> None:
        """Note the patterns of a graph or body that optimisers break."""
        if DType.float64 in self.dtypes.values():
            self.signs.add("float64")
        wide = (name for name in self.dims if self.dtypes[name] is DType.float64 and self._is_one(name))
        if any(is_rounded(array) for array in map(self._values, wide) if array is not None):
            self.signs.add("rounded constants")
        if "MatMul" in self.operators and any(map(self._scales_endlessly, nodes)):
            self.signs.add("endless scales")
        if "Transpose" in self.operators and not self.operators.isdisjoint(moves.PRODUCTS):
            transposes = [node for node in nodes if node.op_type == "Transpose"]
            turned = {n.output[0] for n in transposes if not n.attribute or moves.moves_first(n.attribute[0].ints)}
            cast = {name for name in turned if self.dtypes[name] is DType.float16}
            cast |= {n.output[0] for n in nodes if n.op_type == "Cast" and n.input[0] in turned}
            if any(n.op_type in moves.PRODUCTS and not cast.isdisjoint(n.input) for n in nodes):
                self.signs.add("cast transposes")

    def _scales_endlessly(self, node: onnx.NodeProto) -> bool:
        """Return True if a node multiplies by a constant of one float that is not finite, or divides by 0."""
        if node.op_type not in ("Mul", "Div"):
            return False
        for name in node.input if node.op_type == "Mul" else node.input[1:]:
            if name not in self._tensors or not self.dtypes[name].is_float or not self._is_one(name):
                continue
            raw = self._tensors[name].raw_data
            if not raw or raw[-1] & 0x7F in (0, 0x7F):  # the exponents of 0 and infinity begin with 7 equal bits
                array = self._values(name)
                if array is not None and is_infinite_factor(array, node.op_type):
                    return True
        return False

    def _is_one(self, name: str) -> bool:
        """Return True if a constant has one element."""
        return math.prod(self.dims[name]) == 1

    def different(self) -> int:
        """Return the number of different values of the constants. Each large constant counts as a different value."""
        tensors = self._tensors.items()
        return len(
            {
                (t.data_type, *t.dims, t.raw_data) if 0 < len(t.raw_data) <= _MAX_COMPARED_BYTES else n
                for n, t in tensors
            }
        )

    def dtype_of(self, number: int) -> DType | None:
        """Return the dtype of ONNX's number; None for a dtype that needs a Graph."""
        return self._stored.get(number)

    def takes_constant(self, name: str, tensor: onnx.TensorProto) -> bool:
        """Note a constant. Return True if its dtype is supported, its data is in the model, and its name is unique."""
        dtype = self._stored.get(tensor.data_type)
        if dtype is None or tensor.data_location or name in self.dtypes or not name:
            return False
        if dtype is DType.string and not _is_text(tensor):
            return False
        bools = (tensor.raw_data or tensor.int32_data) if dtype is DType.bool else ()
        if bools and not 0 <= min(bools) <= max(bools) <= 1:
            return False
        dims = self.dims[name] = tuple(tensor.dims)
        if 0 in dims:
            self._empties.add(name)
            self.signs.add("empty constants")
        self.dtypes[name] = dtype
        self._tensors[name] = tensor
        self.constants += 1
        return True

    def divides(self, name: str) -> bool:
        """Return True if a divisor is a constant by which every integer can be divided."""
        array = self._values(name)
        return array is not None and not ((array == 0) | (array == -1)).any()

    def reduces(self, node: onnx.NodeProto) -> bool:
        """Return True if a reduction avoids the trap of negative axes."""
        if not self.rules.has_trap(empty.NEGATIVE_AXES.name):
            return True
        axes = next((list(a.ints) for a in node.attribute if a.name == "axes"), None)
        if axes is None and len(node.input) > 1 and node.input[1]:
            array = self._values(node.input[1])
            axes = [-1] if array is None else array.tolist()
        return all(axis >= 0 for axis in axes or ())

    def require_elements(self, node: onnx.NodeProto, name: str, axes: Sequence[int]) -> None:
        """Require lowering if these axes of an operand of a node may be empty."""
        self._filled += [(self._path, node, name, axis) for axis in axes]

    def _takes_input(self, value: onnx.ValueInfoProto) -> bool:
        tensor = value.type.tensor_type
        dtype = self._stored.get(tensor.elem_type)
        if dtype is None or type(value.name) is not str or not value.name or value.name in self.dtypes:
            return False
        if math.prod(d.dim_value for d in tensor.shape.dim if d.dim_value > 0) > USUAL.elements:
            return False
        if any(d.HasField("dim_value") and (d.dim_value == 0 or d.dim_value < -1) for d in tensor.shape.dim):
            return False
        self.dtypes[value.name] = dtype
        if tensor.HasField("shape"):
            dims = tensor.shape.dim
            self._lengths[value.name] = tuple(d.dim_value for d in dims)
            if len(dims) > 1 and dims[0].dim_value != 1:
                self._many.add(value.name)
        else:
            self.has_unknown_ranks = True
        return True

    def _is_bounded(self, name: str) -> bool:
        """Return True unless a constant is short enough to be a list of sizes, and has large numbers."""
        tensor = self._tensors.get(name)
        if tensor is None:
            return True
        numbers: Sequence[Any] | np.ndarray[Any, Any] | None = tensor.int64_data
        raw, is_int64 = tensor.raw_data, self.dtypes[name] is DType.int64
        if raw and is_int64 and not len(raw) % 8 and sys.byteorder == "little":
            numbers = memoryview(raw).cast("q")  # takes a tenth of the time of NumPy
        elif raw or not is_int64:
            numbers = self._values(name)
        if numbers is None or len(numbers) > 2 * MAX_AXES:
            return True
        return all(-_MAX_SIZE <= number <= _MAX_SIZE for number in numbers)

    def _values(self, name: str) -> np.ndarray[Any, Any] | None:
        """Return the values of a constant; None if it is not a constant or damaged, and for other dtypes."""
        tensor = self._tensors.get(name)
        if tensor is None or (dtype := self.dtypes[name]) not in _FIELDS:
            return None
        count, raw = math.prod(tensor.dims), tensor.raw_data
        if raw:
            is_whole = len(raw) == count * dtype.numpy.itemsize
            return np.frombuffer(raw, dtype.numpy.newbyteorder("<")) if is_whole else None
        array = np.array(getattr(tensor, _FIELDS[dtype]), dtype.numpy)
        return array if array.size == count else None


_MAX_SIZE = 1 << 24
"""The largest number in a constant of sizes."""

_FIELDS: Mapping[DType, str] = {
    **dict.fromkeys((DType.bool, DType.int8, DType.uint8, DType.int32), "int32_data"),
    DType.int64: "int64_data",
    DType.float32: "float_data",
    DType.float64: "double_data",
}
"""The fields of tensors with the elements that a scan reads."""


def _is_text(tensor: onnx.TensorProto) -> bool:
    """Return True if a tensor of strings has valid text for each element."""
    try:
        [text.decode() for text in tensor.string_data]
    except UnicodeDecodeError:
        return False
    return len(tensor.string_data) == math.prod(tensor.dims) and not tensor.raw_data
