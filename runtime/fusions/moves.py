"""Take parts of a tensor before its axes change places: the kernels move one axis fast, several at once slowly."""

from __future__ import annotations

import numpy as np

from graphcore.ir.constants import constant_array
from graphcore.ir.symbol import Node, Symbol
from graphcore.passes.sweep import Inputs, Sweep
from graphcore.runtime.fusions.matching import floats, is_float32, node_of


def part(sweep: Sweep, node: Node, inputs: Inputs) -> Symbol | None:
    """Return one place of a transposed tensor, as `unbind` of PyTorch is written, as the Transpose of a Gather.

    Only where the last axis changes places: where it stays, a Transpose copies whole rows of all parts at once.
    """
    taken, axes = (*inputs, None)[:2]
    split = node_of(taken, "Split")
    turned = None if split is None else node_of(split.inputs[0], "Transpose")
    read = node.inputs[0]
    if taken is None or split is None or turned is None or read is None or not isinstance(read.producer, Node):
        return None
    x, named = turned.inputs[0], constant_array(axes, weights=True, outer=True)
    perm = turned.attributes.get("perm")
    if x is None or perm is None or named is None or named.size != 1 or not is_float32(x, taken):
        return None
    axis = int(named.reshape(-1)[0]) % x.rank
    whole = read.producer.inputs[0]
    if split.attributes.get("axis", 0) % x.rank != axis or any(s.shape[axis] != 1 for s in split.outputs):
        return None
    if perm[-1] == x.rank - 1 or axis == x.rank - 1 or whole is None or sweep.readers(whole) > 1:
        return None
    source = perm[axis]
    place = next(i for i, s in enumerate(split.outputs) if s is taken)
    dims = [d for i, d in enumerate(x.shape) if i != source]
    index = sweep.constant(node, np.array(place, np.int64))
    gathered = sweep.add(node, "Gather", (x, index), floats(*dims), {"axis": source})
    rest = [p - (p > source) for i, p in enumerate(perm) if i != axis]
    return sweep.add(node, "Transpose", (gathered,), node.outputs[0].type, {"perm": rest})
