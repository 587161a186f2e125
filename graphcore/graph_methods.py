"""What the array API standard asks of a Symbol that is no op: its namespace, size and device."""

from __future__ import annotations

from typing import Any

from graphcore.ir.symbol import Symbol


def _array_namespace(self: Symbol, /, *, api_version: str | None = None) -> Any:
    """The module with the standard's functions. Raises `GraphError` for an edition that it does not follow."""
    from graphcore.array_api._eager.array import namespace

    return namespace(api_version)


def _size(self: Symbol) -> int | None:
    """The number of elements; None where it is not known while the graph is being built."""
    size = self.shape.size
    return int(size) if size.is_static else None


def _device(self: Symbol) -> None:
    """None: where a Symbol's tensor will be is the session's to say. The standard's functions take it as device=."""


def _to_device(self: Symbol, device: object, /, *, stream: object = None) -> Symbol:
    """The Symbol itself."""
    return self


setattr(Symbol, "__array_namespace__", _array_namespace)  # noqa: B010 - an assignment would be checked as an override
setattr(Symbol, "size", property(_size))  # noqa: B010
setattr(Symbol, "device", property(_device))  # noqa: B010
setattr(Symbol, "to_device", _to_device)  # noqa: B010
