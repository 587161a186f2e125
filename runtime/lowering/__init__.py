"""Lowering: from a graph as it was built to one that a target runs, with the numbers that docs/numbers.md promises.

`pipeline.PIPELINE` is the table of passes. A graph that needs none of them is returned as it is.
"""

from __future__ import annotations

from graphcore.ir.graph import Graph, Optimize, Precision, TargetName
from graphcore.ir.transform import pickling
from graphcore.onnx.opset import OPSET
from graphcore.runtime.lowering.pipeline import (
    PREPARING,
    Lowering,
    Pass,
    made_legal,
    onnx_op_types,
    run,
    with_kernels,
)
from graphcore.runtime.lowering.summary import Summary
from graphcore.runtime.lowering.targets import TARGETS
from graphcore.runtime.lowering.targets.legality import legality
from graphcore.runtime.lowering.targets.releases import Runtime, default

PRECISIONS: tuple[Precision, ...] = ("exact", "fast")
LEVELS: tuple[Optimize, ...] = ("off", "exact", "all")
"""The values of `optimize`."""


def lower(
    graph: Graph,
    target: TargetName,
    precision: Precision = "exact",
    *,
    inline: bool = True,
    runtime: Runtime | None = None,
    optimize: Optimize = "off",
    trace: list[Pass] | None = None,
) -> Graph:
    """Return a graph of ONNX operators and dtypes that computes the same on `target`.

    precision: "exact" rounds after every op, "fast" leaves consecutive ones on narrow floats in float32. inline: calls
    of functions are replaced by their bodies; otherwise they stay where they can. runtime: the release of onnxruntime
    that is to run it, where it is not what files are written for; the graph is of an older opset than the runtime's
    where only that has kernels of an operator. optimize: "exact" runs the passes of `Graph.optimize` first; "all"
    looks for fusions (`runtime/fusions`), whose sums may come in another order, and runs the passes where there are
    some. trace: is given the passes that ran. Inputs and outputs keep their names and order. Raises `GraphError` for an
    op that the target has no way to run.
    """
    newest = legality(target, default(target) if runtime is None else runtime)
    has = Summary(graph)
    rules = with_kernels(newest, onnx_op_types(has))
    to = Lowering(newest, rules, precision, optimize, inline, [] if trace is None else trace)
    made = made_legal(run(PREPARING, has, to), to)
    opset = to.rules.runtime.opset if to.rules.decomposes else OPSET
    if made.opsets.get("", OPSET) == opset:
        return made
    made = pickling.copied(made) if made is graph else made
    made.opsets[""] = opset
    return made


__all__ = ["LEVELS", "PRECISIONS", "TARGETS", "lower"]
