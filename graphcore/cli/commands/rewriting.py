"""Commands that write a changed model, such as `astype`, `convert`, `mixed-precision`, `quantize` and `set-dims`."""

from __future__ import annotations

import argparse
import itertools
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from graphcore import runtime
from graphcore.arrays.external_data import model_bytes
from graphcore.cli import output
from graphcore.cli.arguments.options import links
from graphcore.cli.arrays import read_all
from graphcore.cli.distances import distance, random_feeds
from graphcore.errors import FeedError, GraphcoreError, GraphError, ShapeError
from graphcore.ir.graph import Graph
from graphcore.onnx.proto.value_protos import split
from graphcore.support.escaping import suggestion
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import Shape, TensorType, Type

_SIZES = (5, 16, 64, 1)
"""Sizes to try for dims with names: the first with which the old model runs is used."""

_TOLERANCE = 1e-2
"""Absolute and relative. Kernels may differ if a size is known; elements of wrong rows differ by far more."""


def set_dims(args: argparse.Namespace) -> int:
    pairs: dict[str, str] = {}
    for name, text in args.dims:
        if name in pairs:
            raise GraphError(f"set-dims: {name!r} is given twice", help="give it once")
        pairs[name] = text
    runs: list[str] = []

    def resized(graph: Graph) -> Graph:
        try:
            shapes, dims = _new_dims(graph, args.source, pairs)
            result = graph.with_dims(shapes, **dims)
        except GraphcoreError:
            raise
        except ValueError as error:  # an expression that evaluates to less than 0
            raise ShapeError(f"set-dims: {error}", help="give sizes of 1 or more, names or expressions") from None
        if args.verify:
            runs.extend(_verify(graph, result))
        return result

    status = rewrite(args, resized)
    if runs and not args.json:
        output.line(f"verified: it runs with {' and with '.join(runs)}")
    return status


def _new_dims(graph: Graph, path: str, pairs: Mapping[str, str]) -> tuple[dict[str, list[Dim]], dict[str, Dim]]:
    """Return the arguments of `with_dims`: dims of inputs, and dims by name.

    A name may be quoted, and may be any text that the file has for a dim: such dims have no name in the graph.
    """
    typed = [(s.name, s.type) for s in graph.input_symbols if isinstance(s.type, TensorType) and s.type.shape.is_ranked]
    inputs = {name: [*type_.shape] for name, type_ in typed}
    names = {name for old in inputs.values() for dim in old for name in dim.parameters}
    # Most names are dims of the graph: for those the file is not read again.
    needs_file = any(name not in names and (text[:1], text[-1:]) != ("[", "]") for name, text in pairs.items())
    file_dims = {
        (value.name, axis): dim.dim_param
        for value in (_head(path).graph.input if needs_file else ())
        for axis, dim in enumerate(value.type.tensor_type.shape.dim)
        if dim.dim_param and axis < len(inputs.get(value.name, ()))
    }
    shapes: dict[str, list[Dim]] = {}
    dims: dict[str, Dim] = {}
    axes: dict[tuple[str, int], Dim] = {}
    for written, text in pairs.items():
        name = written if written in names else _unquoted(written)
        is_list = text.startswith("[") and text.endswith("]")
        parts = text[1:-1].split(",") if is_list and text[1:-1].strip() else [] if is_list else [text]
        new = [*map(_dim, parts)]
        old = inputs.get(name, []) if is_list else []
        if any(dim.is_static and int(dim) < 1 and dim not in old[i : i + 1] for i, dim in enumerate(new)):
            raise ShapeError(
                f"set-dims: {written}={text}: a size must be at least 1",
                help='give a number, a name or an expression, "?" for any size; graph.with_dims accepts 0 in Python',
            )
        if is_list:
            shapes[name] = new
        elif name in names:
            dims[name] = new[0]
        elif name in file_dims.values():
            axes |= {place: new[0] for place, each in file_dims.items() if each == name}
        else:
            labels = sorted(names.union(file_dims.values()))
            ends = ", ".join(f"{s.name}: {s.type}" for s in graph.input_symbols)
            raise GraphError(
                f"set-dims: no input has a dim called {name!r}",
                help=f"{suggestion(name, labels)}dims: {', '.join(map(repr, labels)) or 'none'}; inputs: {ends}",
            )
    for name, axis in axes:
        shapes.setdefault(name, [dim.substitute(dims) for dim in inputs[name]])[axis] = axes[name, axis]
    return shapes, dims


def _dim(text: str) -> Dim:
    stripped = _unquoted(text)
    return Shape([int(stripped) if stripped.isdecimal() else stripped])[0]


def _unquoted(text: str) -> str:
    stripped = text.strip()
    return stripped[1:-1] if len(stripped) > 1 and stripped[0] == stripped[-1] and stripped[0] in "'\"" else stripped


# Runs with two sizes (`set-dims --verify`).


def _verify(old: Graph, new: Graph) -> list[str]:
    """Run a graph with two sizes of each new symbolic dim, one of them the old size if known; return both as text.

    Raises `GraphError` if the graph does not run, if the shape of a result does not match its type, or if results
    differ from those of the old graph on arrays that both accept.
    """
    session = runtime.InferenceSession()
    before, after = session.load(old), session.load(new)
    named = {label for label, _ in _labels(before.inputs)}
    unchanged, freed = ([n for n, _ in _labels(after.inputs) if (n in named) is there] for there in (True, False))
    first = {**dict.fromkeys(freed, 2), **_old_sizes(before.inputs, after.inputs)}
    used_sizes = {int(dim) for _, dim in _dims(after.inputs) if dim.is_static}.union(first.values())
    others: dict[str, int] = {}
    for label in freed:
        size = first[label]
        # Smaller first, since a table may not have more rows; but not 1, which broadcasts.
        sizes_near = itertools.chain(range(size - 1, 1, -1), itertools.count(size + 1))
        others[label] = next(n for n in sizes_near if n not in used_sizes)
        used_sizes.add(others[label])
    expected: dict[str, Any] | None = None
    for size in _SIZES:
        sizes = {**dict.fromkeys(unchanged, size), **first}
        feeds = random_feeds(after.inputs, sizes, 0, "set-dims")
        if not _accepts(before.inputs, feeds):
            break
        try:
            expected = _run(before, feeds)
            break
        except GraphcoreError as error:
            reason = error.summary
            if size == _SIZES[-1] or not unchanged:
                raise GraphError(
                    f"set-dims: the original model does not run with {_sizes_text(sizes)}: {reason}",
                    help="write the model without --verify, and run it with sizes that it accepts",
                ) from None
    results = _run_and_check(new, after, feeds, sizes)
    for name, array in {} if expected is None else expected.items():
        gap = distance(array, results[name], _TOLERANCE, _TOLERANCE)
        if gap.is_far and not distance(array, _run(before, feeds)[name], _TOLERANCE, _TOLERANCE).is_far:
            raise GraphError(
                f"set-dims: output {name!r} differs from that of the old model with {_sizes_text(sizes)}: "
                f"{gap.reason or f'{gap.beyond} of {gap.size} elements differ'}",
                help="first replace the nodes that contain an old size: graph.replace(...)",
            )
    if not others:
        return [_sizes_text(sizes)]
    more = {**sizes, **others}
    _run_and_check(new, after, random_feeds(after.inputs, more, 0, "set-dims"), more)
    return [_sizes_text(sizes), _sizes_text(more)]


def _dims(inputs: Mapping[str, Type]) -> Iterator[tuple[str, Dim]]:
    """Yield the dims of inputs with their places, such as "x.0", as in `random_feeds`."""
    for name, type_ in inputs.items():
        if isinstance(type_, TensorType) and type_.shape.is_ranked:
            yield from ((f"{name}.{axis}", dim) for axis, dim in enumerate(type_.shape))


def _labels(inputs: Mapping[str, Type]) -> Iterator[tuple[str, Dim]]:
    """Yield the names in the dims of inputs, without duplicates, and the places of unknown dims."""
    pairs = ((label, dim) for place, dim in _dims(inputs) for label in ([place] if dim.is_dynamic else dim.parameters))
    yield from dict(pairs).items()


def _old_sizes(old: Mapping[str, Type], new: Mapping[str, Type]) -> dict[str, int]:
    """Return the sizes of names with which the dims of inputs equal the old ones."""
    old_dims = dict(_dims(old))
    sizes: dict[str, int] = {}
    for place, dim in _dims(new):
        size = old_dims[place].value if place in old_dims else None
        labels = [place] if dim.is_dynamic else [*dim.parameters]
        if size is None or len(labels) != 1:
            continue
        trials = [size] if dim.is_dynamic or dim.name else range(1, size + 1)
        fit = (n for n in trials if dim.is_dynamic or dim.evaluate({labels[0]: n}) == size)
        for n in itertools.islice(fit, 1):
            sizes.setdefault(labels[0], n)
    return sizes


def _accepts(inputs: Mapping[str, Type], feeds: Mapping[str, Any]) -> bool:
    """Return True if arrays have the static sizes of inputs."""
    shapes = {f"{name}.{axis}": size for name, array in feeds.items() for axis, size in enumerate(array.shape)}
    return all(not dim.is_static or shapes.get(place) == int(dim) for place, dim in _dims(inputs))


def _run(model: runtime.Model, feeds: Mapping[str, Any]) -> dict[str, Any]:
    return dict(zip(model.outputs, model(**feeds), strict=True))


def _run_and_check(
    graph: Graph, model: runtime.Model, feeds: Mapping[str, Any], sizes: Mapping[str, int]
) -> dict[str, Any]:
    """Return the results of a run. Raises `GraphError` if a shape does not match its type."""
    fix = (
        "give sizes that the model accepts, such as 'height=32 * h', or first replace the nodes with an old size inside"
    )
    try:
        results = _run(model, feeds)
    except GraphcoreError as error:
        raise GraphError(
            f"set-dims: the result does not run with {_sizes_text(sizes)}: {error.summary}", help=fix
        ) from None
    for name, type_ in graph.output_types.items():
        array = results[name]
        if not isinstance(type_, TensorType) or not type_.shape.is_ranked or not isinstance(array, np.ndarray):
            continue
        expected = [
            None if d.is_dynamic or not d.parameters <= sizes.keys() else d.evaluate(sizes) for d in type_.shape
        ]
        if len(expected) != array.ndim or any(a not in (None, b) for a, b in zip(expected, array.shape, strict=True)):
            raise GraphError(
                f"set-dims: output {name!r} has the shape {list(array.shape)} with {_sizes_text(sizes)}, but its type "
                f"is {type_}",
                help=fix,
            )
    return results


def _sizes_text(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in sizes.items()) or "its sizes"


def rename(args: argparse.Namespace) -> int:
    names, values, dims = (_mapping(pairs) for pairs in (args.names, args.value, args.dim))
    if not names and not values and not dims:
        raise GraphError("rename: no name is given", help="give a name: graphcore rename IN OUT old=new")
    return rewrite(args, lambda graph: graph.rename(names, values=values, dims=dims))


def _mapping(pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    mapping: dict[str, str] = {}
    for old, new in pairs:
        if old in mapping:
            raise GraphError(f"rename: two new names are given for {old!r}", help="give one")
        mapping[old] = new
    return mapping


# Commands that read a file, transform its graph and write it: the methods of docs/howto/edit_model.md.


def rewrite(args: argparse.Namespace, change: Callable[[Graph], Graph]) -> int:
    """Read `args.source`, change the graph, and write `args.path`, with external data if the source has some.

    Writes nothing if an error is raised.
    """
    with output.working(f"loading {args.source}"):
        graph = Graph.load(args.source, **links(args))
        has_data = args.external_data or is_external(args.source)
    with output.working(f"{args.command}: {args.source}"):
        result = change(graph)
    with output.progress(f"writing {args.path}") as advance:
        result.export(
            args.path,
            target=args.target,
            external_data=True if has_data else None,
            opset=args.opset,
            ir_version=args.ir_version,
            runtime=args.runtime,
            progress=advance,
        )
    inputs = {s.name: str(s.type) for s in result.inputs}
    outputs = {name: str(type_) for name, type_ in result.output_types.items()}
    if args.json:
        output.document(
            {
                "source": args.source,
                "path": args.path,
                "bytes": os.path.getsize(args.path),
                "external_data": f"{args.path}.data" if has_data and os.path.exists(f"{args.path}.data") else None,
                "nodes": len(result.nodes),
                "inputs": [{"name": name, "type": type_} for name, type_ in inputs.items()],
                "outputs": [{"name": name, "type": type_} for name, type_ in outputs.items()],
            }
        )
        return 0
    output.line(f"{args.path}: {len(result.nodes)} nodes")
    rows = [("input", name, type_) for name, type_ in inputs.items()]
    output.table(rows + [("output", name, type_) for name, type_ in outputs.items()])
    return 0


def is_external(path: str) -> bool:
    """Return True if a model has external data."""
    return any(each.data_location == onnx.TensorProto.EXTERNAL for each in _head(path).graph.initializer)


def _head(path: str) -> onnx.ModelProto:
    """Return a model without the values of its weights."""
    model: onnx.ModelProto = onnx.ModelProto.FromString(split(model_bytes(path))[0])
    return model


# `graphcore astype`: a model that computes in another float dtype.


def astype(args: argparse.Namespace) -> int:
    return rewrite(
        args, lambda graph: graph.astype(args.dtype, source=args.dtypes or None, keep=args.keep, keep_io=not args.io)
    )


# `graphcore convert`: a model for a target.


def convert(args: argparse.Namespace) -> int:
    with output.working(f"loading {args.source}"):
        graph = Graph.load(args.source, implicit_casts=args.implicit_casts, promotion=args.promotion, **links(args))
    output.require_other("convert", args.source, args.path)
    with output.progress(f"writing {args.path}") as advance:
        graph.export(
            args.path,
            target=args.target,
            precision=args.precision,
            external_data=True if args.external_data else None,
            opset=args.opset,
            ir_version=args.ir_version,
            runtime=args.runtime,
            io_dtype=args.io_dtype,
            progress=advance,
        )
    ends = {"inputs": [s.name for s in graph.inputs], "outputs": [*graph.output_types]}
    return _describe(args, ends, counts=f"{len(graph.inputs)} inputs, {len(graph.outputs)} outputs")


def _describe(args: argparse.Namespace, facts: Mapping[str, Any], report: object = None, counts: str = "") -> int:
    """Print facts of the written model as JSON, or a report and counts, by default of bytes. Return the status."""
    size = os.path.getsize(args.path)
    if args.json:
        output.document({"source": args.source, "path": args.path, "bytes": size, "target": args.target, **facts})
        return 0
    for line in [] if report is None else str(report).split("\n"):
        output.line(line)
    output.line(f"{args.path}: {counts or f'{size} bytes'}, for {args.target}")
    return 0


# `graphcore extract`: the part of a model that computes some values from others.


def extract(args: argparse.Namespace) -> int:
    def part(graph: Graph) -> Graph:
        return graph.extract(args.inputs and _values(graph, args.inputs), _values(graph, args.outputs))

    return rewrite(args, part)


def _values(graph: Graph, texts: Sequence[str]) -> dict[str, str]:
    """Return names of values by their new names. A name may contain "="."""
    all_names = {symbol.name for symbol in graph.symbols} | {*graph.output_types}
    values: dict[str, str] = {}
    for text in texts:
        new, _, old = text.partition("=")
        name, value = (new, old) if text not in all_names and old else (text, text)
        if name in values:
            raise GraphError(
                f"extract: two values get the name {name!r}", help="give one of them another name: NEW=NAME"
            )
        values[name] = value
    return values


# `graphcore quantize`: a model with quantised weights, and a report of each layer.


def quantize(args: argparse.Namespace) -> int:
    with output.working(f"loading {args.source}"):
        graph = Graph.load(args.source, **links(args))
    output.require_other("quantize", args.source, args.path)
    with output.progress(f"quantising {args.source}") as advance:
        quantized, report = runtime.quantize(
            graph,
            args.scheme,
            include=args.include,
            exclude=args.exclude,
            embeddings=args.embeddings,
            min_elements=args.min_elements,
            block_size=args.block_size,
            many_rows=args.many_rows,
            reduce_range=args.reduce_range,
            accuracy_level=args.accuracy_level,
            strict=args.strict,
            progress=advance,
        )
    with output.progress(f"writing {args.path}") as advance:
        here = "installed" if args.for_this_cpu else None
        quantized.export(args.path, target=args.target, runtime=here, progress=advance)
    if args.report:
        output.write_text("quantize", args.report, output.json_text(report.as_dicts()) + "\n")
    facts = {"scheme": args.scheme, "quantized": len(report.quantized), "before": report.before, "after": report.after}
    return _describe(args, facts | {"rows": report.as_dicts()}, output.escaped_record(report))


# `graphcore mixed-precision`: a model whose layers are narrow within a budget of error, and a report of each layer.


def mixed_precision(args: argparse.Namespace) -> int:
    with output.working(f"loading {args.source}"):
        graph = Graph.load(args.source, **links(args))
    output.require_other("mixed-precision", args.source, args.path)
    with output.progress(f"measuring {args.source}") as advance:
        result = runtime.mixed_precision(
            graph,
            [sample for path in args.samples for sample in _samples(path, graph)],
            max_error=args.max_error,
            dtypes=args.dtypes or ("float16", "bfloat16", "int8", "int4"),
            metric=args.metric,
            cost=args.cost,
            keep_io=not args.io,
            keep=args.keep,
            progress=advance,
            resume=args.resume,
            session=runtime.InferenceSession(args.provider, precision="exact"),
        )
    with output.progress(f"writing {args.path}") as advance:
        result.graph.export(args.path, target=args.target, progress=advance)
    if args.plot:
        result.plot(args.plot)
    facts = {"plot": args.plot, "met": result.met, "error": result.error, "max_error": result.max_error}
    facts |= {"runs": result.runs, "curve": result.curve, "rows": result.as_dicts()}
    return _describe(args, facts, result)


def _samples(path: str, graph: Graph) -> list[dict[str, Any]]:
    """Return the samples in a .npz file: one, or one for each index if all arrays have one more axis than inputs."""
    try:
        feeds = read_all(path)
    except (OSError, ValueError, TypeError, EOFError, zipfile.BadZipFile) as error:
        reason = getattr(error, "strerror", None) or str(error).split("\n")[0]
        raise FeedError(
            f"mixed-precision: {path} cannot be read: {reason}",
            help="write an array for each input: numpy.savez(path, x=x)",
        ) from None
    types = [(s.name, s.type) for s in graph.inputs]
    ranks = {name: t.shape.rank for name, t in types if isinstance(t, TensorType) and t.shape.is_ranked}
    if any(array.ndim - 1 != ranks.get(name) for name, array in feeds.items()):
        return [feeds]
    return [dict(zip(feeds, arrays, strict=True)) for arrays in zip(*feeds.values(), strict=False)]
