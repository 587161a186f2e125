"""Sessions that run models in sandboxed worker processes."""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from graphcore.arrays.casting import Array, is_masked, native
from graphcore.arrays.external_data import ExternalData, links_of
from graphcore.arrays.resource_limits import Limits, limits_of
from graphcore.errors import GraphError, ModelError
from graphcore.ir.graph import Graph, Optimize, Precision
from graphcore.runtime.isolation.failures import WorkerLimits, incomplete
from graphcore.runtime.isolation.model import IsolatedModel
from graphcore.runtime.isolation.process import WorkerProgram, require_host
from graphcore.runtime.isolation.sandbox import Protections, protections
from graphcore.runtime.isolation.spawning import readable
from graphcore.support.source_lines import user_line

if TYPE_CHECKING:
    import onnx

MEMORY = 4 << 30
SECONDS = 60.0
_MIN_MEMORY = 256 << 20
"""Measured: Python, ONNX and onnxruntime with a graph of one node have 128 MiB of data."""


class IsolatedSession:
    """Loads untrusted models, each in its own sandboxed worker processes: docs/howto/isolate.md.

    A worker can read the model's folder and the libraries, but no other files. It cannot write files, has no network,
    and none of the program's descriptors and environment, as far as the system has such protections: a warning in the
    log "graphcore" names missing ones. If a worker ends during a call, the call raises an error.

    Args:
        providers: As for an InferenceSession; GPU providers are refused.
        memory: Bytes of data of a worker, without input and output arrays.
        load_seconds: Seconds for the start of a worker and the load; None for no limit.
        run_seconds: Seconds for a run; None for no limit.
        workers: Processes of each model, and so the number of its calls that run in parallel.
        require: "full" refuses machines with missing protections.
        precision: As for an InferenceSession.
        optimize: As for an InferenceSession.
        provider_options: As for an InferenceSession.
        config: As for an InferenceSession.
        session_options: As for an InferenceSession.

    Raises:
        GraphError: For invalid limits, options that cannot be sent to another process, and with require="full" for a
            machine without all `protections`. `load` raises the other errors of an InferenceSession.
    """

    def __init__(
        self,
        providers: str | Sequence[str] | None = None,
        *,
        memory: int = MEMORY,
        load_seconds: float | None = SECONDS,
        run_seconds: float | None = SECONDS,
        workers: int = 1,
        require: Literal["full"] | None = None,
        precision: Precision | None = None,
        optimize: Optimize = "all",
        provider_options: Mapping[str, Mapping[str, Any]] | None = None,
        config: Mapping[str, str | int | bool] | None = None,
        **session_options: Any,
    ) -> None:
        if not _is_count(memory) or memory < _MIN_MEMORY:
            raise GraphError(
                f"IsolatedSession: memory must be at least {_MIN_MEMORY} bytes, got {memory!r:.40}",
                help="give bytes: memory=2 << 30; the libraries alone take 128 MiB",
            )
        for name, seconds in (("load_seconds", load_seconds), ("run_seconds", run_seconds)):
            if seconds is not None and not _is_time(seconds):
                raise GraphError(
                    f"IsolatedSession: {name}={seconds!r:.40} is not a time", help="give seconds above 0, or None"
                )
        if not _is_count(workers) or not 1 <= workers <= 1024:
            raise GraphError(
                f"IsolatedSession: workers={workers!r:.40} is not a number of processes", help="give 1 to 1024"
            )
        names = (providers,) if isinstance(providers, str) else providers
        require_host(names or ())
        if "devices" in session_options:
            raise GraphError(
                "IsolatedSession: devices can have drivers, which are outside of the sandbox",
                help='run it on "cpu", or the whole program in a container',
            )
        if require not in (None, "full"):
            raise GraphError(
                f'IsolatedSession: require must be "full" or None, got {require!r:.40}', help='give "full" or None'
            )
        if require and self.protections.missing:
            raise incomplete(self.protections.missing)
        self.limits = WorkerLimits(int(memory), _seconds(load_seconds), _seconds(run_seconds), require is not None)
        self.workers = int(workers)
        self._session = {
            "providers": None if names is None else list(names),
            "precision": precision,
            "optimize": optimize,
            "provider_options": {name: dict(options) for name, options in (provider_options or {}).items()},
            "config": dict(config or {}),
            "session_options": session_options,
        }
        _check_plain(self._session)

    @property
    def protections(self) -> Protections:
        """The protections of workers on this machine."""
        return protections()

    def __repr__(self) -> str:
        limits = self.limits
        times = f"load_seconds={limits.load_seconds}, run_seconds={limits.run_seconds}"
        return f"<IsolatedSession memory={limits.memory}, {times}, workers={self.workers}>"

    def load(
        self,
        model: Graph | onnx.ModelProto | bytes | str | os.PathLike[str],
        weights: Mapping[str, Array] | None = None,
        *,
        cache_dir: None = None,
        external_data: ExternalData = "plain",
        external_data_root: str | os.PathLike[str] | None = None,
        limits: Limits | None = None,
    ) -> IsolatedModel:
        """Return a model that runs in workers.

        Args:
            model: An ONNX model as a path or bytes, a file in onnxruntime's own format (.ort), a ModelProto, or a
                Graph. Only the worker reads, checks, lowers and runs it. The worker can read the whole folder of a
                path. A Graph is copied with its weights.
            weights: Arrays that replace the model's, by name, of the same types. Each new worker gets a copy in shared
                memory: do not change them while the model lives.
            cache_dir: Must be None: workers write no files.
            external_data: Whether symbolic links to external data are followed, as in `Graph.load`. "links" without a
                root lets the worker read the Hugging Face repository of the file, if there is one.
            external_data_root: The folder that must contain the external data, as in `Graph.load`.
            limits: Limits on models other than Graphs while they are read, by default `gc.Limits()`.

        Raises:
            ModelError: If the model ends the process. Other errors are those of `InferenceSession.load`.
            ResourceLimitError: If the load exceeds a limit.
            GraphError: For a cache_dir.
        """
        links_of(external_data, external_data_root)
        if cache_dir is not None:
            raise GraphError(
                "IsolatedSession: cache_dir is not supported: workers write no files, and caches must be trusted",
                help="omit it, or cache the model with gc.InferenceSession if you trust the model",
            )
        request: dict[str, Any] = {"line": str(user_line() or ""), "limits": _plain(limits_of(limits)), "links": {}}
        given_weights = _check_weights(weights)
        if isinstance(model, (str, os.PathLike)):
            user_path = os.fsdecode(os.fspath(model))
            path = os.path.abspath(user_path)
            if not os.path.isfile(path):
                what = "a folder" if os.path.isdir(path) else "not a file"
                raise ModelError(f"load: {user_path} is {what}", help="give the path of an .onnx file")
            root = None if external_data_root is None else os.path.abspath(os.fsdecode(external_data_root))
            links = {"external_data": external_data, "external_data_root": root}
            request |= {"kind": "path", "path": path, "links": links}
            folders = readable(path, external_data, root)
            program = WorkerProgram(user_path, self.limits, self._session, request, None, folders, given_weights)
        else:
            request["kind"], content = _content(model)
            name = model.name if isinstance(model, Graph) else "model"
            program = WorkerProgram(name, self.limits, self._session, request, content, (), given_weights)
        return IsolatedModel(program, self.workers)


def _plain(limits: Limits) -> dict[str, Any]:
    """Return limits as a value for JSON."""
    values = {field.name: getattr(limits, field.name) for field in dataclasses.fields(limits)}
    return values | {"strict": None if limits.strict is None else sorted(limits.strict)}


def _check_weights(weights: Mapping[str, Array] | None) -> Mapping[str, Array]:
    """Return arrays for a worker. Raises `ModelError` for other values."""
    if weights is not None and not isinstance(weights, Mapping):
        raise ModelError(
            f"load: weights must be a mapping of names to arrays, got {type(weights).__name__}",
            help='give a mapping: {"w": array}, or gc.load_tensors(path)',
        )
    for name, array in (weights or {}).items():
        if not isinstance(name, str) or not isinstance(array, np.ndarray) or is_masked(array):
            raise ModelError(
                f"load: the weight {name!r:.200} must be an array, got {type(array).__name__}",
                help='give NumPy arrays by name: {"w": np.asarray(w)}',
            )
    return {name: native(array) for name, array in (weights or {}).items()}


def _content(model: object) -> tuple[str, bytes]:
    """Return the kind and the bytes of a model that is not a file."""
    if isinstance(model, Graph):
        model.verify()
        try:
            return "graph", pickle.dumps(model, protocol=pickle.HIGHEST_PROTOCOL)
        except Exception as error:  # for example a custom operator's function that another process cannot import
            raise ModelError(
                f"load: {model.name} cannot be sent to another process: {error}",
                help="define the functions that it calls in a module, or export it and give the path",
            ) from error
    if isinstance(model, (bytes, bytearray, memoryview)):
        return "bytes", bytes(model)
    serialise = getattr(model, "SerializeToString", None)
    if serialise is not None:
        try:
            return "bytes", serialise()
        except Exception as error:  # protobuf's EncodeError or ValueError for a model of more than 2 GiB
            raise ModelError(f"load: the model cannot be serialised: {error}", help="give its path") from error
    raise ModelError(
        f"load: the model must be a Graph, a path, bytes or a ModelProto, got {type(model).__name__}",
        help="give one of these",
    )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_time(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e9


def _seconds(value: float | None) -> float | None:
    return None if value is None else float(value)


def _check_plain(options: object) -> None:
    """Raise `GraphError` for options other than numbers, text, and lists and dicts of them."""

    def refuse(option: object) -> None:
        raise GraphError(
            f"IsolatedSession: the option {option!r:.80} cannot be sent to another process",
            help="give numbers and text",
        )

    json.dumps(options, default=refuse)
