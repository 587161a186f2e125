"""The options of an onnxruntime session: checks of what a user gives, and making a SessionOptions of it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import onnxruntime

from graphcore.errors import GraphError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Node
from graphcore.ir.transform.walk import walk
from graphcore.runtime import python_ops
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

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
        import difflib  # errors alone need it

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


def checked_libraries(paths: object) -> tuple[str, ...]:
    """Return the absolute paths of libraries of operators, each once.

    Raises `GraphError` for what is no list of files that onnxruntime loads.
    """
    if isinstance(paths, (str, os.PathLike)) or not isinstance(paths, Sequence):
        raise GraphError(
            f"InferenceSession: custom_op_libraries is {paths!r:.80}, no list of paths",
            help='give a list: custom_op_libraries=["operators.so"]',
        )
    made: list[str] = []
    for path in paths:
        if not isinstance(path, (str, os.PathLike)) or not os.path.isfile(path):
            raise GraphError(
                f"InferenceSession: custom_op_libraries: {path!r:.200} is no file",
                help="give the path of a shared library that exports RegisterCustomOps",
            )
        found = os.path.realpath(os.fsdecode(os.fspath(path)))
        python_ops.before_registering(found)
        try:
            onnxruntime.SessionOptions().register_custom_ops_library(found)
        except Exception as error:
            raise GraphError(
                f"InferenceSession: custom_op_libraries: onnxruntime does not load {found}: {str(error).strip():.400}",
                help="give a shared library for this machine that exports RegisterCustomOps",
            ) from error
        if found not in made:
            made.append(found)
    return tuple(made)


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


# Products of a graph on tensor cores, which round float32 operands to 10 mantissa bits.

PLAIN = frozenset({"Conv", "ConvTranspose", "Einsum", "Gemm", "MatMul"})
"""Operators whose float32 kernels multiply their operands on tensor cores where the provider's TF32 mode is on."""

PRODUCTS = PLAIN | {"Attention", "DeformConv", "GRU", "LSTM", "RNN"}
"""The others multiply what they have computed as well, which is not rounded before."""


def multiplies_in_tf32(graph: Graph, lowered: Graph) -> bool:
    """Return whether there are products of float32 numbers in the lowered graph, and all are tensor_float32 in the
    graph.

    The mode is one for the whole session: where both occur, those of tensor_float32 are computed in float32, which
    rounds their results alike.
    """
    rounded = sum(_dtype(node) is DType.tensor_float32 for node in _of(graph, PLAIN))
    return 0 < rounded == sum(_dtype(node) is DType.float32 for node in _of(lowered, PRODUCTS))


def _of(graph: Graph, operators: frozenset[str]) -> Iterator[Node]:
    return (node for node in walk(graph) if node.op_type in operators)


def _dtype(node: Node) -> DType | None:
    operand = node.inputs[0]
    type_ = operand.type if operand is not None else None
    return type_.dtype if isinstance(type_, TensorType) else None
