"""An exported file runs with onnxruntime and NumPy alone, even if onnxruntime has no kernels for its dtypes.

python examples/plain_onnxruntime.py
"""

from __future__ import annotations


def write(path: str) -> None:
    """Export a model, with graphcore. onnxruntime has no kernel that multiplies, sums or divides int16 or bfloat16."""
    from graphcore import DType, Graph, TensorType, ops

    g = Graph("level", {"samples": TensorType(DType.int16, ["channel", "time"])})
    samples = g["samples"]
    g.output(
        energy=ops.sum(samples * samples, axis=-1),  # wraps, as int16 does
        half=samples // 2,
        rounded=(samples.cast(DType.bfloat16) / 3).cast(DType.float32),
    )
    g.export(path)


def run(path: str) -> None:
    """Run the file without graphcore."""
    import numpy as np
    import onnxruntime

    session = onnxruntime.InferenceSession(path)
    for value in session.get_inputs():
        print(value.name, value.type, value.shape)
    samples = np.array([[3, -4, 12], [200, 100, -7]], np.int16)
    for value, result in zip(session.get_outputs(), session.run(None, {"samples": samples}), strict=True):
        print(value.name, result.dtype, result.tolist())


if __name__ == "__main__":
    write("level.onnx")
    run("level.onnx")
