"""Load a graph or a file as a Model: the loaders, in the order in which they are tried."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import onnxruntime

from graphcore.arrays.resource_limits import USUAL, Watch
from graphcore.errors import GraphcoreError, GraphError, ModelError, RunError
from graphcore.ir.graph import Graph
from graphcore.ir.transform.walk import operators
from graphcore.onnx.notes import LIMIT
from graphcore.runtime.buffers.state import Growth
from graphcore.runtime.model import Model, Start
from graphcore.runtime.ort import memory as session_memory
from graphcore.runtime.ort import openvino, python_ops, sessions, transport_dtypes
from graphcore.runtime.ort.options import SLOWER, SessionStarter, require_started
from graphcore.runtime.sessions.plan import Engine, LoadOptions, LoadPlan, optimisers, plan_load, with_weights
from graphcore.runtime.sessions.warm_start import prepared as prepared_files
from graphcore.support.escaping import suggestion
from graphcore.support.lazy import Lazy
from graphcore.types.tensor_types import Type

if TYPE_CHECKING:
    import onnx

    from graphcore.onnx.proto.opened import Opened
    from graphcore.runtime.ort.optimised_cache import CacheFolder
    from graphcore.runtime.sessions.warm_start import start as warm_starts
    from graphcore.runtime.sessions.warm_start.start import WarmStart
else:  # imports hashlib, which loads without a cache do not need
    warm_starts = Lazy("graphcore.runtime.sessions.warm_start.start")


_Model = TypeVar("_Model")

Source: TypeAlias = "Graph | onnx.ModelProto | bytes | str | os.PathLike[str]"


@dataclass(slots=True)
class Load:
    """A load. reload: loads another graph with the usual options. warm: stores the entry of a later load. opened: the
    file, which one loader opens and the next one reads. graph: of the file, if it was read before. constants: types of
    those that calls may override."""

    source: Source
    engine: Engine
    options: LoadOptions
    reload: Callable[[Graph], Model]
    warm: WarmStart | None = None
    opened: Opened | None = None
    graph: Graph | None = None
    constants: Mapping[str, Type] = field(default_factory=dict)


Loader: TypeAlias = Callable[[Load], "Model | None"]
"""Returns the Model of a load; None to leave the load to the next loader."""


def load(request: Load) -> Model:
    """Return the Model of a graph or a file. Raises as `InferenceSession.load`."""
    for try_load in LOADERS:
        model = try_load(request)
        if model is not None:
            return model
    raise AssertionError("the last loader handles every model")


def load_compiled(request: Load) -> Model | None:
    """Load a model in onnxruntime's own format, unchanged."""
    if isinstance(request.source, Graph) or not is_compiled(request.source, request.options.format):
        return None
    if request.options.weights:
        raise ModelError("load: weights can replace those of a Graph or an ONNX model only", help="omit weights")
    name, content = content_of(request.source)
    starter = request.engine.starter

    def start(more: Mapping[str, Any]) -> tuple[onnxruntime.InferenceSession, object]:
        options = starter.options(more)
        try:
            session = starter.create(content, options)
        except Exception as error:
            raise sessions.refused(name, error) from error
        require_started(session, starter.providers, starter.selection)
        return session, None

    started = start({})
    return Model(name, start, *transport_dtypes.types_of(started[0]), started)


def load_cached(request: Load) -> Model | None:
    """Load the cache entry of an earlier load; if there is none, note that this load writes it."""
    options, source = request.options, request.source
    if not isinstance(source, Graph) and options.limits != USUAL:
        return None
    warm: WarmStart | None = None
    if options.cache_dir is not None:
        warm = request.warm = warm_starts.WarmStart(options.cache_dir, request.engine, options)
    elif options.prepared and not options.weights and (folder := prepared_files.folder_of(source)) is not None:
        warm = warm_starts.WarmStart(folder, request.engine, options)
    elif (path := _file_beside(request)) is not None and os.path.isfile(path):
        warm = warm_starts.WarmStart(path, request.engine, options, is_file=True)
    if warm is None or options.weights:
        return None
    uncached = replace(request, options=replace(options, cache_dir=None, prepared=False), warm=None)
    return warm.find(source, functools.partial(load, uncached), _grown(request))


def _file_beside(request: Load) -> str | None:
    """Return the path of the `PreparedFile` of a load; None if it has none."""
    options, source = request.options, request.source
    is_plain = LoadOptions(prepack=options.prepack, links=options.links, has_all_rows=options.has_all_rows) == replace(
        options, prepared=None
    )
    is_off = options.prepared is False or os.environ.get("GRAPHCORE_PREPARED") == "0"
    if is_off or not is_plain or request.constants or not isinstance(source, (str, os.PathLike)):
        return None
    return os.fsdecode(source) + (".many_rows.prepared" if options.has_all_rows else ".prepared")


def _grown(request: Load, graph: Graph | None = None) -> Callable[[], Model]:
    """Return the function that loads the same model with one session for all calls. graph: if it was read."""
    options, opened = replace(request.options, has_all_rows=True), request.opened
    source = graph if graph is not None and isinstance(request.source, Graph) else request.source
    whole = replace(request, source=source, options=options, warm=None, graph=graph)
    edits = 0 if graph is None else graph.edits
    if opened is not None:
        opened.forget()

    def grown() -> Model:
        if (opened is not None and not opened.is_unchanged()) or (graph is not None and graph.edits != edits):
            raise ModelError(f"load: {request.source!r:.200} was changed since it was loaded", help="load it again")
        return load(whole)

    return grown


def load_direct(request: Load) -> Model | None:
    """Load a third-party file that runs on the CPU without lowering, without a Graph."""
    if isinstance(request.source, Graph) or request.graph is not None:
        return None
    from graphcore.runtime.sessions.direct import start  # takes 20 ms, and built graphs do not need it

    engine, options = request.engine, request.options
    opened = request.opened = request.opened or start.Opened(request.source, options.links, options.limits)
    if not engine.is_cpu or engine.optimize == "exact" or engine.starter.libraries:
        return None
    if request.warm is not None or options.weights:
        return None

    def read() -> Graph:
        if opened.is_overwritten():
            raise ModelError(f"load: {opened.name} was changed since it was loaded", help="load it again")
        opened.watch = Watch(opened.limits)
        graph = _read(request, opened)
        opened.forget()
        return graph

    plan = start.plan_direct(
        opened,
        options.prepack,
        keeps_halves=engine.precision is None,
        defaults=options.defaults,
        lowering=(engine.precision, engine.optimize),
    )
    if isinstance(plan, str):
        return None
    model = start.started(plan, opened, engine.starter, lambda: _load_graph(request, read()), read)
    request.constants = plan.constants
    return None if model is None else _overridable(request, opened, model)


def load_lowered(request: Load) -> Model:
    """Read a file into a graph if necessary, lower the graph and load it."""
    graph = request.source if isinstance(request.source, Graph) else request.graph
    if graph is not None:
        return _load_graph(request, graph)
    opened = request.opened
    assert opened is not None  # `load_direct` opened it
    try:
        graph = _read(request, opened)
        opened.watch.look()
        return _overridable(request, opened, _load_graph(request, graph))
    except GraphcoreError:
        raise
    except Exception as error:  # an invalid model that passes ONNX's checks
        raise ModelError(
            f"load: the model cannot be lowered: {type(error).__name__}: {error}",
            help="check the model with onnx.checker, full_check=True",
        ) from error


def _overridable(request: Load, opened: Opened, model: Model) -> Model:
    """Let calls override constants that a file lists as inputs, unless the next load starts from a cache, without them.

    They stay constants for calls that do not: folded, prepacked, and with shapes that depend on them.
    """
    if not request.constants or request.warm is not None:
        return model
    opened.forget()

    def load_with(names: frozenset[str]) -> Model:
        if opened.is_overwritten():
            raise ModelError(f"load: {opened.name} was changed since it was loaded", help="load it again")
        opened.watch = Watch(opened.limits)  # the time of this load
        options = replace(request.options, cache_dir=None, prepared=False, defaults=names)
        return load(replace(request, options=options, opened=opened))

    return model.let_override(request.constants, load_with)


LOADERS: tuple[Loader, ...] = (load_compiled, load_cached, load_direct, load_lowered)


def _read(request: Load, opened: Opened) -> Graph:
    """Return the graph of a file; libraries of custom operators tell the types of their nodes."""
    from graphcore.onnx.read.reader import constants_of, installed, read  # imports onnx, which built graphs do not need

    libraries, options = request.engine.starter.libraries, request.options
    runtime = installed
    if libraries:
        from graphcore.runtime.ort.operators import InstalledOperators  # imports onnx, as above

        def runtime() -> InstalledOperators:
            return InstalledOperators(libraries)

    graph = read(opened, runtime=runtime, custom_ops=options.custom_ops, defaults=options.defaults)
    request.constants = constants_of(opened.proto, graph.defaults.keys())
    return graph


def _load_graph(request: Load, graph: Graph) -> Model:
    """Return the Model of a graph."""
    engine, warm = request.engine, request.warm
    graph.verify()
    if request.options.weights:
        graph = with_weights(graph, request.options.weights)
    plan = plan_load(graph, engine, request.options)
    if plan.runs_often and request.opened is not None and (path := _file_beside(request)) is not None:
        warm = warm_starts.WarmStart(path, engine, request.options, is_file=True).writing(request.opened)
    # The numbers of Python's nodes differ in each process, so that a cached model does not fit.
    cache = None if warm is None or plan.sites else warm.cache(plan.disabled, plan.config)

    def again(source: Graph) -> Graph:
        rewritten, _ = python_ops.prepared(source)
        return engine.lower(transport_dtypes.with_transport_outputs(rewritten) if plan.uses_transport else rewritten)

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
            request.reload,
            plan.buffers,
            lower=again,
            defaults=graph.defaults,
            growth=None if plan.many is None else Growth(*plan.many, _grown(request, graph)),
        )
    except ModelError as error:
        raise python_ops.undeclared(plan.lowered, error) from error.__cause__
    if warm is not None and cache is not None:
        warm.keep(model, cache, plan.config)
    return model


def _start(plan: LoadPlan, engine: Engine, cache: CacheFolder | None) -> Start:
    """Return the function that starts the sessions of a plan."""
    starter = engine.starter

    def start(more: Mapping[str, Any]) -> tuple[onnxruntime.InferenceSession, object]:
        with session_memory.released(session_memory.constants(plan.lowered) if plan.is_packed else ()):
            session, keep = sessions.start(
                plan.lowered,
                lambda: python_ops.options(starter.options({**plan.config, **more}), plan.lowered, starter.libraries),
                lambda model, options: starter.create(
                    model, options, plan.disabled, plan.defaults, runs_often=plan.runs_often
                ),
                None if more else cache,
            )
        require_started(session, starter.providers, starter.selection)
        return session, (keep, plan.sites)

    return start


def _start_openvino(plan: LoadPlan, provider: openvino.Plan, engine: Engine) -> Start:
    """Return the function that starts the sessions of a plan: OpenVINO's, and the CPU provider's as its fallback."""
    starter = engine.starter

    def start_on(graph: Graph, hint: str, more: Mapping[str, Any]) -> tuple[onnxruntime.InferenceSession, object]:
        providers = starter.providers if hint else ("CPUExecutionProvider",)
        threads = starter.attributes.get("intra_op_num_threads", 0)
        defaults = {openvino.PROVIDER: openvino.options(hint, threads)}
        started = sessions.start(
            graph,
            lambda: python_ops.options(starter.options(more), graph, starter.libraries),
            lambda model, options: starter.create(
                model, options, (*SLOWER, *optimisers.unsafe(graph, operators(graph))), defaults, providers=providers
            ),
        )
        require_started(started[0], providers)
        return started

    def start(more: Mapping[str, Any]) -> tuple[onnxruntime.InferenceSession, object]:
        try:
            session, keep = start_on(provider.lowered, provider.hint, more)
            used = provider
        except ModelError as error:  # OpenVINO claims nodes that it then cannot read
            if not provider.hint:
                raise
            if openvino.PROVIDER in starter.provider_options:
                openvino.require_options(starter.provider_options[openvino.PROVIDER], lambda g: start_on(g, "f32", {}))
            used = openvino.refused(provider, error)
            session, keep = start_on(engine.lower(plan.source, "cpu"), "", more)
        references = [keep, plan.sites]

        def host() -> onnxruntime.InferenceSession:
            session, keep = start_on(engine.lower(plan.source, "cpu"), "", {})
            references.append(keep)
            return session

        sizes = None
        if used.sizes is not None:
            sizes, keep = start_on(used.sizes, "", {})
            references.append(keep)
        return openvino.Compiled(session, used, host, sizes), references

    return start


# Formats of models, and models in onnxruntime's own format. This part does not need onnx.


def require_format(format: object) -> None:
    """Raise `GraphError` for an unknown format of models."""
    if format not in (None, "onnx", "ort"):
        raise GraphError(f"load: format={format!r:.40} is not a format", help='give "onnx", "ort" or None')


def is_compiled(model: object, format: str | None) -> bool:
    """Return True if a model is in onnxruntime's own format, a flatbuffer, which nothing checks.

    Only the user decides so, by `format` or by the suffix of the path: the content of a model never does.
    """
    if format is not None:
        return format == "ort"
    return isinstance(model, (str, os.PathLike)) and os.fsdecode(os.fspath(model)).lower().endswith(".ort")


def content_of(model: object) -> tuple[str, bytes | str]:
    """Return the name of a model for errors, and its bytes or its path."""
    import onnx

    if isinstance(model, onnx.ModelProto):
        if model.ByteSize() > LIMIT:
            raise ModelError("load: the model is larger than 2 GiB", help="give its path")
        return model.graph.name or "model", model.SerializeToString()
    if isinstance(model, (bytes, bytearray, memoryview)):
        return "model", bytes(model)
    if isinstance(model, (str, os.PathLike)):
        path = os.fsdecode(model)
        if not os.path.isfile(path):
            what = "a folder" if os.path.isdir(path) else "not a file"
            raise ModelError(f"load: {path} is {what}", help="give the path of an .onnx file")
        return path, path
    raise ModelError(
        f"load: the model must be a Graph, a path, bytes or a ModelProto, got {type(model).__name__}",
        help="give one of these",
    )


# Model packages of onnxruntime: folders with variants of models, of which a session's providers choose one.

_PACKAGES_FROM = "1.32.0"
"""The oldest release in which the interface of model packages was seen."""


def chosen_model(model: _Model, component: str | None, starter: SessionStarter) -> _Model | str:
    """Return a model, or the path of the one that onnxruntime chooses from a package.

    component: the name of a part of the package; None if it has one. Raises `ModelError` and `RunError`.
    """
    if not isinstance(model, (str, os.PathLike)) or not os.path.isfile(
        os.path.join(os.fsdecode(model), "manifest.json")
    ):
        if component is not None:
            raise ModelError("load: component names a part of a model package", help="give the folder of a package")
        return model
    path = os.fsdecode(model)
    if not hasattr(onnxruntime, "ModelPackageContext"):
        raise RunError(
            f"load: {path}: onnxruntime {onnxruntime.__version__} reads no model packages",
            help=f"install onnxruntime {_PACKAGES_FROM} or newer, or give the path of a model in the package",
        )
    try:
        package = onnxruntime.ModelPackageContext(path)
        names = sorted(package.get_component_names())
        name = names[0] if component is None and len(names) == 1 else component
        if name not in names:
            listed = ", ".join(map(repr, names)) or "none"
            raise ModelError(
                f"load: {path}: the model package has the components {listed}, not {name!r:.80}",
                help=f"{suggestion(name, names) if isinstance(name, str) else ''}give one of them as component",
            )
        chosen = package.select_component(name, onnxruntime.ModelPackageOptions(starter.options_of_providers()))
        variant = chosen.get_selected_variant_name()
        (part,) = (p for p in onnxruntime.ModelPackage.open(path).get_info()["components"] if p["name"] == name)
        (info,) = (v["executor_info"]["ort"] for v in part["variants"] if v["name"] == variant)
        file = json.loads(info)["model_file"]
        return str(package.resolve_string_ref(file, chosen.get_selected_variant_folder_path(), True))
    except ModelError:
        raise
    except Exception as error:  # onnxruntime raises several kinds of its own
        raise ModelError(
            f"load: {path}: onnxruntime cannot choose a model of this package: {str(error).strip() or error!r:.400}",
            help=f"the session has {', '.join(starter.providers)}; give other providers, or the path of a model in it",
        ) from error
