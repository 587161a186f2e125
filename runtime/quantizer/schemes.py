"""Schemes of quantisation: an encoding, its options, and how a product reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from graphcore.arrays.casting import Array
from graphcore.errors import GraphError
from graphcore.quantization import QuantizedTensor, encode
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

BLOCK_SIZE = 32


@dataclass(frozen=True, slots=True)
class Choices:
    """A scheme with what was chosen for it."""

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
            size, symmetric = self.block_size, self.symmetric
            return encode(matrix, "int4", block_size=size, symmetric=symmetric, search=self.search)
        return encode(matrix, scheme.encoding)

    @property
    def shares_rows(self) -> bool:
        """Return whether a table of rows is held as a matrix of a product is: one array does for both."""
        return self.scheme.encoding == "int8" and self.per_channel and self.symmetric and not self.reduce_range


def choices(
    scheme: object,
    block_size: int | None,
    per_channel: bool,
    symmetric: bool | None,
    reduce_range: bool,
    accuracy_level: int | None,
    search: bool,
) -> Choices:
    """Return the scheme of a name, with its options.

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
        size = BLOCK_SIZE if block_size is None else block_size
        if type(size) is not int or size < 16 or size & size - 1:
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
