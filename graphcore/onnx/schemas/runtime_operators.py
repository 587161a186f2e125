"""The interface to the operators that a runtime has beyond ONNX's, for reading and checks.

This package does not import the runtime: the runtime registers itself by `provide`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from graphcore.ir.state.attaching import attach

if TYPE_CHECKING:
    import onnx

    from graphcore.onnx.schemas.schemas import Operator


class RuntimeOperators(Protocol):
    """The operators of one runtime, including loaded libraries of custom operators."""

    def operator(self, domain: str, op_type: str, version: int) -> Operator | None:
        """Return an operator by the runtime's schema at a version of its domain; None if it has none."""

    def results(self, model: onnx.ModelProto) -> list[onnx.TypeProto | None] | None:
        """Return the types that the runtime infers for the outputs of a model; None if it rejects the model.

        An unknown type is None.
        """

    def refusal(self, model: onnx.ModelProto) -> str:
        """Return the reason why the runtime's inference rejects a model; "" if it does not."""


_makers: list[Callable[[], RuntimeOperators]] = []
_made: list[RuntimeOperators] = []


def provide(make: Callable[[], RuntimeOperators]) -> None:
    """Let `installed` return the result of `make`, which is called on first use."""
    _makers[:] = [make]
    _made.clear()


def installed() -> RuntimeOperators | None:
    """Return the operators of the installed runtime; None if none is provided."""
    if not _makers:
        attach()
    if not _made and _makers:
        _made.append(_makers[0]())
    return _made[0] if _made else None
