"""The options of an onnxruntime session and of its providers: check the user's values, and start sessions."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec

import onnxruntime

from graphcore.errors import GraphError, RunError
from graphcore.ir.graph import Graph, TargetName
from graphcore.ir.transform.walk import walk
from graphcore.runtime.lowering.targets import BY_PROVIDER
from graphcore.runtime.ort import openvino, python_ops
from graphcore.runtime.ort.devices import Selection
from graphcore.runtime.ort.memory import LATER, gathered_later
from graphcore.support.escaping import similar, suggestion
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

P = ParamSpec("P")

EXACT_PRODUCTS: Mapping[str, str] = {"session.qdq_matmulnbits_accuracy_level": "0"}
"""By default onnxruntime rounds the other operand of a product with dequantised weights to int8: this prevents it."""

_KEYWORDS = ("providers", "devices", "precision", "optimize", "huge_pages", "config", "custom_op_libraries")
"""Arguments of `InferenceSession` that can be misspelt; other names are attributes of SessionOptions."""

_THREAD_COUNTS = frozenset({"intra_op_num_threads", "inter_op_num_threads"})
_MAX_THREADS = 4096
"""onnxruntime starts any number of threads, even if that takes an hour and all memory."""


def session_options(entries: Mapping[str, Any]) -> onnxruntime.SessionOptions:
    """Return new SessionOptions: a name with a dot is a config entry, any other an attribute.

    Raises `GraphError` for an invalid value.
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
                f"InferenceSession: {name}={value!r} is not a valid value of that session option",
                help=f"give a value like {getattr(onnxruntime.SessionOptions(), name)!r}, its default",
            ) from None
    return options


def check_attributes(attributes: Mapping[str, Any]) -> None:
    """Raise `GraphError` for a name that is not a SessionOptions attribute, and for an invalid number of threads."""
    fresh = onnxruntime.SessionOptions()
    names = [name for name in dir(fresh) if not name.startswith("_") and not callable(getattr(fresh, name))]
    unknown = [name for name in attributes if name not in names]
    if unknown:
        close = similar(unknown[0], _KEYWORDS, 1) or similar(unknown[0], names, cutoff=0.4)
        raise GraphError(
            f"InferenceSession: onnxruntime has no session option {', '.join(map(repr, unknown))}",
            help=f"did you mean {' or '.join(close)}?" if close else "see the attributes of onnxruntime.SessionOptions",
        )
    for name in _THREAD_COUNTS.intersection(attributes):
        count = attributes[name]
        if isinstance(count, bool) or (isinstance(count, int) and not 0 <= count <= _MAX_THREADS):
            raise GraphError(
                f"InferenceSession: {name}={count!r:.40} is not a valid number of threads",
                help=f"give 1 to {_MAX_THREADS}, or 0 for one thread for each core",
            )


def checked_libraries(paths: object) -> tuple[str, ...]:
    """Return the absolute paths of operator libraries, each once.

    Raises `GraphError` if the value is not a list of files that onnxruntime loads.
    """
    if isinstance(paths, (str, os.PathLike)) or not isinstance(paths, Sequence):
        raise GraphError(
            f"InferenceSession: custom_op_libraries must be a list of paths, got {paths!r:.80}",
            help='give a list: custom_op_libraries=["operators.so"]',
        )
    libraries: list[str] = []
    for path in paths:
        if not isinstance(path, (str, os.PathLike)) or not os.path.isfile(path):
            raise GraphError(
                f"InferenceSession: custom_op_libraries: {path!r:.200} is not a file",
                help="give the path of a shared library that exports RegisterCustomOps",
            )
        library = os.path.realpath(os.fsdecode(os.fspath(path)))
        python_ops.before_registering(library)
        try:
            onnxruntime.SessionOptions().register_custom_ops_library(library)
        except Exception as error:
            raise GraphError(
                f"InferenceSession: custom_op_libraries: onnxruntime cannot load {library}: {str(error).strip():.400}",
                help="give a shared library for this machine that exports RegisterCustomOps",
            ) from error
        if library not in libraries:
            libraries.append(library)
    return tuple(libraries)


def config_entries(config: Mapping[str, str | int | bool]) -> dict[str, str]:
    """Return config entries of a session as strings. Raises `GraphError` for an invalid entry."""
    entries = {}
    fresh = onnxruntime.SessionOptions()
    for name, value in config.items() if isinstance(config, Mapping) else [(config, None)]:
        if not isinstance(name, str) or "." not in name or not isinstance(value, (str, int)):
            raise GraphError(
                f"InferenceSession: config: {name!r:.80}: {value!r:.80} is not a config entry of a session",
                help='give names with a dot and their values: config={"session.intra_op.allow_spinning": False}',
            )
        entries[name] = str(int(value) if isinstance(value, bool) else value)
        try:
            fresh.add_session_config_entry(name, entries[name])
        except Exception as error:
            raise GraphError(f"InferenceSession: config: {name[:80]!r}: {error}", help="make it shorter") from None
    return entries


# Matrix products on tensor cores, which round float32 operands to 10 mantissa bits.

PLAIN = frozenset({"Conv", "ConvTranspose", "Einsum", "Gemm", "MatMul"})
"""Operators whose float32 kernels multiply their operands on tensor cores if the provider's TF32 mode is on."""

PRODUCTS = PLAIN | {"Attention", "DeformConv", "GRU", "LSTM", "RNN"}
"""The others also multiply intermediate values, which are not rounded before."""


def multiplies_in_tf32(graph: Graph, lowered: Graph) -> bool:
    """Return True if the lowered graph has float32 products, and all of them are tensor_float32 in the graph.

    The mode applies to the whole session: if both dtypes occur, products of tensor_float32 are computed in float32,
    which rounds their results alike.
    """
    return 0 < _count(graph, PLAIN, DType.tensor_float32) == _count(lowered, PRODUCTS, DType.float32)


def _count(graph: Graph, operators: frozenset[str], dtype: DType) -> int:
    """Return the number of nodes of these operators whose first operand has a dtype."""
    types = (node.inputs[0].type for node in walk(graph) if node.op_type in operators and node.inputs[0] is not None)
    return sum(isinstance(type_, TensorType) and type_.dtype is dtype for type_ in types)


# Execution providers of onnxruntime: their short names, which are installed, and their lowering targets.

_SHORT: Mapping[str, str] = {row.name: row.provider for row in BY_PROVIDER.values()}
EXACT: Mapping[str, Mapping[str, str]] = {name: row.options for name, row in BY_PROVIDER.items() if row.options}
"""Options of providers for exact products."""

TENSOR_CORES: Mapping[str, Mapping[str, str]] = {n: row.tensor_cores for n, row in BY_PROVIDER.items()}
"""Options of providers if all products are tensor_float32, whose values are rounded already."""


def resolve(providers: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return onnxruntime's names of providers, in order, each once; the CPU provider for None.

    Raises `RunError` for a provider that is not installed, and for a value that is not a name.
    """
    if providers is None:
        providers = ["cpu"]
    names = [providers] if isinstance(providers, str) else providers
    if isinstance(names, (os.PathLike, bytes, Graph)) or hasattr(names, "graph"):
        raise _model_error(f"a {type(names).__name__}", "model")
    if not isinstance(names, (list, tuple)) or not names or not all(isinstance(name, str) for name in names):
        raise RunError(
            f"InferenceSession: providers must be a name or a list of names, got {providers!r}",
            help=f'give "cpu", "cuda" or a list of names; installed are {_installed()}',
        )
    return tuple(dict.fromkeys(_full(name) for name in names))


def installed() -> list[str]:
    """Return the short names of the installed providers that graphs are lowered for."""
    available = onnxruntime.get_available_providers()
    return [name for name, full in _SHORT.items() if full in available]


def options_of(
    providers: Sequence[str], provider_options: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, str]]:
    """Return the options of providers by onnxruntime's names, as strings. Raises `GraphError`."""
    if not isinstance(provider_options, Mapping):
        raise GraphError(
            f"InferenceSession: provider_options must map providers to options, got {provider_options!r:.80}",
            help='give a mapping of mappings: provider_options={"cuda": {"device_id": 1}}',
        )
    result = {}
    for name, options in provider_options.items():
        full = _SHORT.get(name, name)
        if full not in providers:
            raise GraphError(
                f"InferenceSession: provider_options: {name!r} is not among the providers",
                help=f"the providers are {', '.join(providers)}",
            )
        if not isinstance(options, Mapping):
            raise GraphError(
                f"InferenceSession: provider_options for {name!r} must be a mapping, got {options!r}",
                help='give a mapping, such as {"device_id": 0}',
            )
        plain = openvino.provider_options(options) if full == openvino.PROVIDER else options
        result[full] = {key: str(int(v) if isinstance(v, bool) else v) for key, v in plain.items()}
    return result


def target_of(provider: str) -> TargetName:
    """Return the lowering target of a provider; the CPU's if the provider has none."""
    row = BY_PROVIDER.get(provider)
    return "cpu" if row is None else row.name


def require_started(
    session: onnxruntime.InferenceSession, providers: Sequence[str], selection: Selection | None = None
) -> None:
    """Raise `RunError` if onnxruntime skipped a provider because its libraries or its device are missing.

    Also if it chose other providers than a selection predicts, for which the graph was not lowered.
    """
    running = session.get_providers()
    if selection is not None and {*running, "CPUExecutionProvider"} != {*providers, "CPUExecutionProvider"}:
        raise RunError(
            f"InferenceSession: devices: onnxruntime chose {', '.join(running)} instead of {', '.join(providers)}",
            help="make a new InferenceSession if a provider was registered meanwhile, or list the devices",
        )
    for name in providers:
        if name not in running:
            raise RunError(
                f"InferenceSession: {name} is installed but did not start; started are {', '.join(running)}",
                help="log_severity_level=2 makes onnxruntime print the reason",
            )


def _full(name: str) -> str:
    full = _SHORT.get(name, name)
    if name.lower().endswith((".onnx", ".ort")) or os.path.isfile(name):
        raise _model_error(repr(name), f'"{name}"')
    if full not in onnxruntime.get_available_providers():
        raise RunError(
            f"InferenceSession: provider {name!r} is not installed; installed are {_installed()}",
            help=(full in BY_PROVIDER and BY_PROVIDER[full].missing_help)
            or suggestion(name, (*_SHORT, *BY_PROVIDER)) + "choose one of those",
        )
    return full


def one_providers(create: Callable[P, None]) -> Callable[P, None]:
    """Raise `RunError` for another argument before `providers=`, such as the model that onnxruntime's class takes."""

    @functools.wraps(create)
    def checked(*arguments: P.args, **named: P.kwargs) -> None:
        if len(arguments) > 1 and "providers" in named:
            first, providers = arguments[1], named["providers"]
            model = f'"{first}"' if isinstance(first, (str, os.PathLike)) else "model"
            raise RunError(
                f"InferenceSession: got {first!r:.80} and providers={providers!r:.80}: the first is providers too",
                help=f"load the model afterwards: gc.InferenceSession(providers={providers!r:.80}).load({model})",
            )
        create(*arguments, **named)

    return checked


def _model_error(operand: str, model: str) -> RunError:
    return RunError(
        f"InferenceSession: {operand} is a model, but the argument must name providers",
        help=f"load the model: gc.InferenceSession().load({model})",
    )


def _installed() -> str:
    return ", ".join(onnxruntime.get_available_providers())


# Start onnxruntime sessions with the user's providers and options.

SLOWER = ("SkipLayerNormFusion", "BiasGeluFusion")
"""Optimisers that are disabled. Measured: the CPU kernel of the first is five times slower than the nodes that it
replaces, and the second gains nothing."""


@dataclass(frozen=True, slots=True)
class SessionStarter:
    """The options that all sessions of an `InferenceSession` share.

    providers: by preference. provider_options: by provider. attributes: of SessionOptions. config: config entries.
    huge_pages: None if each session decides whether it uses huge pages. selection: of devices, instead of providers.
    """

    providers: tuple[str, ...]
    provider_options: Mapping[str, Mapping[str, str]]
    attributes: Mapping[str, Any]
    config: Mapping[str, str]
    huge_pages: bool | None
    libraries: tuple[str, ...] = ()
    selection: Selection | None = None

    def options(self, more: Mapping[str, Any]) -> onnxruntime.SessionOptions:
        """Return new options of a session. more: attributes and entries that override the user's attributes."""
        new_options = session_options({**self.attributes, **more, **self.config})
        for path in self.libraries:
            new_options.register_custom_ops_library(path)
        return new_options

    def entries(self) -> list[tuple[str, Any]]:
        """Return all attributes and entries of sessions, in order: a part of a cache key."""
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
        """Return a new session. Raises the exceptions of onnxruntime.

        disabled: optimisers to disable. defaults: options by provider, which the user's override. providers: instead
        of all. runs_often: whether huge pages pay after some number of calls.
        """
        selection = self.selection if providers in (None, self.providers) else None
        names = list(providers or self.providers)
        by_provider = {p: {**defaults.get(p, {}), **self.provider_options.get(p, {})} for p in names}
        if selection is not None:
            selection.configure(options, by_provider)
        with gathered_later(runs_often if self.huge_pages is None else self.huge_pages) as later:
            # The fallback would print on stdout, drop the options and run on another provider than the requested one.
            session = onnxruntime.InferenceSession(
                model,
                options,
                providers=names if selection is None else None,
                provider_options=list(by_provider.values()) if selection is None else None,
                disabled_optimizers=list(disabled),
                enable_fallback=0,
            )
        if later is not None and self.huge_pages:
            later.gather()
        elif later is not None:
            LATER[session] = later
        return session

    def options_of_providers(self) -> onnxruntime.SessionOptions:
        """Return new options of a session that have its providers, for functions that take no names of providers."""
        options = self.options({})
        if self.selection is not None:
            self.selection.configure(options, self.provider_options)
        for name in self.providers if self.selection is None else ():
            options.add_provider(name, dict(self.provider_options.get(name, {})))
        return options

    def compiled(self, model: bytes) -> bytes:
        """Return a model with nodes EPContext for what the providers compile. Raises the exceptions of onnxruntime.

        onnxruntime optimises nothing there; the session that loads the result does.
        """
        flags = onnxruntime.OrtCompileApiFlags.ERROR_IF_NO_NODES_COMPILED
        compiler = onnxruntime.ModelCompiler(
            self.options_of_providers(), model, embed_compiled_data_into_model=True, flags=flags
        )
        content: bytes = compiler.compile_to_bytes()
        return content
