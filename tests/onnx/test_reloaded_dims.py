"""Dims of a graph that was written to a file and read again: those that building it found."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import onnx
import pytest

import graphcore as gc
from graphcore import Dim, DType, Graph, TensorType
from graphcore.build.declare import REGISTRY
from graphcore.errors import GraphcoreError
from tests.support.every_op import CASES

LOST: dict[str, tuple[tuple[str, ...], str]] = {
    "glu": (("onnx", "cpu"), "its halves are n // 2 and n - n // 2, of which the file does not say that n is even"),
    "sort": (("cpu",), "rows are padded for onnxruntime's kernel, to a length that a comparison chooses"),
    "argsort": (("cpu",), "as sort"),
    "top_k": (("cpu",), "as sort"),
    "bottom_k": (("cpu",), "as sort"),
    "median": (("cpu",), "as sort"),
    "quantile": (("cpu",), "as sort"),
    "cross": (("onnx", "cpu"), "a length that is not known is checked by a Reshape to what only the run knows"),
    "list_empty": (("onnx", "cpu"), "ONNX's SequenceEmpty has a dtype and no shape"),
    "list_map": (("onnx", "cpu"), "as list_empty"),
}
"""By op: the targets whose files lose dims, and why."""

TARGETS: tuple[Literal["onnx", "cpu"], ...] = ("onnx", "cpu")


def built(name: str) -> Iterator[Graph]:
    """Yield graphs of one op with names for dims: of the first operand, of the first axes, of the spatial axes, and
    for equal sizes one name."""
    case = CASES[name]
    dtype = next((d for d in (DType.float32, DType.int32, DType.bool) if d not in case.refused), DType.float32)
    shapes = [operand.shape for operand in case.operands]
    cells = [(i, a) for i, shape in enumerate(shapes) for a, n in enumerate(shape) if not isinstance(n, str)]
    for chosen in (
        [(i, a) for i, a in cells if i == 0],
        [(i, a) for i, a in cells if a == 0],
        [(i, a) for i, a in cells if i == 0 and a in (1, 2)],
        [(i, a) for i, a in cells if i == 0 and a in (2, 3)],
        cells,
    ):
        is_all = len(chosen) == len(cells) and len(shapes) > 1
        types = {
            f"x{i}": TensorType(
                operand.dtype or dtype,
                [
                    (f"size{n}" if is_all else f"axis{a}") if (i, a) in chosen else n
                    for a, n in enumerate(operand.shape)
                ],
            )
            for i, operand in enumerate(case.operands)
        }
        try:
            graph = Graph("g", types)
            with graph:
                results = case.results(list(graph.inputs))
        except GraphcoreError:  # an op that needs that size
            continue
        graph.output(**{f"out{i}": symbol for i, symbol in enumerate(results)})
        yield graph


def without_dims_of_outputs(path: Path) -> onnx.ModelProto:
    """The model of a file, whose outputs have no dims that inference could take over."""
    model = onnx.load(path)
    for output in model.graph.output:
        for dim in output.type.tensor_type.shape.dim:
            dim.Clear()
    return model


def _stored(type_: TensorType) -> list[Dim]:
    """Return the dims of a tensor in a file, where complex numbers have an axis of their parts."""
    return [*type_.shape, *([Dim(2)] if type_.dtype.is_complex else [])]


def lost(graph: Graph, read: Graph) -> list[str]:
    """The outputs that have fewer dims in the graph that was read."""
    pairs = zip(graph.output_types.items(), read.output_types.values(), strict=True)
    return [
        f"{name}: {built} is {item}"
        for (name, built), item in pairs
        if isinstance(built, TensorType)
        and isinstance(item, TensorType)
        and built.shape.is_ranked
        and (
            not item.shape.is_ranked
            or any(b.is_dynamic and not a.is_dynamic for a, b in zip(_stored(built), item.shape, strict=True))
        )
    ]


@pytest.mark.parametrize("family", sorted({op.family for op in REGISTRY.values()}))
def test_dims_are_as_they_were_built_when_a_file_is_read(family: str, tmp_path: Path) -> None:
    results: list[str] = []
    for name in [name for name, op in REGISTRY.items() if op.family == family]:
        for target in TARGETS:
            losses: list[str] = []
            for graph in built(name):
                graph.export(tmp_path / "model.onnx", target=target)
                losses += lost(graph, Graph.load(without_dims_of_outputs(tmp_path / "model.onnx")))
            is_known = target in LOST.get(name, ((), ""))[0]
            if bool(losses) != is_known:
                results.append(f"{name} for {target}: {losses or 'loses nothing any more'}")
    assert not results, "\n".join(results)


def test_axis_is_kept_when_it_is_rolled(tmp_path: Path) -> None:
    from graphcore import array_api as xp

    graph = Graph("g", {"x": TensorType("float32", ["n", 4])})
    with graph:
        rolled = xp.roll(graph["x"], 1, axis=1)
        both = xp.roll(graph["x"], (1, 2), axis=(0, 1))
    graph.output(rolled=rolled, both=both)
    assert [str(t) for t in graph.output_types.values()] == ["float32[n, 4]"] * 2
    graph.export(tmp_path / "model.onnx")
    read = Graph.load(without_dims_of_outputs(tmp_path / "model.onnx"))
    assert [str(t) for t in read.output_types.values()] == ["float32[n, 4]"] * 2
    assert gc.InferenceSession().load(graph) is not None
