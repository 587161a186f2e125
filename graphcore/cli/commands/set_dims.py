"""`graphcore set-dims`: a model whose inputs have other dims."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from graphcore import runtime
from graphcore.cli import output
from graphcore.cli.commands.rewriting import rewrite
from graphcore.cli.measuring.distances import distance, random_feeds
from graphcore.errors import GraphcoreError, GraphError, ShapeError
from graphcore.ir.graph import Graph
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import DimLike, TensorType, Type

_SIZES = (5, 16, 64, 1)
"""Sizes of dims that had names before: the first with which the old model runs is taken."""

_TOLERANCE = 1e-2
"""Absolute and relative. Kernels may differ where a size is known; elements of other rows differ by far more."""


def set_dims(args: argparse.Namespace) -> int:
    shapes: dict[str, list[DimLike]] = {}
    dims: dict[str, DimLike] = {}
    for name, text in args.dims:
        if name in shapes or name in dims:
            raise GraphError(f"set-dims: {name!r} is given twice", help="give it once")
        if text.startswith("[") and text.endswith("]"):
            inner = text[1:-1].strip()
            shapes[name] = [_dim(part) for part in inner.split(",")] if inner else []
        else:
            dims[name] = _dim(text)
    runs: list[str] = []

    def resized(graph: Graph) -> Graph:
        try:
            made = graph.with_dims(shapes or None, **dims)
        except GraphcoreError:
            raise
        except ValueError as error:  # of an expression that comes out below 0
            raise ShapeError(f"set-dims: {error}", help="give sizes of 0 or more, names or expressions") from None
        if args.verify:
            runs.extend(_verified(graph, made))
        return made

    status = rewrite(args, resized)
    if runs and not args.json:
        output.line(f"verified: it runs with {' and with '.join(runs)}")
    return status


def _dim(text: str) -> DimLike:
    stripped = text.strip()
    return int(stripped) if stripped.isdecimal() else stripped


# Runs with two sizes


def _verified(old: Graph, new: Graph) -> list[str]:
    """Run a graph with two sizes of each dim that was freed, the old one where it is known; return both as text.

    Raises `GraphError` where it does not run, where a result does not have the shape that its type promises, and where
    it gives other numbers than the old graph on arrays that both take.
    """
    session = runtime.InferenceSession()
    before, after = session.load(old), session.load(new)
    named = {label for label, _ in _labels(before.inputs)}
    kept, freed = ([n for n, _ in _labels(after.inputs) if (n in named) is there] for there in (True, False))
    first = {**dict.fromkeys(freed, 2), **_old_sizes(before.inputs, after.inputs)}
    taken = {int(dim) for _, dim in _dims(after.inputs) if dim.is_static}.union(first.values())
    others: dict[str, int] = {}
    for label in freed:
        size = first[label]
        # Fewer, since tables may have no more rows, but not one, which is repeated where more are expected.
        sizes_near = itertools.chain(range(size - 1, 1, -1), itertools.count(size + 1))
        others[label] = next(n for n in sizes_near if n not in taken)
        taken.add(others[label])
    wanted: dict[str, Any] | None = None
    for size in _SIZES:
        sizes = {**dict.fromkeys(kept, size), **first}
        feeds = random_feeds(after.inputs, sizes, 0, "set-dims")
        if not _accepts(before.inputs, feeds):
            break
        try:
            wanted = _run(before, feeds)
            break
        except GraphcoreError as error:
            reason = error.summary
            if size == _SIZES[-1] or not kept:
                raise GraphError(
                    f"set-dims: the model itself does not run with {_shown(sizes)}: {reason}",
                    help="write the model without --verify, and run it with sizes that it takes",
                ) from None
    made = _checked(new, after, feeds, sizes)
    for name, array in {} if wanted is None else wanted.items():
        gap = distance(array, made[name], _TOLERANCE, _TOLERANCE)
        if gap.is_far and not distance(array, _run(before, feeds)[name], _TOLERANCE, _TOLERANCE).is_far:
            raise GraphError(
                f"set-dims: output {name!r} is another one than that of the old model with {_shown(sizes)}: "
                f"{gap.reason or f'{gap.beyond} of {gap.size} elements differ'}",
                help="replace the nodes that have an old size inside first: graph.replace(...)",
            )
    if not others:
        return [_shown(sizes)]
    more = {**sizes, **others}
    _checked(new, after, random_feeds(after.inputs, more, 0, "set-dims"), more)
    return [_shown(sizes), _shown(more)]


def _dims(inputs: Mapping[str, Type]) -> Iterator[tuple[str, Dim]]:
    """Yield the dims of inputs, each with its place as the names of `random_feeds` have it."""
    for name, type_ in inputs.items():
        if isinstance(type_, TensorType) and type_.shape.is_ranked:
            yield from ((f"{name}.{axis}", dim) for axis, dim in enumerate(type_.shape))


def _labels(inputs: Mapping[str, Type]) -> Iterator[tuple[str, Dim]]:
    """Yield the names in the dims of inputs once, and the places of dims of which nothing is known."""
    found = ((label, dim) for place, dim in _dims(inputs) for label in ([place] if dim.is_dynamic else dim.parameters))
    yield from dict(found).items()


def _old_sizes(old: Mapping[str, Type], new: Mapping[str, Type]) -> dict[str, int]:
    """Return the sizes by name with which the dims of inputs are the numbers that they were."""
    was = dict(_dims(old))
    found: dict[str, int] = {}
    for place, dim in _dims(new):
        size = was[place].value if place in was else None
        labels = [place] if dim.is_dynamic else [*dim.parameters]
        if size is None or len(labels) != 1:
            continue
        trials = [size] if dim.is_dynamic or dim.name else range(1, size + 1)
        fit = (n for n in trials if dim.is_dynamic or dim.evaluate({labels[0]: n}) == size)
        for n in itertools.islice(fit, 1):
            found.setdefault(labels[0], n)
    return found


def _accepts(inputs: Mapping[str, Type], feeds: Mapping[str, Any]) -> bool:
    """Return whether arrays have the sizes of inputs that are numbers."""
    shapes = {f"{name}.{axis}": size for name, array in feeds.items() for axis, size in enumerate(array.shape)}
    return all(not dim.is_static or shapes.get(place) == int(dim) for place, dim in _dims(inputs))


def _run(model: runtime.Model, feeds: Mapping[str, Any]) -> dict[str, Any]:
    return dict(zip(model.outputs, model(**feeds), strict=True))


def _checked(graph: Graph, model: runtime.Model, feeds: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, Any]:
    """Return the results of a run, which have the shapes of their types. Raises `GraphError`."""
    fix = "name what the model takes, such as 'height=32 * h', or replace the nodes that have an old size inside first"
    try:
        found = _run(model, feeds)
    except GraphcoreError as error:
        raise GraphError(f"set-dims: the result does not run with {_shown(sizes)}: {error.summary}", help=fix) from None
    for name, type_ in graph.output_types.items():
        array = found[name]
        if not isinstance(type_, TensorType) or not type_.shape.is_ranked or not isinstance(array, np.ndarray):
            continue
        told = [None if d.is_dynamic or not d.parameters <= sizes.keys() else d.evaluate(sizes) for d in type_.shape]
        if len(told) != array.ndim or any(a not in (None, b) for a, b in zip(told, array.shape, strict=True)):
            raise GraphError(
                f"set-dims: output {name!r} has the shape {list(array.shape)} with {_shown(sizes)}, and its type is "
                f"{type_}",
                help=fix,
            )
    return found


def _shown(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in sizes.items()) or "its sizes"
