"""The options of an onnxruntime session: checks of what a user gives, and making a SessionOptions of it."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

import onnxruntime

from graphcore.errors import GraphError

EXACT_PRODUCTS: Mapping[str, str] = {"session.qdq_matmulnbits_accuracy_level": "0"}
"""Products with weights that a node dequantises become ones that round the other operand to int8, unless told not to.
"""

_COUNTS = frozenset({"intra_op_num_threads", "inter_op_num_threads"})
_MOST_THREADS = 4096
"""onnxruntime starts as many as it is told, if that takes an hour and all memory."""


def session_options(entries: Mapping[str, Any]) -> onnxruntime.SessionOptions:
    """Return new SessionOptions: a name with a dot is an entry of the configuration, any other an attribute.

    Raises `GraphError` for a value that an attribute does not take.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # failures come as exceptions
    for name, value in {**EXACT_PRODUCTS, **entries}.items():
        if "." in name:
            options.add_session_config_entry(name, value)
            continue
        try:
            setattr(options, name, value)
        except (TypeError, ValueError, AttributeError, RuntimeError):
            raise GraphError(
                f"InferenceSession: {name}={value!r} is no value of that session option",
                help=f"give one like {getattr(onnxruntime.SessionOptions(), name)!r}, its default",
            ) from None
    return options


def check_attributes(attributes: Mapping[str, Any]) -> None:
    """Raise `GraphError` for a name that no attribute of SessionOptions has, and for a number of threads that cannot be
    meant."""
    fresh = onnxruntime.SessionOptions()
    known = [name for name in dir(fresh) if not name.startswith("_") and not callable(getattr(fresh, name))]
    unknown = [name for name in attributes if name not in known]
    if unknown:
        close = difflib.get_close_matches(unknown[0], known, 3, 0.4)
        raise GraphError(
            f"InferenceSession: onnxruntime has no session option {', '.join(map(repr, unknown))}",
            help=f"did you mean {' or '.join(close)}?" if close else "see the attributes of onnxruntime.SessionOptions",
        )
    for name in _COUNTS.intersection(attributes):
        count = attributes[name]
        if isinstance(count, bool) or (isinstance(count, int) and not 0 <= count <= _MOST_THREADS):
            raise GraphError(
                f"InferenceSession: {name}={count!r:.40} is no number of threads",
                help=f"give 1 to {_MOST_THREADS}, or 0 for one to each core",
            )


def config_entries(config: Mapping[str, str | int | bool]) -> dict[str, str]:
    """Return entries of the session's configuration as onnxruntime takes them. Raises `GraphError`."""
    made = {}
    fresh = onnxruntime.SessionOptions()
    for name, value in config.items() if isinstance(config, Mapping) else [(config, None)]:
        if not isinstance(name, str) or "." not in name or not isinstance(value, (str, int)):
            raise GraphError(
                f"InferenceSession: config: {name!r:.80}: {value!r:.80} is no entry of a session's configuration",
                help='give names with a dot and what they stand for: config={"session.intra_op.allow_spinning": False}',
            )
        made[name] = str(int(value) if isinstance(value, bool) else value)
        try:
            fresh.add_session_config_entry(name, made[name])
        except Exception as error:
            raise GraphError(f"InferenceSession: config: {name[:80]!r}: {error}", help="make it shorter") from None
    return made


__all__ = ["EXACT_PRODUCTS", "check_attributes", "config_entries", "session_options"]
