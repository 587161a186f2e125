"""`graphcore set-dims`: a model whose inputs have other dims."""

from __future__ import annotations

import argparse

from graphcore.cli.rewriting import rewrite
from graphcore.errors import GraphcoreError, GraphError, ShapeError
from graphcore.ir.graph import Graph
from graphcore.types.tensor_types import DimLike


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

    def resized(graph: Graph) -> Graph:
        try:
            return graph.with_dims(shapes or None, **dims)
        except GraphcoreError:
            raise
        except ValueError as error:  # of an expression that comes out below 0
            raise ShapeError(f"set-dims: {error}", help="give sizes of 0 or more, names or expressions") from None

    return rewrite(args, resized)


def _dim(text: str) -> DimLike:
    stripped = text.strip()
    return int(stripped) if stripped.isdecimal() else stripped
