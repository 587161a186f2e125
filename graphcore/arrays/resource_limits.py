"""`gc.Limits`: the resources that a loaded model may use, and the operators that it may have."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from graphcore.errors import GraphError, ModelError, ResourceLimitError
from graphcore.support.escaping import suggestion

_MAX_DEPTH = 40
"""The maximum nesting of bodies: protobuf parses at most 100 nested messages, and each body takes two."""

_RUNTIME = "com.microsoft"

_HELP: Mapping[str, str] = MappingProxyType(
    {
        "bytes": "the size of the model's file and of its external data",
        "nodes": "the number of nodes after the expansion of functions",
        "elements": "the number of elements of a tensor in the model, or with a shape known before the run",
        "depth": f"the nesting of bodies and of function calls, at most {_MAX_DEPTH}",
        "seconds": "the time of the load, checked between nodes: calls of onnx or onnxruntime are not interrupted",
    }
)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on the resources for loading a model: `gc.Graph.load(path, limits=gc.Limits(nodes=10_000))`.

    Exceeding a limit raises a `ResourceLimitError` that names it; an operator that `strict` does not allow raises a
    `ModelError`.

    Args:
        bytes: The size of the model's file and of its external data. Default 2^40.
        nodes: The number of nodes after the expansion of functions. Default 2,000,000. At most twice as many are read,
            since bodies are read again until their types are stable.
        elements: The number of elements of a tensor in the model, or with a shape known before the run. Default 2^40.
        depth: The nesting of bodies and of function calls. Default and maximum 40.
        seconds: The time of the load, None for no limit (default). It is checked between nodes and before a session
            starts; calls of onnx or onnxruntime are not interrupted, except by `gc.IsolatedSession`.
        strict: The allowed operators, None for all (default): "Conv" in ONNX's default domain, "ai.onnx.ml::Scaler" in
            another domain, "*" or "ai.onnx.ml::*" for all of a domain. Only ONNX's domains and com.microsoft can be
            named. Custom operators with Python functions and external data are not allowed then.

    Raises:
        GraphError: A limit is invalid.
    """

    bytes: int = 1 << 40
    nodes: int = 2_000_000
    elements: int = 1 << 40
    depth: int = _MAX_DEPTH
    seconds: float | None = None
    strict: Collection[str] | None = None

    def __post_init__(self) -> None:
        for name in ("bytes", "nodes", "elements", "depth"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise GraphError(f"Limits: {name}={value!r:.40} must be an int >= 0", help=f"{name}: {_HELP[name]}")
        if self.depth > _MAX_DEPTH:
            raise GraphError(
                f"Limits: depth={self.depth} exceeds the maximum of {_MAX_DEPTH}", help=f"depth: {_HELP['depth']}"
            )
        if self.seconds is not None and (
            isinstance(self.seconds, bool) or not isinstance(self.seconds, (int, float)) or not self.seconds > 0
        ):
            raise GraphError(
                f"Limits: seconds={self.seconds!r:.40} must be a number > 0", help=f"seconds: {_HELP['seconds']}"
            )
        if self.strict is not None:
            if isinstance(self.strict, str) or not all(isinstance(name, str) for name in self.strict):
                raise GraphError(
                    f"Limits: strict={self.strict!r:.40} must be a list of operators",
                    help='pass names: ["Conv", "Relu", "ai.onnx.ml::*"], or ["*"] for ONNX\'s default domain',
                )
            object.__setattr__(self, "strict", frozenset(self.strict))

    @staticmethod
    def of(said: Mapping[str, float]) -> Limits:
        """Return limits from numbers by name, as on the command line.

        Raises:
            GraphError: For unknown names.
        """
        unknown = [name for name in said if name not in _HELP]
        if unknown:
            raise GraphError(
                f"Limits: unknown limit {unknown[0]!r:.40}",
                help=f"{suggestion(unknown[0], _HELP)}the limits: {', '.join(_HELP)}",
            )
        values: dict[str, Any] = {name: int(v) if name != "seconds" else v for name, v in said.items()}
        return Limits(**values)

    def check(self, name: str, value: int, what: str) -> None:
        """Raise `ResourceLimitError` if a value exceeds a limit.

        Args:
            what: The subject of the message.
        """
        limit = getattr(self, name)
        if value > limit:
            raise exceeded(name, limit, what)

    def check_operator(self, domain: str, op_type: str, place: object) -> None:
        """Raise `ModelError` for an operator that `strict` does not allow."""
        if self.strict is None:
            return
        is_own = domain in ("", "ai.onnx")
        names = (op_type, "*") if is_own else (f"{domain}::{op_type}", f"{domain}::*")
        if not is_own and not (domain.startswith("ai.onnx.") or domain == _RUNTIME):
            raise ModelError(
                f"load: {place}: limit strict allows no operator of {domain[:100]!r}",
                help="load it without strict, if you trust its author",
            )
        if not any(name in self.strict for name in names):
            raise ModelError(
                f"load: {place}: limit strict does not allow {names[0][:100]}",
                help=f"allow it, if you trust it: gc.Limits(strict=[{names[0][:100]!r}, ...])",
            )

    @property
    def looks_at_nodes(self) -> bool:
        """True if a model must be read to check the limits."""
        default = Limits()
        return (
            self.seconds is not None
            or self.strict is not None
            or self.elements < default.elements
            or self.depth < default.depth
        )


def exceeded(name: str, limit: float, what: str) -> ResourceLimitError:
    """Return the error of an exceeded limit. what: the cause."""
    raise_it = f"if you trust the model, raise the limit: limits=gc.Limits({name}=...), or --limit {name}=N"
    is_last = name == "depth" and limit >= _MAX_DEPTH
    return ResourceLimitError(
        f"load: {what}: the limit is {name}={limit}",
        help="flatten the model: the limit cannot be raised further" if is_last else raise_it,
    )


class Watch:
    """The elapsed time of a load. limits: have the maximum."""

    __slots__ = ("_ends", "_limits")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._ends = None if limits.seconds is None else time.monotonic() + limits.seconds

    def look(self) -> None:
        """Raise `ResourceLimitError` if the time is over."""
        if self._ends is not None and time.monotonic() > self._ends:
            raise exceeded("seconds", self._limits.seconds or 0, "the load takes longer")


USUAL = Limits()


def limits_of(limits: Limits | None) -> Limits:
    """Return the given limits, or the default. Raises `GraphError` for other types."""
    if limits is not None and not isinstance(limits, Limits):
        raise GraphError(
            f"load: limits must be a Limits, got {type(limits).__name__}", help="use gc.Limits(nodes=10_000)"
        )
    return limits or USUAL
