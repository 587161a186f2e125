"""`graphcore rename`: a model with other names."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from graphcore.cli.rewriting import rewrite
from graphcore.errors import GraphError


def rename(args: argparse.Namespace) -> int:
    names, values, dims = (_mapping(given) for given in (args.names, args.value, args.dim))
    if not names and not values and not dims:
        raise GraphError("rename: no name is given", help="say which: graphcore rename IN OUT old=new")
    return rewrite(args, lambda graph: graph.rename(names, values=values, dims=dims))


def _mapping(given: Sequence[tuple[str, str]]) -> dict[str, str]:
    found: dict[str, str] = {}
    for old, new in given:
        if old in found:
            raise GraphError(f"rename: {old!r} is given two names", help="give one")
        found[old] = new
    return found
