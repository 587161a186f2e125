"""Schemes of quantisation: an encoding, its options, and how a product reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from graphcore.arrays.casting import Array
from graphcore.errors import GraphError
from graphcore.quantization import ENCODINGS, QuantizedTensor, encode
from graphcore.support.suggestions import suggestion


@dataclass(frozen=True, slots=True)
class Scheme:
    """A way to quantise the matrices of a graph.

    encoding: of `graphcore.quantization`. is_dynamic: what is multiplied with the weight is quantised too, when the
    graph runs, to so many digits of int8. symmetric: the default; None where the encoding decides. channels, blocks:
    whether the scheme has scales for each output, and blocks of a size that can be chosen.
    """

    name: str
    encoding: str
    is_dynamic: bool = False
    symmetric: bool | None = None
    channels: bool = False
    blocks: bool = False
    digits: int = 1


SCHEMES: Mapping[str, Scheme] = MappingProxyType(
    {
        scheme.name: scheme
        for scheme in (
            Scheme("int8_dynamic", "int8", is_dynamic=True, symmetric=True, channels=True),
            Scheme("int8_dynamic16", "int8", is_dynamic=True, symmetric=False, channels=True, digits=2),
            Scheme("int8", "int8", symmetric=True, channels=True),
            Scheme("int8_split", "int8_split", is_dynamic=True, channels=True),
            Scheme("int4", "int4", symmetric=False, blocks=True),
            Scheme("q4_0", "q4_0"),
            Scheme("q4_k", "q4_k"),
            Scheme("q5_k", "q5_k"),
            Scheme("q6_k", "q6_k"),
        )
    }
)
"""Every scheme by name."""

BLOCK_SIZES = (128, 64, 32)
"""Sizes of blocks to choose from where none is asked for: the larger, the fewer bits, and the faster are products."""

MOST_ERROR = 0.11
"""The most that quantising may change in a weight, over its length, in blocks that are larger than need be."""


@dataclass(frozen=True, slots=True)
class Choices:
    """A scheme with what was chosen for it.

    block_size: None of a scheme with blocks chooses for each weight: the largest whose error is within `MOST_ERROR`,
    or the smallest.
    """

    scheme: Scheme
    block_size: int | None
    per_channel: bool
    symmetric: bool
    reduce_range: bool
    accuracy_level: int
    search: bool

    def encoded(self, matrix: Array) -> QuantizedTensor:
        """Return a matrix [n, k] in the encoding. Raises what `encode` does for one that it does not take."""
        scheme = self.scheme
        if scheme.encoding == "int8":
            axis = 0 if self.per_channel else None
            return encode(matrix, "int8", axis=axis, symmetric=self.symmetric, reduce_range=self.reduce_range)
        if scheme.encoding == "int8_split":
            return encode(matrix, "int8_split", axis=0 if self.per_channel else None)
        if scheme.encoding == "int4":
            return self._in_blocks(matrix)
        return encode(matrix, scheme.encoding)

    def _in_blocks(self, matrix: Array) -> QuantizedTensor:
        sizes = [size for size in BLOCK_SIZES[:-1] if not matrix.shape[-1] % size] if self.block_size is None else []
        for size in sizes:
            made = encode(matrix, "int4", block_size=size, symmetric=self.symmetric, search=self.search)
            if distance(matrix, made.dequantize()) <= MOST_ERROR:
                return made
        size = BLOCK_SIZES[-1] if self.block_size is None else self.block_size
        return encode(matrix, "int4", block_size=size, symmetric=self.symmetric, search=self.search)

    def shares_rows(self, is_multiplied: bool) -> bool:
        """Return whether a table of rows is held as a matrix of a product is: one array does for both.

        is_multiplied: whether the table is such a matrix too. One that is not has 8 bits where the scheme has 4.
        """
        if self.scheme.encoding == "int4":
            return is_multiplied
        return self.scheme.encoding == "int8" and self.per_channel and self.symmetric and not self.reduce_range

    @property
    def has_two_forms(self) -> bool:
        """Return whether products take another form for many rows than for few: those that hold x in 8 bits may."""
        return ENCODINGS[self.scheme.encoding].bits == 4 and self.accuracy_level == 4


def distance(array: Array, other: Array) -> float:
    """Return the length of the difference of two matrices over the length of the first."""
    exact = array.astype(np.float32, copy=False)
    length = float(np.linalg.norm(exact))
    return float(np.linalg.norm(other - exact)) / length if length else 0.0


def choices(
    scheme: object,
    block_size: int | None,
    per_channel: bool,
    symmetric: bool | None,
    reduce_range: bool,
    accuracy_level: int | None,
    search: bool,
    large_blocks: bool = False,
) -> Choices:
    """Return the scheme of a name, with its options.

    large_blocks: choose blocks for each weight where no size is asked for.
    Raises `GraphError` for a name or an option that does not exist.
    """
    found = SCHEMES.get(scheme) if isinstance(scheme, str) else None
    if found is None:
        raise GraphError(
            f"quantize: there is no scheme {scheme!r:.80}",
            help=f"{suggestion(scheme, SCHEMES)}use one of {', '.join(SCHEMES)}",
        )
    size = block_size
    if found.blocks:
        size = BLOCK_SIZES[-1] if block_size is None and not large_blocks else block_size
        if size is not None and (type(size) is not int or size < 16 or size & size - 1):
            raise GraphError(
                f"quantize: block_size is {block_size!r:.80}", help="give a power of two from 16 on: 32, 64, 128"
            )
    elif block_size is not None:
        raise GraphError(f"quantize: {found.name} has no blocks of a size to choose", help="leave out block_size")
    if not found.channels and not per_channel:
        raise GraphError(f"quantize: {found.name} has scales of blocks, not of channels", help="leave out per_channel")
    if symmetric is not None and found.symmetric is None:
        raise GraphError(f"quantize: {found.name} itself says whether there are minima", help="leave out symmetric")
    level = (0 if found.is_dynamic else 4) if accuracy_level is None else accuracy_level
    if type(level) is not int or level not in (0, 4) or (found.is_dynamic and level):
        raise GraphError(
            f"quantize: there is no accuracy_level {accuracy_level!r:.80} of {found.name}",
            help="leave it out" if found.is_dynamic else "0 is exact, 4 is faster",
        )
    is_symmetric = bool(found.symmetric) if symmetric is None else bool(symmetric)
    if reduce_range and (found.encoding != "int8" or not is_symmetric):
        raise GraphError(f"quantize: reduce_range is of symmetric int8, not of {found.name}", help="leave it out")
    return Choices(found, size, bool(per_channel), is_symmetric, bool(reduce_range), level, bool(search))
