"""Sessions whose models run in sandboxed worker processes."""

from __future__ import annotations

import dataclasses
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
from graphcore.runtime.isolation.process import Program
from graphcore.runtime.isolation.sandbox import Protections, protections
from graphcore.support.source_lines import user_line

if TYPE_CHECKING:
    import onnx

MEMORY = 4 << 30
SECONDS = 60.0
_LEAST_MEMORY = 256 << 20
"""Measured: 128 MiB are the data of Python, ONNX and onnxruntime with a graph of one node."""
_OUTSIDE = ("cuda", "tensorrt", "rocm", "migraphx", "dml", "webgpu", "nvtensorrtrtx")
"""Parts of the names of providers whose devices lie outside of the sandbox."""


class IsolatedSession:
    """Loads untrusted models, each in sandboxed worker processes of its own: docs/howto/isolate.md.

    A worker reads the model's folder and the libraries, and no other file; it writes none, has no network, none of the
    program's descriptors and none of its environment, as far as the system has such protections: a warning in the log
    "graphcore" names those that it lacks. What ends a worker's process is an error of the call that did it.

    providers: as of an InferenceSession; those of a GPU are refused. memory: bytes of data that a worker may have, the
    arrays that go in and come out not counted; load_seconds, run_seconds: how long a start with its load, and a run,
    may take by the clock; None for no limit. workers: processes of each model, and so how many of its calls run at
    once. require: "full" to refuse machines where a protection is missing. precision, optimize,
    provider_options, config, session_options: as of an InferenceSession.

    Raises `GraphError` for limits that make no sense, options that do not go to another process and, with
    require="full", a machine without one of the `protections`. What else an InferenceSession refuses is raised by
    `load`.
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
        if not _is_count(memory) or memory < _LEAST_MEMORY:
            raise GraphError(
                f"IsolatedSession: memory={memory!r:.40} is no number of bytes from {_LEAST_MEMORY} on",
                help="give bytes: memory=2 << 30; the libraries alone take 128 MiB",
            )
        for name, seconds in (("load_seconds", load_seconds), ("run_seconds", run_seconds)):
            if seconds is not None and not _is_time(seconds):
                raise GraphError(
                    f"IsolatedSession: {name}={seconds!r:.40} is no time", help="give seconds above 0, or None"
                )
        if not _is_count(workers) or not 1 <= workers <= 1024:
            raise GraphError(
                f"IsolatedSession: workers={workers!r:.40} is no number of processes", help="give 1 to 1024"
            )
        asked = (providers,) if isinstance(providers, str) else providers
        for provider in asked or ():
            if any(part in str(provider).lower() for part in _OUTSIDE):
                raise GraphError(
                    f"IsolatedSession: {provider!r:.80} runs on a device, whose driver lies outside of the sandbox",
                    help='run it on "cpu", or the whole program in a container',
                )
        if require not in (None, "full"):
            raise GraphError(f"IsolatedSession: require={require!r:.40} is nothing", help='give "full", or None')
        if require and self.protections.missing:
            raise incomplete(self.protections.missing)
        self.limits = WorkerLimits(int(memory), _seconds(load_seconds), _seconds(run_seconds), require is not None)
        self.workers = int(workers)
        self._session = {
            "providers": None if asked is None else list(asked),
            "precision": precision,
            "optimize": optimize,
            "provider_options": {name: dict(options) for name, options in (provider_options or {}).items()},
            "config": dict(config or {}),
            "session_options": session_options,
        }
        _check_plain(self._session)

    @property
    def protections(self) -> Protections:
        """Return which protections workers have on this machine."""
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

        model: an ONNX model as a path or as bytes, a file in onnxruntime's own format (.ort), a ModelProto, or a Graph;
        it is read, checked, lowered and run in the worker alone. Of a path the worker may read the whole folder. A
        Graph is copied, with its weights. weights: arrays to use in place of the model's, by name, of the same types;
        each worker that starts is given a copy of them in shared memory, so leave them as they are while the model
        lives. external_data, external_data_root: whether and where symbolic links are followed to the data of a model
        in a file, as in `Graph.load`; "links" without a root lets the worker read the Hugging Face repository that the
        file lies in, if it lies in one. limits: what a model that is no Graph may take while it is read, by default
        `gc.Limits()`, beside the limits of the session. cache_dir: None; workers write no files.

        Raises what `InferenceSession.load` raises; `ModelError` for a model that ends the process,
        `ResourceLimitError` for one whose load is beyond a limit, and `GraphError` for a cache_dir.
        """
        links_of(external_data, external_data_root)
        if cache_dir is not None:
            raise GraphError(
                "IsolatedSession: there is no cache_dir: workers write no files, and what a cache has is trusted",
                help="leave it out, or cache the model with gc.InferenceSession, if you trust it",
            )
        asked: dict[str, Any] = {"line": str(user_line() or ""), "limits": _plain(limits_of(limits)), "links": {}}
        given_weights = _given(weights)
        if isinstance(model, (str, os.PathLike)):
            given = os.fsdecode(os.fspath(model))
            path = os.path.abspath(given)
            if not os.path.isfile(path):
                what = "a folder" if os.path.isdir(path) else "no file"
                raise ModelError(f"load: {given} is {what}", help="give the path of an .onnx file")
            root = None if external_data_root is None else os.path.abspath(os.fsdecode(external_data_root))
            links = {"external_data": external_data, "external_data_root": root}
            asked |= {"kind": "path", "path": path, "links": links}
            readable = _readable(path, external_data, root)
            program = Program(given, self.limits, self._session, asked, None, readable, given_weights)
        else:
            asked["kind"], content = _content(model)
            name = model.name if isinstance(model, Graph) else "model"
            program = Program(name, self.limits, self._session, asked, content, (), given_weights)
        return IsolatedModel(program, self.workers)


def _plain(limits: Limits) -> dict[str, Any]:
    """Return limits as JSON has them."""
    said = {field.name: getattr(limits, field.name) for field in dataclasses.fields(limits)}
    return said | {"strict": None if limits.strict is None else sorted(limits.strict)}


def _given(weights: Mapping[str, Array] | None) -> Mapping[str, Array]:
    """Return arrays that go to a worker. Raises `ModelError` for what are none."""
    if weights is not None and not isinstance(weights, Mapping):
        raise ModelError(
            f"load: weights are a {type(weights).__name__}, no arrays by name",
            help='give a mapping: {"w": array}, or gc.load_tensors(path)',
        )
    for name, array in (weights or {}).items():
        if not isinstance(name, str) or not isinstance(array, np.ndarray) or is_masked(array):
            raise ModelError(
                f"load: the weight {name!r:.200} is a {type(array).__name__}, no array by its name",
                help='give NumPy arrays by name: {"w": np.asarray(w)}',
            )
    return {name: native(array) for name, array in (weights or {}).items()}


def _readable(path: str, external_data: ExternalData, root: str | None) -> tuple[str, ...]:
    """Return the folders and files that a worker needs for the model in a file."""
    found = [os.path.dirname(path), os.path.realpath(path)]
    if root is not None:
        found.append(root)
    elif external_data == "links":  # of Hugging Face's cache: REPOSITORY/snapshots/REVISION/model.onnx
        before, is_there, _ = path.rpartition(f"{os.sep}snapshots{os.sep}")
        found += [before] if is_there else []
    return tuple(found)


def _content(model: object) -> tuple[str, bytes]:
    """Return the kind of a model that comes from no file, and its bytes."""
    if isinstance(model, Graph):
        model.verify()
        try:
            return "graph", pickle.dumps(model, protocol=pickle.HIGHEST_PROTOCOL)
        except Exception as error:  # of a custom operator's function that no other process can import
            raise ModelError(
                f"load: {model.name} does not go to another process: {error}",
                help="define what it calls in a module, or export it and give the path",
            ) from error
    if isinstance(model, (bytes, bytearray, memoryview)):
        return "bytes", bytes(model)
    serialise = getattr(model, "SerializeToString", None)
    if serialise is not None:
        try:
            return "bytes", serialise()
        except Exception as error:  # protobuf's EncodeError, or ValueError, of a model of more than 2 GiB
            raise ModelError(f"load: the model cannot be serialised: {error}", help="give its path") from error
    raise ModelError(f"load: a {type(model).__name__} is no model", help="give a Graph, a path, bytes or a ModelProto")


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_time(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e9


def _seconds(value: float | None) -> float | None:
    return None if value is None else float(value)


def _check_plain(options: object) -> None:
    """Raise `GraphError` for options that are no numbers, text, lists or dicts of them."""
    if isinstance(options, Mapping):
        for value in options.values():
            _check_plain(value)
    elif isinstance(options, (list, tuple)):
        for value in options:
            _check_plain(value)
    elif options is not None and not isinstance(options, (str, int, float)):
        raise GraphError(
            f"IsolatedSession: the option {options!r:.80} does not go to another process",
            help="give numbers and text",
        )
