"""`graphcore run`: a model on arrays of files, or on random ones."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphcore import runtime
from graphcore.arrays.casting import Array
from graphcore.cli import arrays
from graphcore.cli.arguments.options import links
from graphcore.errors import FeedError
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import TensorType


def run(args: argparse.Namespace) -> int:
    if args.seed < 0:
        raise FeedError(f"run: --seed {args.seed} is negative", help="give a seed of 0 or more")
    model = runtime.InferenceSession(args.provider, precision=args.precision).load(args.model, **links(args))
    feeds = _read(model, args.input)
    missing = [name for name in model.inputs if name not in feeds]
    if missing and not args.random:
        raise FeedError(
            f"run: nothing is given for {', '.join(missing)}",
            operands={name: str(model.inputs[name]) for name in missing},
            help=f"--input {missing[0]}=FILE.npy, or --random",
        )
    feeds.update(_random(model, missing, dict(args.dim), args.seed))
    results = dict(zip(model.outputs, model(**feeds), strict=True))
    said = arrays.write(args.output, results) if args.output else []
    for name, result in results.items():
        print(arrays.summary(name, result, model.outputs[name]))
    for line in said:
        print(line)
    return 0


def _read(model: runtime.Model, given: Sequence[tuple[str, str]]) -> dict[str, Any]:
    feeds: dict[str, Any] = {}
    for name, path in given:
        if not name and len(model.inputs) == 1:
            name = next(iter(model.inputs))
        if name not in model.inputs:
            what = f"no input {name!r}" if name else f"more than one input to take {path}"
            raise FeedError(
                f"run: {model.name} has {what}",
                help=f"its inputs: {', '.join(model.inputs) or 'none'}; --input NAME=FILE",
            )
        if name in feeds:
            raise FeedError(f"run: input {name!r} is given twice", help="give one file for each input")
        feeds[name] = arrays.read(path, name, model.inputs[name])
    return feeds


def _random(model: runtime.Model, names: Sequence[str], sizes: Mapping[str, int], seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    types = {name: model.inputs[name] for name in names}
    named = {p for t in types.values() if isinstance(t, TensorType) for d in t.shape for p in d.parameters}
    unknown = [name for name in sizes if name not in named]
    if unknown:
        raise FeedError(
            f"run: no dim of a random input is called {unknown[0]!r}",
            help=f"its dims: {', '.join(sorted(named)) or 'none has a name'}",
        )
    made = {}
    for name, type_ in types.items():
        if not isinstance(type_, TensorType):
            raise FeedError(f"run: input {name!r} is {type_}, which is fed from no file", help="run it from Python")
        made[name] = arrays.random(rng, type_.dtype, [_length(d, sizes, name) for d in type_.shape])
    return made


def _length(dim: Dim, sizes: Mapping[str, int], name: str) -> int:
    if dim.is_dynamic:
        return 1
    try:
        found = dim.evaluate({p: sizes.get(p, 1) for p in dim.parameters})
    except (ValueError, ZeroDivisionError) as error:
        raise FeedError(
            f"run: input {name!r}: {dim} has no size: {error}", help="give other sizes: --dim NAME=SIZE"
        ) from None
    if found < 0:
        raise FeedError(f"run: input {name!r}: {dim} comes out as {found}", help="give other sizes: --dim NAME=SIZE")
    return found
