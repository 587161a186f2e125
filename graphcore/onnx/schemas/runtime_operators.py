"""The operators that a runtime knows beyond ONNX's: what reading and checks ask, and who answers.

This folder imports no runtime. `provide` is given what makes the answering object, on first use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from graphcore.ir.state.attaching import attach

if TYPE_CHECKING:
    import onnx

    from graphcore.onnx.schemas.schemas import Operator


class RuntimeOperators(Protocol):
    """The operators of one runtime, with the libraries of operators that are loaded into it."""

    def operator(self, domain: str, op_type: str, version: int) -> Operator | None:
        """Return what the runtime's schema says of an operator at a version of its domain; None where it has none."""

    def knows(self, domain: str) -> bool:
        """Return whether the runtime has schemas of a domain's operators."""

    def results(self, model: onnx.ModelProto) -> list[onnx.TypeProto | None] | None:
        """Return the types that the runtime infers for the outputs of a model; None where it does not take the model.

        A type is None where the runtime does not tell it.
        """


_makers: list[Callable[[], RuntimeOperators]] = []
_made: list[RuntimeOperators] = []


def provide(make: Callable[[], RuntimeOperators]) -> None:
    """Let `installed` return what `make` gives, which is called on first use."""
    _makers[:] = [make]
    _made.clear()


def installed() -> RuntimeOperators | None:
    """Return the operators of the installed runtime; None where none is provided."""
    if not _makers:
        attach()
    if not _made and _makers:
        _made.append(_makers[0]())
    return _made[0] if _made else None
