"""Products of bytes on this processor: whether they saturate, and from how many rows on they pay beside 4 bits."""

from __future__ import annotations

import functools

import numpy as np

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
