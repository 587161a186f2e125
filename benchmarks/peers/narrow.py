"""Other tools that narrow a model within a budget of error, run by a Python that has them.

    python benchmarks/peers/narrow.py TOOL model.onnx samples.npz BUDGET out.onnx

Prints JSON: the seconds of the search, its runs, or why it gave no model. The tools measure with onnxruntime on the
CPU, which computes most of float16 in float32. samples.npz has "RUN/INPUT" for each array.
"""

from __future__ import annotations

import copy
import json
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime

Array = np.ndarray[Any, Any]
Feeds = dict[str, Array]
Outputs = list[list[Array]]


class Measured:
    """The error of models, and how often one was measured."""

    def __init__(self, model: onnx.ModelProto, feeds: Sequence[Feeds]) -> None:
        self.runs = 0
        self.feeds = feeds
        self.expected = self._outputs(model)

    def _outputs(self, model: onnx.ModelProto) -> Outputs:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.log_severity_level = 1, 4
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        self.runs += 1
        return [session.run(None, feeds) for feeds in self.feeds]

    def error(self, model: onnx.ModelProto) -> float:
        """Return the length of the change over that of the output which is most off."""
        return relative(self._outputs(model), self.expected)


def relative(outputs: Outputs, expected: Outputs) -> float:
    """Return the length of the change over that of the output which is most off."""
    worst = 0.0
    for pairs in zip(zip(*outputs, strict=True), zip(*expected, strict=True), strict=True):
        change, length = 0.0, 0.0
        for result, reference in zip(*pairs, strict=True):
            change += float(np.square(np.subtract(result, reference, dtype=np.float64)).sum())
            length += float(np.square(reference, dtype=np.float64).sum())
        worst = max(worst, (change / length) ** 0.5 if length else float(change > 0))
        if not change < float("inf"):
            return float("inf")
    return worst


def onnxconverter(model: onnx.ModelProto, measured: Measured, budget: float) -> onnx.ModelProto:
    """onnxconverter-common: leaves out segments of nodes, halved until they are single nodes. Takes one sample."""
    from onnxconverter_common import auto_mixed_precision as tool

    def run(model: onnx.ModelProto, feeds: Feeds, *arguments: Any, **options: Any) -> Any:
        measured.runs += 1
        return original(model, feeds, *arguments, **options)

    original, tool.get_tensor_values_using_ort = tool.get_tensor_values_using_ort, run
    result: onnx.ModelProto = tool.auto_convert_mixed_precision(
        model, measured.feeds[0], lambda a, b: relative([b], [a]) <= budget, keep_io_types=True
    )
    return result


def ort_float16(model: onnx.ModelProto, measured: Measured, budget: float) -> onnx.ModelProto:
    """onnxruntime.transformers.float16, with operators blocked in the order of what that saves, until it is enough."""
    from onnxruntime.transformers.float16 import DEFAULT_OP_BLOCK_LIST, convert_float_to_float16

    def blocking(*names: str) -> onnx.ModelProto:
        blocked = [*DEFAULT_OP_BLOCK_LIST, *names]
        narrowed: onnx.ModelProto = convert_float_to_float16(
            copy.deepcopy(model), keep_io_types=True, op_block_list=blocked
        )
        return narrowed

    result = blocking()
    if measured.error(result) <= budget:
        return result
    names = {node.op_type for node in model.graph.node} - {*DEFAULT_OP_BLOCK_LIST}
    alone = {name: measured.error(blocking(name)) for name in sorted(names)}
    order = sorted(alone, key=lambda name: alone[name])
    for count in range(1, len(order) + 1):
        result = blocking(*order[:count])
        if measured.error(result) <= budget:
            break
    return result


def nncf_weights(model: onnx.ModelProto, measured: Measured, budget: float) -> onnx.ModelProto:
    """NNCF's mixed precision of weights: the largest part in int4 that is within the budget, the rest int8."""
    import nncf

    # onnxruntime 1.32 refuses the scales that NNCF 3.4 writes for convolutions.
    convolutions = nncf.IgnoredScope(types=["Conv", "ConvTranspose"], validate=False)
    failed: Exception = ValueError("not even int8 for all weights is within the budget")
    for ratio in (1.0, 0.8, 0.6, 0.4, 0.2, 0.0):
        options = {"mode": nncf.CompressWeightsMode.INT8_SYM} if not ratio else {
            "mode": nncf.CompressWeightsMode.INT4_SYM, "ratio": ratio, "group_size": 32, "all_layers": True,
        }  # fmt: skip
        try:
            result: onnx.ModelProto = nncf.compress_weights(copy.deepcopy(model), ignored_scope=convolutions, **options)
            if measured.error(result) <= budget:
                return result
        except Exception as error:  # groups that do not divide the weights, or that onnxruntime refuses
            failed = error
    raise failed


TOOLS: dict[str, Callable[[onnx.ModelProto, Measured, float], onnx.ModelProto]] = {
    "onnxconverter-common": onnxconverter,
    "onnxruntime float16": ort_float16,
    "nncf weights": nncf_weights,
}


def main() -> None:
    tool, path, samples, budget, out = sys.argv[1:]
    feeds: dict[str, Feeds] = {}
    for key, array in np.load(samples).items():
        run, _, name = key.partition("/")
        feeds.setdefault(run, {})[name] = array
    model = onnx.load(path)
    for number, node in enumerate(model.graph.node):  # which the tools tell nodes by
        node.name = node.name or f"node_{number}"
    measured = Measured(model, [*feeds.values()])
    start = time.perf_counter()
    try:
        onnx.save(TOOLS[tool](model, measured, float(budget)), out)
    except Exception as error:  # whatever a tool fails with is what the table says
        text = f"{type(error).__name__}: {error}".replace("[ONNXRuntimeError] : 1 : FAIL : ", "")
        print(json.dumps({"failed": text.partition("\n")[0][:120]}))
        return
    print(json.dumps({"seconds": time.perf_counter() - start, "runs": measured.runs - 1}))


if __name__ == "__main__":
    main()
