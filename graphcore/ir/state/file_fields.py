"""The fields of a file's model, graph and values that do not say what it computes, encoded as in the file.

Graphs made of a graph share them; they are written for the values that still exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from graphcore.types.tensor_types import Type

Key: TypeAlias = "str | tuple[str, int, int]"
"""The name of a value. For inputs and outputs of a body: "input" or "output", how many there are, and which."""


@dataclass(frozen=True, slots=True)
class ValueFields:
    """The fields of a value. type: that the file declares, with its encoding; None if it may be any other."""

    type: Type | None = None
    encoded: bytes = b""
    rest: bytes = b""


@dataclass(frozen=True, slots=True)
class FileFields:
    """The fields of a graph that was read, or of a body of it.

    model: of a ModelProto, the producer first; metadata is in the graph. graph: of the GraphProto. values: of inputs,
    outputs, and others that the file declares. tensors: of initializers, by name. annotations: the names of quantised
    tensors with their quantization_annotation.
    """

    model: bytes
    graph: bytes
    values: Mapping[Key, ValueFields]
    tensors: Mapping[str, bytes]
    annotations: tuple[tuple[str, bytes], ...]

    def renamed(self, names: Mapping[str, str]) -> FileFields:
        """Return the fields of a graph in which values have other names."""
        if not names:
            return self
        values = {names.get(key, key) if isinstance(key, str) else key: own for key, own in self.values.items()}
        return replace(self, values=values, tensors={names.get(key, key): own for key, own in self.tensors.items()})
