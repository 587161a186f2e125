"""Execution providers of onnxruntime: their short names, what is installed, what they are lowered for."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import onnxruntime

from graphcore.errors import GraphError, RunError
from graphcore.ir.graph import Graph, TargetName
from graphcore.runtime import openvino
from graphcore.runtime.lowering.targets import BY_PROVIDER
from graphcore.support.suggestions import suggestion

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
