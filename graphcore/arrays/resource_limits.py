"""`gc.Limits`: how much a model that is loaded may take, and which operators it may have."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from graphcore.errors import GraphError, ModelError, ResourceLimitError
from graphcore.support.escaping import suggestion

_DEEPEST = 40
"""Bodies within bodies that any limit may allow: protobuf reads 100 messages within messages, and each takes two."""

_RUNTIME = "com.microsoft"

_HELP: Mapping[str, str] = MappingProxyType(
    {
        "bytes": "bytes of the model's file and of the external data that it names",
        "nodes": "nodes once functions are expanded",
        "elements": "elements of a tensor that the model holds, or whose shape is known before the run",
        "depth": f"bodies within bodies, and functions that call functions; {_DEEPEST} at most",
        "seconds": "of the load, looked at between nodes: no call of onnx or onnxruntime is interrupted",
    }
)


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of the resources that loading a model may take: `gc.Graph.load(path, limits=gc.Limits(nodes=10_000))`.

    bytes: of the model's file and of the external data that it names (default 2^40).
    nodes: once functions are expanded (2,000,000). Twice as many are read in all: bodies again until types settle.
    elements: of a tensor that the model holds, or whose shape is known before the run (2^40).
    depth: of bodies within bodies, and of functions that call functions (40, which is also the most).
    seconds: that the load takes, None for any number (None). It is looked at between nodes and before a session starts;
    no call of onnx or onnxruntime is interrupted, which `gc.IsolatedSession` does.
    strict: the operators that are allowed, None for all (None): "Conv" for one of ONNX's own, "ai.onnx.ml::Scaler" for
    one of another domain, "*" and "ai.onnx.ml::*" for all of a domain. ONNX's domains and com.microsoft alone can be
    named. Nothing that `gc.custom_op` declares with a Python function is read then, and no external data is opened.

    What is beyond a limit is a `ResourceLimitError` that names the limit, what `strict` does not allow a `ModelError`.
    Raises `GraphError` for a limit that is none.
    """

    bytes: int = 1 << 40
    nodes: int = 2_000_000
    elements: int = 1 << 40
    depth: int = _DEEPEST
    seconds: float | None = None
    strict: Collection[str] | None = None

    def __post_init__(self) -> None:
        for name in ("bytes", "nodes", "elements", "depth"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise GraphError(f"Limits: {name}={value!r:.40} is no number from 0 on", help=f"{name}: {_HELP[name]}")
        if self.depth > _DEEPEST:
            raise GraphError(
                f"Limits: depth={self.depth}, and {_DEEPEST} are the most", help=f"depth: {_HELP['depth']}"
            )
        if self.seconds is not None and (
            isinstance(self.seconds, bool) or not isinstance(self.seconds, (int, float)) or not self.seconds > 0
        ):
            raise GraphError(
                f"Limits: seconds={self.seconds!r:.40} is no number above 0", help=f"seconds: {_HELP['seconds']}"
            )
        if self.strict is not None:
            if isinstance(self.strict, str) or not all(isinstance(name, str) for name in self.strict):
                raise GraphError(
                    f"Limits: strict={self.strict!r:.40} is no list of operators",
                    help='give names: ["Conv", "Relu", "ai.onnx.ml::*"], or ["*"] for all of ONNX\'s own',
                )
            object.__setattr__(self, "strict", frozenset(self.strict))

    @staticmethod
    def of(said: Mapping[str, float]) -> Limits:
        """Return the limits with numbers by name, as a command line has them. Raises `GraphError`."""
        unknown = [name for name in said if name not in _HELP]
        if unknown:
            raise GraphError(
                f"Limits: there is no limit {unknown[0]!r:.40}",
                help=f"{suggestion(unknown[0], _HELP)}the limits: {', '.join(_HELP)}",
            )
        values: dict[str, Any] = {name: int(v) if name != "seconds" else v for name, v in said.items()}
        return Limits(**values)

    def check(self, name: str, value: int, what: str) -> None:
        """Raise `ResourceLimitError` where a value is beyond the limit of this name. what: has so many."""
        most = getattr(self, name)
        if value > most:
            raise exceeded(name, most, what)

    def check_operator(self, domain: str, op_type: str, place: object) -> None:
        """Raise `ModelError` for an operator that `strict` does not allow."""
        if self.strict is None:
            return
        is_own = domain in ("", "ai.onnx")
        names = (op_type, "*") if is_own else (f"{domain}::{op_type}", f"{domain}::*")
        if not is_own and not (domain.startswith("ai.onnx.") or domain == _RUNTIME):
            raise ModelError(
                f"load: {place}: limit strict allows no operator of {domain[:100]!r}",
                help="load it without strict, where you trust who wrote it",
            )
        if not any(name in self.strict for name in names):
            raise ModelError(
                f"load: {place}: limit strict does not allow {names[0][:100]}",
                help=f"allow it, where you trust it: gc.Limits(strict=[{names[0][:100]!r}, ...])",
            )

    @property
    def looks_at_nodes(self) -> bool:
        """Return whether only reading a model tells that it keeps to the limits."""
        usual = Limits()
        return (
            self.seconds is not None
            or self.strict is not None
            or self.elements < usual.elements
            or self.depth < usual.depth
        )


def exceeded(name: str, most: float, what: str) -> ResourceLimitError:
    """Return the error of what is beyond a limit. what: is, and how it goes beyond."""
    raised = f"where you trust the model, raise the limit: limits=gc.Limits({name}=...), or --limit {name}=N"
    is_last = name == "depth" and most >= _DEEPEST
    return ResourceLimitError(
        f"load: {what}: the limit is {name}={most}",
        help="flatten the model: no limit may be higher" if is_last else raised,
    )


class Watch:
    """The time that a load has taken. limits: say how much it may."""

    __slots__ = ("_ends", "_limits")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._ends = None if limits.seconds is None else time.monotonic() + limits.seconds

    def look(self) -> None:
        """Raise `ResourceLimitError` where the time is over."""
        if self._ends is not None and time.monotonic() > self._ends:
            raise exceeded("seconds", self._limits.seconds or 0, "the load takes longer")


USUAL = Limits()


def limits_of(limits: Limits | None) -> Limits:
    """Return the limits that are given, or the usual ones. Raises `GraphError` for what are none."""
    if limits is not None and not isinstance(limits, Limits):
        raise GraphError(f"load: limits are a {type(limits).__name__}", help="give gc.Limits(nodes=10_000)")
    return limits or USUAL
