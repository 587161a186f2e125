"""The options of an onnxruntime session and its providers: checks of what a user gives, and starting a session."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnxruntime

from graphcore.errors import GraphError, RunError
from graphcore.ir.graph import Graph, TargetName
from graphcore.ir.symbol import Node
from graphcore.ir.transform.walk import walk
from graphcore.runtime.lowering.targets import BY_PROVIDER
from graphcore.runtime.ort import openvino, python_ops
from graphcore.runtime.ort.memory import gathered, gathered_later, keep
from graphcore.support.escaping import suggestion
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


# Execution providers of onnxruntime: their short names, what is installed, what they are lowered for.

_SHORT: Mapping[str, str] = {row.name: row.provider for row in BY_PROVIDER.values()}
EXACT: Mapping[str, Mapping[str, str]] = {name: row.options for name, row in BY_PROVIDER.items() if row.options}
"""Options that providers start with, for exact products."""

TENSOR_CORES: Mapping[str, Mapping[str, str]] = {n: row.tensor_cores for n, row in BY_PROVIDER.items()}
"""The same where all products are of tensor_float32, whose values are rounded already."""


def resolve(providers: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return onnxruntime's names of providers, in order, each once; the CPU's for None.

    Raises `RunError` for one that is not installed and for what is no name.
    """
    if providers is None:
        providers = ["cpu"]
    names = [providers] if isinstance(providers, str) else providers
    if isinstance(names, (os.PathLike, bytes, Graph)) or hasattr(names, "graph"):
        raise _no_provider(f"a {type(names).__name__}", "model")
    if not isinstance(names, (list, tuple)) or not names or not all(isinstance(name, str) for name in names):
        raise RunError(
            f"InferenceSession: providers={providers!r} are no names",
            help=f'give "cpu", "cuda" or a list of names; installed are {_installed()}',
        )
    return tuple(dict.fromkeys(_full(name) for name in names))


def installed() -> list[str]:
    """Return the short names of the providers that are installed and that graphs are lowered for."""
    available = onnxruntime.get_available_providers()
    return [name for name, full in _SHORT.items() if full in available]


def options_of(providers: Sequence[str], given: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """Return what is given for providers by any of their names, as onnxruntime takes it. Raises `GraphError`."""
    if not isinstance(given, Mapping):
        raise GraphError(
            f"InferenceSession: provider_options={given!r:.80} are no options by provider",
            help='give a mapping of mappings: provider_options={"cuda": {"device_id": 1}}',
        )
    made = {}
    for name, options in given.items():
        full = _SHORT.get(name, name)
        if full not in providers:
            raise GraphError(
                f"InferenceSession: provider_options for {name!r}, which is not among the providers",
                help=f"the providers are {', '.join(providers)}",
            )
        if not isinstance(options, Mapping):
            raise GraphError(
                f"InferenceSession: provider_options for {name!r} are {options!r}",
                help='give a mapping, such as {"device_id": 0}',
            )
        plain = openvino.given(options) if full == openvino.PROVIDER else options
        made[full] = {key: str(int(v) if isinstance(v, bool) else v) for key, v in plain.items()}
    return made


def target_of(provider: str) -> TargetName:
    """Return what graphs are lowered for on a provider: the CPU's target where the provider has none."""
    row = BY_PROVIDER.get(provider)
    return "cpu" if row is None else row.name


def require_started(session: onnxruntime.InferenceSession, providers: Sequence[str]) -> None:
    """Raise `RunError` where onnxruntime left one out because its libraries or its device are missing."""
    running = session.get_providers()
    for name in providers:
        if name not in running:
            raise RunError(
                f"InferenceSession: {name} is installed and did not start; started are {', '.join(running)}",
                help="log_severity_level=2 makes onnxruntime print what it lacks",
            )


def _full(name: str) -> str:
    full = _SHORT.get(name, name)
    if name.lower().endswith((".onnx", ".ort")) or os.path.isfile(name):
        raise _no_provider(repr(name), f'"{name}"')
    if full not in onnxruntime.get_available_providers():
        raise RunError(
            f"InferenceSession: provider {name!r} is not installed; installed are {_installed()}",
            help=(full in BY_PROVIDER and BY_PROVIDER[full].missing_help)
            or suggestion(name, (*_SHORT, *BY_PROVIDER)) + "choose one of those",
        )
    return full


def _no_provider(given: str, model: str) -> RunError:
    return RunError(
        f"InferenceSession: {given} is a model, and a session is made for providers",
        help=f"load it: gc.InferenceSession().load({model})",
    )


def _installed() -> str:
    return ", ".join(onnxruntime.get_available_providers())


# Creating onnxruntime sessions with the providers and options that a user chose.

SLOWER = ("SkipLayerNormFusion", "BiasGeluFusion")
"""Optimisers that are left out. Measured: the CPU kernel of the first is five times slower than what it replaces, the
second gains nothing."""


@dataclass(frozen=True, slots=True)
class Starter:
    """The part that all sessions of an `InferenceSession` share.

    providers: by preference. provider_options: by provider. attributes: of SessionOptions. config: entries of the
    configuration. huge_pages: None where each session says whether it gathers memory in large pages.
    """

    providers: tuple[str, ...]
    provider_options: Mapping[str, Mapping[str, str]]
    attributes: Mapping[str, Any]
    config: Mapping[str, str]
    huge_pages: bool | None
    libraries: tuple[str, ...] = ()

    def options(self, more: Mapping[str, Any]) -> onnxruntime.SessionOptions:
        """Return new options of a session. more: attributes and entries, over the user's attributes."""
        made = session_options({**self.attributes, **more, **self.config})
        for path in self.libraries:
            made.register_custom_ops_library(path)
        return made

    def entries(self) -> list[tuple[str, Any]]:
        """Return all attributes and entries that sessions start with, in order: a part of a cache key."""
        libraries = {f"library {path}": os.stat(path).st_mtime_ns for path in self.libraries}
        return sorted({**EXACT_PRODUCTS, **self.attributes, **self.config, **libraries}.items())

    def create(
        self,
        model: bytes | str,
        options: onnxruntime.SessionOptions,
        disabled: Sequence[str] = SLOWER,
        defaults: Mapping[str, Mapping[str, str]] = EXACT,
        providers: Sequence[str] | None = None,
        runs_often: bool = False,
    ) -> onnxruntime.InferenceSession:
        """Return a new session. Raises what onnxruntime raises.

        disabled: optimisers to leave out. defaults: options by provider where the user gives none. providers: in place
        of all. runs_often: whether large pages pay, from some number of calls on.
        """
        providers = providers or self.providers

        def made() -> onnxruntime.InferenceSession:
            # The fallback would print on stdout, drop the options and run on another provider than was asked for.
            return onnxruntime.InferenceSession(
                model,
                options,
                providers=list(providers),
                provider_options=[{**defaults.get(p, {}), **self.provider_options.get(p, {})} for p in providers],
                disabled_optimizers=list(disabled),
                enable_fallback=0,
            )

        if self.huge_pages is not None:
            with gathered(self.huge_pages):
                return made()
        with gathered_later(runs_often) as later:
            session = made()
        if later is not None:
            keep(session, later)
        return session
