"""Models in onnxruntime itself, with nothing of graphcore between."""

from __future__ import annotations

from typing import Any

import onnx
import onnxruntime

from graphcore.runtime.ort.values import PLAIN, from_ort, to_ort
from graphcore.types.dtypes import DType


class Bare:
    """A session on the CPU provider that is fed and gives arrays of NumPy and ml_dtypes, lists of them, and None."""

    def __init__(self, model: bytes | str) -> None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self._fed = {i.name: _dtype(i.type) for i in self._session.get_inputs()}
        self._given = [_dtype(o.type) for o in self._session.get_outputs()]

    @property
    def inputs(self) -> list[str]:
        return list(self._fed)

    def __call__(self, **feeds: Any) -> list[Any]:
        if all(dtype is None or dtype in PLAIN for dtype in (*self._fed.values(), *self._given)):
            return list(self._session.run(None, feeds))
        values = {name: to_ort(array, self._fed[name] or DType.of(array.dtype)) for name, array in feeds.items()}
        made = self._session.run_with_ort_values(None, values)
        return [from_ort(value, _dtype(value.data_type()) or DType.string) for value in made]


def _dtype(text: str) -> DType | None:
    """The dtype of a tensor's type in onnxruntime's words; None for other types."""
    if not text.startswith("tensor("):
        return None
    return DType.of(onnx.TensorProto.DataType.Value(text.removeprefix("tensor(").removesuffix(")").upper()))
