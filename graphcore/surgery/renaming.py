"""Other names for the values and the dims of a graph."""

from __future__ import annotations

from collections.abc import Mapping

from graphcore.errors import GraphError
from graphcore.ir.definitions import names_of
from graphcore.ir.graph import Graph
from graphcore.ir.names import checked_name
from graphcore.surgery.copying import finish, labelled_outputs, replica, value_of
from graphcore.types.dims import Dim


def rename(
    graph: Graph,
    names: Mapping[str, str],
    values: Mapping[str, str],
    dims: Mapping[str, str],
) -> Graph:
    """Return a graph with other names. See `Graph.rename`."""
    known = set(names_of(dict.fromkeys(s.type for s in graph.symbols)))
    values, dims = dict(values), dict(dims)
    for old, new in names.items():
        is_value = _is_value(graph, old)
        if is_value and old in known:
            raise GraphError(
                f"rename: {old!r} is a value and a dim",
                help=f"say which: rename(values={{{old!r}: {new!r}}}) or rename(dims={{{old!r}: {new!r}}})",
            )
        (dims if old in known else values)[old] = new
    _check_dims(known, dims)
    _check_values(graph, values)
    labels = {name or s.name for name, s in graph.named_outputs}
    replay = replica(graph, "rename", names=values, dims={old: Dim(new) for old, new in dims.items()})
    made = finish(replay, [(values.get(name, name), s) for name, s in labelled_outputs(graph)])
    for old, new in values.items():
        symbol = None if old in labels else replay.of(value_of(graph, "rename", old))
        if symbol is not None and symbol.name != new:
            made.names.rename(symbol, new)
    return made


def _is_value(graph: Graph, name: str) -> bool:
    try:
        value_of(graph, "rename", name)
    except GraphError:
        return False
    return True


def _check_dims(known: set[str], dims: Mapping[str, str]) -> None:
    for old, new in dims.items():
        if old not in known:
            raise GraphError(f"rename: no dim is called {old!r}", help=f"the dims: {_shown(known)}")
        try:
            is_name = Dim(new).name is not None
        except (ValueError, TypeError):
            is_name = False
        if not is_name:
            raise GraphError(
                f"rename: {new!r} is no name of a dim", help="a number or an expression: graph.with_dims(...)"
            )
        if new in known and new not in dims:
            raise GraphError(
                f"rename: there is a dim {new!r} already",
                help=f"to make both one: graph.with_dims({old}={new!r})",
            )
    if len({*dims.values()}) != len(dims):
        raise GraphError("rename: two dims would have one name", help="to make both one: graph.with_dims(...)")


def _shown(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def _check_values(graph: Graph, values: Mapping[str, str]) -> None:
    for old, new in values.items():
        value_of(graph, "rename", old)
        checked_name(new, "rename")
        other = graph.names.taken.get(new)
        if other is not None and new not in values and new != old:
            raise GraphError(f"rename: the name {new!r} is taken", operands={"taken by": other}, help="choose another")
    if len({*values.values()}) != len(values):
        raise GraphError("rename: two values would have one name", help="choose another name for one")
