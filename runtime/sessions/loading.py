"""Loading: the ways from a graph or a file to a Model, in the order in which they are tried."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import onnxruntime

from graphcore.arrays.casting import Array
from graphcore.arrays.external_data import Links
from graphcore.arrays.resource_limits import USUAL, Limits
from graphcore.errors import GraphcoreError, GraphError, ModelError
from graphcore.ir.graph import Graph
from graphcore.ir.transform.walk import operators
from graphcore.onnx.notes import LIMIT
from graphcore.runtime.model import Model, Start
from graphcore.runtime.ort import memory as session_memory
from graphcore.runtime.ort import openvino, python_ops, sessions, transport_dtypes
from graphcore.runtime.ort.memory import Prepack
from graphcore.runtime.ort.optimisers import broken
from graphcore.runtime.ort.options import SLOWER, require_started
from graphcore.runtime.sessions.plan import Engine, LoadPlan, planned, with_weights
from graphcore.runtime.sessions.warm_start import prepared as beside

if TYPE_CHECKING:
    import onnx

    from graphcore.onnx.read.reader import Opened
    from graphcore.runtime.sessions.warm_start.start import WarmStart


Source: TypeAlias = "Graph | onnx.ModelProto | bytes | str | os.PathLike[str]"


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """What one load is asked for: see `InferenceSession.load`.

    links: that are followed to a file's data. custom_ops: labels of the operators whose Python functions it may call.
    """

    weights: Mapping[str, Array] = field(default_factory=dict)
    prepack: Prepack = "auto"
    cache_dir: str | os.PathLike[str] | None = None
    prepared: bool = False
    links: Links | None = None
    limits: Limits = USUAL
    custom_ops: Set[str] = frozenset()
    format: str | None = None


@dataclass(slots=True)
class Load:
    """One load. reload: loads another graph with the usual options. warm: keeps what a later load starts from. opened:
    the file, which one loader opens and the next one reads."""

    source: Source
    engine: Engine
    options: LoadOptions
    reload: Callable[[Graph], Model]
    warm: WarmStart | None = None
    opened: Opened | None = None


Loader: TypeAlias = Callable[[Load], "Model | None"]
"""Returns the Model of a load; None where the load is left to the next loader."""


def load(source: Source, engine: Engine, options: LoadOptions, reload: Callable[[Graph], Model]) -> Model:
    """Return the Model of a graph or a file. Raises what `InferenceSession.load` does."""
    return _first(Load(source, engine, options, reload))


def _first(asked: Load) -> Model:
    for try_load in LOADERS:
        model = try_load(asked)
        if model is not None:
            return model
    raise AssertionError("the last loader takes all")


def compiled(asked: Load) -> Model | None:
    """Load a model in onnxruntime's own format, as it is."""
    if isinstance(asked.source, Graph) or not is_compiled(asked.source, asked.options.format):
        return None
    if asked.options.weights:
        raise ModelError("load: weights can be given for a graph or an ONNX model only", help="leave them out")
    name, content = content_of(asked.source)
    starter = asked.engine.starter

    def start(more: Mapping[str, Any]) -> tuple[onnxruntime.InferenceSession, object]:
        options = starter.options(more)
        try:
            session = starter.create(content, options)
        except Exception as error:
            raise sessions.refused(name, error) from error
        require_started(session, starter.providers)
        return session, None

    started = start({})
    return Model(name, start, *transport_dtypes.types_of(started[0]), started)


def kept(asked: Load) -> Model | None:
    """Load what an earlier load left in a folder; where there is nothing, note that this one leaves it there."""
    options, source = asked.options, asked.source
    if not isinstance(source, Graph) and options.limits != USUAL:
        return None
    warm = None
    if options.cache_dir is not None:
        warm = asked.warm = warm_start(asked.engine, options.cache_dir)
    elif options.prepared and not options.weights and (folder := beside.folder_of(source)) is not None:
        warm = warm_start(asked.engine, folder, writes=False)
    if warm is None or options.weights:
        return None
    uncached = replace(asked, options=replace(options, cache_dir=None, prepared=False), warm=None)
    return warm.find(source, options.prepack, functools.partial(_first, uncached), options.links)


def warm_start(engine: Engine, folder: str | os.PathLike[str], writes: bool = True) -> WarmStart:
    """Return what finds and keeps the loads of an engine in a folder."""
    # hashlib and tempfile, which loads without a cache do not need
    from graphcore.runtime.sessions.warm_start.start import WarmStart

    return WarmStart(folder, engine.starter, (engine.precision, engine.optimize), writes)


def direct(asked: Load) -> Model | None:
    """Load a third-party file that runs on the CPU as it is, without a Graph."""
    if isinstance(asked.source, Graph):
        return None
    from graphcore.runtime.sessions.direct import start  # onnx, which graphs that are built do not need

    engine, options = asked.engine, asked.options
    opened = asked.opened = start.Opened(asked.source, options.links, options.limits)
    if not engine.is_cpu or engine.optimize == "exact" or engine.starter.libraries:
        return None
    if asked.warm is not None or options.weights:
        return None

    def read() -> Graph:
        if opened.is_overwritten():
            raise ModelError(f"load: {opened.name} was changed since it was loaded", help="load it again")
        graph = _read(asked, opened)
        opened.forget()
        return graph

    found = start.found(opened, options.prepack, keeps_halves=engine.precision is None)
    if isinstance(found, str):
        return None
    return start.started(found, opened, engine.starter, lambda: _lowered(asked, read()), read)


def lowered(asked: Load) -> Model:
    """Load a graph, or a file that is read into one: it is lowered."""
    if isinstance(asked.source, Graph):
        return _lowered(asked, asked.source)
    opened = asked.opened
    assert opened is not None  # by `direct`
    try:
        graph = _read(asked, opened)
        opened.watch.look()
        return _lowered(asked, graph)
    except GraphcoreError:
        raise
    except Exception as error:  # of a model that ONNX's checks let through and that makes no sense
        raise ModelError(
            f"load: the model cannot be lowered: {type(error).__name__}: {error}",
            help="check the model with onnx.checker, full_check=True",
        ) from error


LOADERS: tuple[Loader, ...] = (compiled, kept, direct, lowered)


def _read(asked: Load, opened: Opened) -> Graph:
    """Return the graph of a file, typed by what the libraries of operators say."""
    from graphcore.onnx.read.reader import read  # onnx, which graphs that are built do not need

    libraries, custom_ops = asked.engine.starter.libraries, asked.options.custom_ops
    if not libraries:
        return read(opened, custom_ops=custom_ops)
    from graphcore.runtime.ort.operators import InstalledOperators  # onnx, as above

    return read(opened, runtime=lambda: InstalledOperators(libraries), custom_ops=custom_ops)


def _lowered(asked: Load, graph: Graph) -> Model:
    """Return the Model of a graph."""
    engine, warm = asked.engine, asked.warm
    graph.verify()
    if asked.options.weights:
        graph = with_weights(graph, asked.options.weights)
    plan = planned(graph, engine, asked.options.prepack)
    # What Python computes has another number in each process.
    is_kept = warm is not None and not plan.sites and plan.openvino is None
    cache = warm.cache(plan.disabled, plan.config) if warm is not None and is_kept else None

    def again(given: Graph) -> Graph:
        made, _ = python_ops.prepared(given)
        return engine.lower(transport_dtypes.with_transport_outputs(made) if plan.uses_transport else made)

    start = _start(plan, engine, cache) if plan.openvino is None else _start_openvino(plan, plan.openvino, engine)
    try:
        model = Model(
            graph.name,
            start,
            plan.inputs,
            plan.outputs,
            None,
            plan.uses_transport,
            plan.lowered,
            plan.whole,
            asked.reload,
            plan.buffers,
            lower=again,
        )
    except ModelError as error:
        raise python_ops.undeclared(plan.lowered, error) from error.__cause__
    if warm is not None and cache is not None:
        warm.keep(model, cache, plan.config)
    return model


def _start(plan: LoadPlan, engine: Engine, cache: sessions.Cache | None) -> Start:
    """Return what starts the sessions of a plan."""
    starter = engine.starter

    def start(more: Mapping[str, Any]) -> tuple[onnxruntime.InferenceSession, object]:
        session, keep = sessions.start(
            plan.lowered,
            lambda: python_ops.options(starter.options({**plan.config, **more}), plan.lowered, starter.libraries),
            lambda model, options: starter.create(
                model, options, plan.disabled, plan.defaults, runs_often=plan.runs_often
            ),
            None if more else cache,
        )
        require_started(session, starter.providers)
        if plan.is_packed:
            session_memory.release(session_memory.reordered(plan.lowered))
        return session, (keep, plan.sites)

    return start


def _start_openvino(plan: LoadPlan, provider: openvino.Plan, engine: Engine) -> Start:
    """Return what starts the sessions of a plan: OpenVINO's, and the CPU provider's for the graph or for a call."""
    starter = engine.starter

    def begun(graph: Graph, hint: str, more: Mapping[str, Any]) -> tuple[onnxruntime.InferenceSession, object]:
        providers = starter.providers if hint else ("CPUExecutionProvider",)
        defaults = {openvino.PROVIDER: openvino.options(hint)}
        started = sessions.start(
            graph,
            lambda: python_ops.options(starter.options(more), graph, starter.libraries),
            lambda model, options: starter.create(
                model, options, (*SLOWER, *broken(graph, operators(graph))), defaults, providers=providers
            ),
        )
        require_started(started[0], providers)
        return started

    def start(more: Mapping[str, Any]) -> tuple[onnxruntime.InferenceSession, object]:
        try:
            session, keep = begun(provider.lowered, provider.hint, more)
            used = provider
        except ModelError as error:  # OpenVINO claims nodes that it then cannot read
            if not provider.hint:
                raise
            if openvino.PROVIDER in starter.provider_options:
                openvino.require_options(starter.provider_options[openvino.PROVIDER], lambda g: begun(g, "f32", {}))
            used = openvino.refused(provider, error)
            session, keep = begun(engine.lower(plan.source, "cpu"), "", more)
        kept = [keep, plan.sites]

        def host() -> onnxruntime.InferenceSession:
            session, keep = begun(engine.lower(plan.source, "cpu"), "", {})
            kept.append(keep)
            return session

        sizes = None
        if used.sizes is not None:
            sizes, keep = begun(used.sizes, "", {})
            kept.append(keep)
        return openvino.Compiled(session, used, host, sizes), kept

    return start


# Options of loading a file, and models in onnxruntime's own format: what needs no onnx.


def require_format(format: object) -> None:
    """Raise `GraphError` for a format of models that there is not."""
    if format not in (None, "onnx", "ort"):
        raise GraphError(f"load: there is no format {format!r:.40}", help='give "onnx", "ort" or nothing')


def is_compiled(model: object, format: str | None) -> bool:
    """Return whether a model is to be taken for one in onnxruntime's own format, a flatbuffer, which nothing checks.

    The user says so, by format or by the end of the path: the content of a model never does.
    """
    if format is not None:
        return format == "ort"
    return isinstance(model, (str, os.PathLike)) and os.fsdecode(os.fspath(model)).lower().endswith(".ort")


def content_of(model: object) -> tuple[str, bytes | str]:
    """Return what errors call a finished model, and its bytes or its path."""
    import onnx

    if isinstance(model, onnx.ModelProto):
        if model.ByteSize() > LIMIT:
            raise ModelError("load: the model is larger than 2 GiB", help="give its path")
        return model.graph.name or "model", model.SerializeToString()
    if isinstance(model, (bytes, bytearray, memoryview)):
        return "model", bytes(model)
    if isinstance(model, (str, os.PathLike)):
        path = os.fspath(model)
        path = os.fsdecode(path)
        if not os.path.isfile(path):
            what = "a folder" if os.path.isdir(path) else "no file"
            raise ModelError(f"load: {path} is {what}", help="give the path of an .onnx file")
        return path, path
    raise ModelError(f"load: a {type(model).__name__} is no model", help="give a Graph, a path, bytes or a ModelProto")
