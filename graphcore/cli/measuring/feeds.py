"""Arrays that commands give to models: those of files and of the command line, and random ones."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphcore.arrays.casting import Array
from graphcore.cli import arrays
from graphcore.errors import FeedError
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import TensorType, Type


def feeds_of(
    what: str, model: str, inputs: Mapping[str, Type], args: argparse.Namespace, *, fills: bool
) -> dict[str, Any]:
    """Return an array for each input of a model.

    what: the command. model: its name, for errors. args: those of `options.add_feeds`. fills: give random arrays to the
    inputs that nothing is given for. Raises `FeedError`.
    """
    if args.seed < 0:
        raise FeedError(f"{what}: --seed {args.seed} is negative", help="give a seed of 0 or more")
    sizes = dict(args.dim)
    feeds = _given(what, model, inputs, args.input, sizes)
    missing = [name for name in inputs if name not in feeds]
    if missing and not fills:
        raise FeedError(
            f"{what}: nothing is given for {', '.join(missing)}",
            operands={name: str(inputs[name]) for name in missing},
            help=f"--input {missing[0]}=FILE.npy, or --random",
        )
    require_dims(what, inputs, sizes)
    feeds.update(random_feeds({name: inputs[name] for name in missing}, sizes, args.seed, what))
    return feeds


def _given(
    what: str,
    model: str,
    inputs: Mapping[str, Type],
    given: Sequence[tuple[str, str]],
    sizes: Mapping[str, int],
) -> dict[str, Any]:
    feeds: dict[str, Any] = {}
    for name, text in given:
        if not name and len(inputs) == 1:
            name = next(iter(inputs))
        if name not in inputs:
            said = f"no input {name!r}" if name else f"more than one input to take {text}"
            raise FeedError(
                f"{what}: {model} has {said}", help=f"its inputs: {', '.join(inputs) or 'none'}; --input NAME=FILE"
            )
        if name in feeds:
            raise FeedError(f"{what}: input {name!r} is given twice", help="give one file for each input")
        value = None if os.path.exists(text) else _literal(text)
        if value is None:
            feeds[name] = arrays.read(text, name, inputs[name])
        else:
            feeds[name] = _from_literal(what, value, name, inputs[name], sizes)
    return feeds


def _literal(text: str) -> Any:
    """Return the number or list that a text is in JSON; None where it is neither."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, (int, float, list)) else None


def _from_literal(what: str, value: Any, name: str, type_: Type, sizes: Mapping[str, int]) -> Any:
    if not isinstance(type_, TensorType):
        raise FeedError(f"{what}: input {name!r} is {type_}, which is fed from no number", help="run it from Python")
    try:
        made = np.array(value)
        if made.dtype == object or not np.array_equal(made.astype(type_.dtype.numpy).astype(made.dtype), made):
            if not type_.dtype.is_float or made.dtype.kind not in "if":
                raise ValueError(f"{type_.dtype.name} does not hold it")
        made = made.astype(type_.dtype.numpy)
    except (ValueError, TypeError, OverflowError) as error:
        reason = str(error).split("\n")[0]
        raise FeedError(
            f"{what}: {value!r:.60} for input {name!r} is no array: {reason}", operands={name: str(type_)}
        ) from None
    if made.ndim or not type_.shape.is_ranked:
        return made
    return np.full(lengths(what, name, type_, sizes), made)


def require_dims(what: str, inputs: Mapping[str, Type], sizes: Mapping[str, int]) -> None:
    """Raise `FeedError` where a size is given for a dim that no input has."""
    typed = {name: t.shape for name, t in inputs.items() if isinstance(t, TensorType) and t.shape.is_ranked}
    named = {p for shape in typed.values() for d in shape for p in d.parameters}
    named |= {f"{name}.{axis}" for name, shape in typed.items() for axis, d in enumerate(shape) if d.is_dynamic}
    unknown = [name for name in sizes if name not in named]
    if unknown:
        raise FeedError(
            f"{what}: no dim of an input is called {unknown[0]!r}",
            help=f"its dims: {', '.join(sorted(named)) or 'none has a name'}",
        )


def random_feeds(types: Mapping[str, Type], sizes: Mapping[str, int], seed: int, what: str = "run") -> dict[str, Array]:
    """Return random arrays for inputs. sizes: of dims by name, 1 for the others. Raises `FeedError`."""
    rng = np.random.default_rng(seed)
    made = {}
    for name, type_ in types.items():
        if not isinstance(type_, TensorType):
            raise FeedError(f"{what}: input {name!r} is {type_}, which is fed from no file", help="run it from Python")
        made[name] = arrays.random(rng, type_.dtype, lengths(what, name, type_, sizes))
    return made


def lengths(what: str, name: str, type_: TensorType, sizes: Mapping[str, int]) -> list[int]:
    """Return the length of each axis of an input. sizes: by the names of dims, and by `input.axis` of those that have
    none; 1 for the others. Raises `FeedError` where a dim has no length."""
    if not type_.shape.is_ranked:
        raise FeedError(f"{what}: input {name!r} has no known rank", help=f"give an array: --input {name}=FILE.npy")
    return [_length(what, f"{name}.{axis}", name, dim, sizes) for axis, dim in enumerate(type_.shape)]


def _length(what: str, place: str, name: str, dim: Dim, sizes: Mapping[str, int]) -> int:
    if dim.is_dynamic:
        return sizes.get(place, 1)
    try:
        found = dim.evaluate({p: sizes.get(p, 1) for p in dim.parameters})
    except (ValueError, ZeroDivisionError) as error:
        raise FeedError(
            f"{what}: input {name!r}: {dim} has no size: {error}", help="give other sizes: --dim NAME=SIZE"
        ) from None
    if found < 0:
        raise FeedError(f"{what}: input {name!r}: {dim} comes out as {found}", help="give other sizes: --dim NAME=SIZE")
    return found
