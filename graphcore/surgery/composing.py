"""Two graphs as one: outputs of the first are inputs of the second."""

from __future__ import annotations

from collections.abc import Mapping

from graphcore.errors import GraphError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol
from graphcore.support.source_lines import user_origin
from graphcore.surgery.calling import call, output_names
from graphcore.types.tensor_types import Type


def compose(
    first: Graph,
    second: Graph,
    connect: Mapping[str, str] | None = None,
    *,
    name: str | None = None,
    implicit_casts: bool = False,
) -> Graph:
    """Return a new graph that computes `first`, and `second` on what it gives.

    connect: by the names of outputs of `first`, the names of the inputs of `second` that they feed. By default those
    of equal names, or the only output and the only input. The result has the inputs of `first`, then those of
    `second` that nothing feeds; and the outputs of `first` that feed nothing, then those of `second`. A name that both
    use is that of `second`'s value under a layer of its own; dims of one name are one dim. name: of the result, by
    default that of `first`. implicit_casts: see `Graph.__call__`. Weights are shared by reference, buffers come along.

    Raises `GraphError` for names that do not exist, and for inputs or outputs of both that have one name (see
    `Graph.rename`); `DTypeError` and `ShapeError` where what is connected does not go together.

        whole = gc.compose(preprocess, model, {"pixels": "images"})
    """
    first.verify()
    second.verify()
    chosen = _connections(first, second, connect)
    fed = {s.name: s for s in second.input_symbols if s.given_name not in second.buffers}
    own = {s.name: s for s in first.input_symbols if s.given_name not in first.buffers}
    inputs: dict[str, Type] = {label: s.type for label, s in own.items()}
    for label, symbol in fed.items():
        if label in chosen.values():
            continue
        if label in inputs:
            raise GraphError(
                f"compose: both graphs have an input {label!r}",
                operands={first.name: own[label], second.name: symbol},
                help=f"rename one: second.rename({{{label!r}: {label + '_2'!r}}}); or connect an output to it",
            )
        inputs[label] = symbol.type
    whole = Graph(name or first.name, promotion=first.promotion, strict=first.strict)
    for label, type_ in inputs.items():
        whole.build.input(type_, whole.names.claim(label, "input"), user_origin())
    made = _by_name(first, call(first, [whole[label] for label in own], {}, layer="", what="compose"))
    given = {label: made[output] for output, label in chosen.items()}
    given.update({label: whole[label] for label in fed if label not in given})
    results = _by_name(second, call(second, (), given, implicit_casts=implicit_casts, layer="", what="compose"))
    outputs = {label: symbol for label, symbol in made.items() if label not in chosen}
    if both := outputs.keys() & results.keys():
        label = min(both)
        raise GraphError(
            f"compose: both graphs have an output {label!r}",
            operands={first.name: outputs[label], second.name: results[label]},
            help=f"rename one: second.rename({{{label!r}: {label + '_2'!r}}})",
        )
    _set_outputs(whole, {**outputs, **results})
    return whole


def _by_name(graph: Graph, made: Symbol | tuple[Symbol, ...]) -> dict[str, Symbol]:
    values = [made] if isinstance(made, Symbol) else [*made]
    return dict(zip(output_names(graph), values, strict=True))


def _set_outputs(graph: Graph, outputs: Mapping[str, Symbol]) -> None:
    for label, symbol in outputs.items():
        other = graph.names.taken.get(label)
        if other is not None and other is not symbol:
            raise GraphError(
                f"compose: an output and another value are called {label!r}",
                operands={"output": symbol, "value": other},
                help="rename one of them with Graph.rename",
            )
    labelled = graph.names.of_outputs([*outputs.items()])
    graph.build.outputs(labelled)
    graph.names.claim_outputs(labelled)


def _connections(first: Graph, second: Graph, connect: Mapping[str, str] | None) -> dict[str, str]:
    """Return the inputs of the second graph by the outputs that feed them. Raises `GraphError`."""
    outputs = output_names(first)
    inputs = [s.name for s in second.input_symbols if s.given_name not in second.buffers]
    shown = f"{first.name!r} gives {', '.join(outputs)}; {second.name!r} takes {', '.join(inputs)}"
    if connect is None:
        same = {label: label for label in outputs if label in inputs}
        if not same and len(outputs) == len(inputs) == 1:
            same = {outputs[0]: inputs[0]}
        if not same:
            raise GraphError(
                "compose: no output of the first graph has the name of an input of the second",
                help=f'say which feeds which: compose(first, second, {{"output": "input"}}); {shown}',
            )
        return same
    for output, label in connect.items():
        if output not in outputs:
            raise GraphError(f"compose: the first graph has no output {output!r}", help=shown)
        if label not in inputs:
            raise GraphError(f"compose: the second graph has no input {label!r}", help=shown)
    if len({*connect.values()}) != len(connect):
        raise GraphError("compose: two outputs feed one input", help=shown)
    if not connect:
        raise GraphError("compose: nothing is connected", help=shown)
    return dict(connect)
