"""Sessions: a graph or a file becomes a Model that runs."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, Literal

import onnxruntime

from graphcore.arrays.casting import Array
from graphcore.arrays.external_data import ExternalData, links_of
from graphcore.arrays.resource_limits import USUAL, Limits, limits_of
from graphcore.errors import GraphcoreError, GraphError, ModelError
from graphcore.ir.graph import Graph, Optimize, Precision, TargetName
from graphcore.ir.state.dim_minima import minima, with_minima
from graphcore.ir.symbol import Constant
from graphcore.ir.transform.exposed_buffers import exposed, outputs_of
from graphcore.runtime import lowering, openvino, python_ops
from graphcore.runtime import memory as session_memory
from graphcore.runtime.buffers.state import kept_of
from graphcore.runtime.direct.compiled import Reading, content_of, is_compiled, require_format
from graphcore.runtime.lowering import LEVELS, PRECISIONS, TARGETS
from graphcore.runtime.memory import Prepack, checked
from graphcore.runtime.model import Model, Start
from graphcore.runtime.ort import model_types, sessions, transport_dtypes
from graphcore.runtime.ort.optimisers import broken, idle_in
from graphcore.runtime.ort.options import check_attributes, checked_libraries, config_entries, multiplies_in_tf32
from graphcore.runtime.ort.providers import EXACT, TENSOR_CORES, options_of, require_started, resolve, target_of
from graphcore.runtime.ort.release import memory, runtime
from graphcore.runtime.ort.sessions import refused
from graphcore.runtime.ort.starter import SLOWER, Starter
from graphcore.runtime.replaced_weights import with_weights
from graphcore.runtime.warm_start import prepared as beside
from graphcore.support.suggestions import suggestion

if TYPE_CHECKING:
    import onnx

    from graphcore.custom_ops.custom_op import CustomOp
    from graphcore.onnx.read.reader import Opened
    from graphcore.runtime.warm_start.start import WarmStart


class InferenceSession:
    """Loads graphs and models for one or more providers.

    providers: by preference, among those installed: "cpu", "cuda", "openvino" or onnxruntime's names; by default "cpu".
    precision: "exact" rounds after every op, "fast" leaves consecutive ones on floats narrower than float32 in float32;
    None, the default, is "exact" for what is built, and leaves float16 and bfloat16 in models that others wrote to
    onnxruntime's own kernels (docs/numbers.md).
    optimize: "exact" runs the passes of `Graph.optimize` on what is loaded, bit for bit; "all" looks for what the
    provider runs faster in another form, whose sums in float32 may come in another order, and runs the passes where
    there is some (docs/passes.md); "off" does neither. huge_pages: whether what a start puts in order is gathered in
    large pages; None does where buffers are written in place, as by decoders, after some calls (docs/running.md).
    provider_options: options of onnxruntime's providers by name, such as
    `{"cuda": {"device_id": 1, "enable_cuda_graph": True}}`. config: entries of onnxruntime's session configuration,
    such as `{"session.intra_op.allow_spinning": False}`, whose names onnxruntime does not check. session_options:
    attributes of `onnxruntime.SessionOptions`, such as `intra_op_num_threads=2`. docs/running.md says which pay.
    custom_op_libraries: paths of shared libraries with operators of other domains, which run with all your rights; the
    models that `load` reads have such nodes typed by what the libraries say (docs/custom_ops.md).

    Raises `RunError` for a provider that is not installed, `GraphError` for an option that does not exist or a value it
    does not take.
    """

    def __init__(
        self,
        providers: str | Sequence[str] | None = None,
        *,
        precision: Precision | None = None,
        optimize: Optimize = "all",
        huge_pages: bool | None = None,
        provider_options: Mapping[str, Mapping[str, Any]] | None = None,
        config: Mapping[str, str | int | bool] | None = None,
        custom_op_libraries: Sequence[str | os.PathLike[str]] = (),
        **session_options: Any,
    ) -> None:
        if precision is not None and precision not in PRECISIONS:
            raise GraphError(
                f"InferenceSession: there is no precision {precision!r}",
                help=f"{suggestion(precision, PRECISIONS)}use one of {', '.join(PRECISIONS)}",
            )
        if optimize not in LEVELS:
            raise GraphError(
                f"InferenceSession: there is no level of optimization {optimize!r}",
                help=f"{suggestion(optimize, LEVELS)}use one of {', '.join(LEVELS)}",
            )
        self.precision = precision
        self.optimize = optimize
        self.huge_pages = checked(huge_pages)
        self.providers = resolve(providers)
        by_provider = options_of(self.providers, provider_options or {})
        check_attributes(session_options)
        entries = config_entries(config or {})
        libraries = checked_libraries(custom_op_libraries)
        self._starter = Starter(self.providers, by_provider, session_options, entries, self.huge_pages, libraries)
        self._starter.options({})  # which raises for a value that an attribute does not take

    @property
    def target(self) -> TargetName:
        """Return the target that graphs are lowered for."""
        return target_of(self.providers[0])

    def __repr__(self) -> str:
        return f"<InferenceSession on {', '.join(self.providers)}, {self.precision or 'exact'}>"

    def load(
        self,
        model: Graph | onnx.ModelProto | bytes | str | os.PathLike[str],
        weights: Mapping[str, Array] | None = None,
        *,
        prepack: Prepack = "auto",
        cache_dir: str | os.PathLike[str] | None = None,
        prepared: bool = False,
        external_data: ExternalData = "plain",
        external_data_root: str | os.PathLike[str] | None = None,
        limits: Limits | None = None,
        custom_ops: Iterable[str | CustomOp[..., Any]] = (),
        format: Literal["onnx", "ort"] | None = None,
    ) -> Model:
        """Return a Model that runs.

        model: a Graph, or an ONNX model as a path, bytes or a ModelProto, which `Graph.load` reads; it is lowered for
        the first provider. A model in onnxruntime's own format is run as it is, unchecked, where its path ends in
        ".ort" or format="ort" says so: load those of people you trust. weights: arrays to use in place
        of the graph's weights, by name, of the same types. The arrays of weights are not copied as a rule: leave them
        as they are while the Model lives. prepack: whether kernels put weights into an order of their own, which takes
        a second copy of them: "auto" does unless the shapes tell that one row goes through each matrix. cache_dir: a
        folder in which the graph is kept as onnxruntime has optimised it, for the next start on the CPU; see
        docs/running.md. prepared: start from what `prepare` wrote beside the file, where that is there and of this
        file; for folders of your own alone, since it is not checked as a model is. external_data, external_data_root:
        whether and where symbolic links are followed to the data of a model in a file, as in `Graph.load`. limits:
        what a model that is no Graph may take, by default `gc.Limits()`; nothing is kept of a load with others.
        custom_ops: those whose Python functions it may call, none by default, as in `Graph.load`.

        Raises `ModelError` for what cannot be read or run, `ResourceLimitError` for what is beyond a limit,
        `GraphError` for an
        unfinished graph or an operator that no kernel computes, `RunError` where a provider does not start.
        """
        if weights is not None and not isinstance(weights, Mapping):
            raise ModelError(
                f"load: weights are a {type(weights).__name__}, no arrays by name",
                help='give a mapping: {"w": array}, or gc.load_tensors(path)',
            )
        session_memory.require(prepack)
        require_format(format)
        if not isinstance(model, Graph) and is_compiled(model, format):
            if weights:
                raise ModelError("load: weights can be given for a graph or an ONNX model only", help="leave them out")
            return self._load_compiled(model)
        allowed: Set[str] = frozenset()
        if custom_ops:
            # what declares operators, which most loads do not need
            from graphcore.custom_ops.calling import called

            allowed = called(custom_ops)
        reading = Reading(links_of(external_data, external_data_root), limits_of(limits), allowed)
        again = functools.partial(self._loaded, model, {}, prepack, None, reading)
        warm, links = None, reading.links
        is_usual = isinstance(model, Graph) or reading.limits == USUAL
        if cache_dir is not None and is_usual:
            warm = self._warm(cache_dir)
            found = None if weights else warm.find(model, prepack, again, links)
            if found is not None:
                return found
        elif prepared and is_usual and not weights and (folder := beside.folder_of(model)) is not None:
            found = self._warm(folder, writes=False).find(model, prepack, again, links)
            if found is not None:
                return found
        return self._loaded(model, weights or {}, prepack, warm, reading)

    def prepare(
        self,
        path: str | os.PathLike[str],
        *,
        prepack: Prepack = "auto",
        external_data: ExternalData = "plain",
        external_data_root: str | os.PathLike[str] | None = None,
    ) -> None:
        """Write beside a model's file what sessions with these options start from: a folder called `path` and ".start".

        `load(path, prepared=True)` finds it there, and neither reads the file nor lowers it, as with `cache_dir`, from
        the first start on. It is of this file, where and as it lies now, and of the installed releases: after a change
        of either the file is loaded as without the folder, which may be removed at any time. The file has to be 2 s
        old, and is waited for. prepack, external_data, external_data_root: as in `load`.

        Raises what `load` does with `cache_dir`, and `ModelError` for a model of which nothing can be kept.
        """
        links = links_of(external_data, external_data_root)
        again = functools.partial(self._loaded, path, {}, prepack, None, Reading(links))

        def start_of(folder: str) -> Model | None:
            return self._warm(folder).find(path, prepack, again, links)

        beside.prepare(
            path,
            lambda folder: self.load(
                path,
                prepack=prepack,
                cache_dir=folder,
                external_data=external_data,
                external_data_root=external_data_root,
            ),
            start_of,
        )

    def _warm(self, folder: str | os.PathLike[str], writes: bool = True) -> WarmStart:
        # hashlib and tempfile, which loads without a cache do not need
        from graphcore.runtime.warm_start.start import WarmStart

        return WarmStart(folder, self._starter, (self.precision, self.optimize), writes)

    def _loaded(
        self,
        model: Graph | onnx.ModelProto | bytes | str | os.PathLike[str],
        weights: Mapping[str, Array],
        prepack: Prepack,
        warm: WarmStart | None,
        reading: Reading,
    ) -> Model:
        """Return the Model of a model that is read. warm: keeps what a later load needs."""
        if isinstance(model, Graph):
            return self._load_graph(model, weights, prepack, warm)
        return self._load_file(model, weights, prepack, warm, reading)

    def _load_file(
        self,
        model: onnx.ModelProto | bytes | str | os.PathLike[str],
        weights: Mapping[str, Array],
        prepack: Prepack,
        warm: WarmStart | None,
        reading: Reading,
    ) -> Model:
        """Return the Model of a file: as it is, or lowered."""
        from graphcore.runtime.direct import start  # onnx, which graphs that are built do not need

        opened = start.Opened(model, reading.links, reading.limits)

        def read() -> Graph:
            if opened.is_overwritten():
                raise ModelError(f"load: {opened.name} was changed since it was loaded", help="load it again")
            graph = self._read(opened, reading)
            opened.forget()
            return graph

        may_stay = self._is_cpu and self.optimize != "exact"
        if may_stay and warm is None and not weights and not self._starter.libraries:
            found = start.found(opened, prepack, keeps_halves=self.precision is None)
            if not isinstance(found, str):
                made = start.started(
                    found, opened, self._starter, lambda: self._load_graph(read(), {}, prepack, None), read
                )
                if made is not None:
                    return made
        return self._load_opened(opened, weights, prepack, warm, reading)

    def _load_opened(
        self, opened: Opened, weights: Mapping[str, Array], prepack: Prepack, warm: WarmStart | None, reading: Reading
    ) -> Model:
        """Return the Model of a file that is lowered."""
        try:
            graph = self._read(opened, reading)
            opened.watch.look()
            return self._load_graph(graph, weights, prepack, warm)
        except GraphcoreError:
            raise
        except Exception as error:  # of a model that ONNX's checks let through and that makes no sense
            raise ModelError(
                f"load: the model cannot be lowered: {type(error).__name__}: {error}",
                help="check the model with onnx.checker, full_check=True",
            ) from error

    def _read(self, opened: Opened, reading: Reading) -> Graph:
        """Return the graph of a model, typed by what the libraries of operators say."""
        from graphcore.onnx.read.reader import read  # onnx, which graphs that are built do not need

        if not self._starter.libraries:
            return read(opened, custom_ops=reading.custom_ops)
        from graphcore.runtime.ort.operators import InstalledOperators  # onnx, as above

        libraries = self._starter.libraries
        return read(opened, runtime=lambda: InstalledOperators(libraries), custom_ops=reading.custom_ops)

    def _load_graph(
        self,
        graph: Graph,
        weights: Mapping[str, Array],
        prepack: Prepack,
        warm: WarmStart | None,
    ) -> Model:
        graph.verify()
        if weights:
            graph = with_weights(graph, weights)
        buffers = {name: held.buffer for name, held in graph.buffers.items()}
        shown = exposed(graph)
        whole = lowering.inlined(lowering.resolved(shown, self.target, runtime()))
        graph, sites = python_ops.prepared(whole)
        known = minima(graph.metadata)
        inputs = {
            name: type_ if name in buffers else with_minima(type_, known)
            for name, type_ in model_types.noted({s.name: s.type for s in graph.inputs}, graph.metadata).items()
        }
        outputs = model_types.noted(graph.output_types, graph.metadata)
        uses_transport = transport_dtypes.is_needed(inputs, outputs)
        source = transport_dtypes.with_transport_outputs(graph) if uses_transport else graph
        plan = None
        if self.target == "openvino":
            plan = openvino.planned(source, self._lowered, self.precision, runtime(), has_buffers=bool(buffers))
        lowered = self._lowered(source, self.target) if plan is None else plan.lowered
        defaults = TENSOR_CORES if TARGETS[self.target].tensor_cores and multiplies_in_tf32(source, lowered) else EXACT
        constants = [s for s in lowered.symbols if isinstance(s.producer, Constant)]
        disabled = (
            *SLOWER,
            *sessions.quadratic(len(constants), lambda: sessions.different(constants)),
            *broken(lowered),
            *(idle_in(lowered) if self._is_cpu else ()),
        )
        entries = session_memory.entries(lowered, prepack)
        prepacks = entries != session_memory.OFF
        packing = {**entries, **memory(lowered)}
        in_steps = TARGETS[self.target].is_host and any(buffer.in_place for buffer in buffers.values())
        if in_steps and "enable_mem_pattern" not in self._starter.attributes:
            # A plan of the memory of each prompt's length would be kept, and used once.
            packing["enable_mem_pattern"] = False
        # What Python computes has another number in each process.
        cache = None if warm is None or sites or plan is not None else warm.cache(disabled, packing)

        starter = self._starter

        def begin(more: Mapping[str, Any]) -> tuple[onnxruntime.InferenceSession, object]:
            started = sessions.start(
                lowered,
                lambda: python_ops.options(starter.options({**packing, **more}), lowered, starter.libraries),
                lambda model, options: starter.create(model, options, disabled, defaults, runs_often=in_steps),
                None if more else cache,
            )
            require_started(started[0], self.providers)
            if prepacks:
                session_memory.release(session_memory.reordered(lowered))
            return started[0], (started[1], sites)

        def again(given: Graph) -> Graph:
            made, _ = python_ops.prepared(given)
            return self._lowered(transport_dtypes.with_transport_outputs(made) if uses_transport else made, self.target)

        start: Start = begin if plan is None else self._planned(plan, source, sites)
        try:
            kept = kept_of(buffers, outputs_of(shown), inputs, outputs, lowered)
            model = Model(
                graph.name, start, inputs, outputs, None, uses_transport, lowered, whole, self.load, kept, lower=again
            )
        except ModelError as error:
            raise python_ops.undeclared(lowered, error) from error.__cause__
        if warm is not None and cache is not None:
            warm.keep(model, cache, packing)
        return model

    @property
    def _is_cpu(self) -> bool:
        return self.providers == ("CPUExecutionProvider",)

    def _lowered(self, graph: Graph, target: TargetName) -> Graph:
        return lowering.lower(graph, target, self.precision, runtime=runtime(), optimize=self.optimize)

    def _planned(self, plan: openvino.Plan, source: Graph, sites: object) -> Start:
        """Return what starts the sessions of a plan: OpenVINO's, and the CPU provider's for the graph or for a call."""

        starter = self._starter

        def begun(graph: Graph, hint: str, more: Mapping[str, Any]) -> tuple[onnxruntime.InferenceSession, object]:
            providers = self.providers if hint else ("CPUExecutionProvider",)
            defaults = {openvino.PROVIDER: openvino.options(hint)}
            started = sessions.start(
                graph,
                lambda: python_ops.options(starter.options(more), graph, starter.libraries),
                lambda model, options: starter.create(
                    model, options, (*SLOWER, *broken(graph)), defaults, providers=providers
                ),
            )
            require_started(started[0], providers)
            return started

        def start(more: Mapping[str, Any]) -> tuple[onnxruntime.InferenceSession, object]:
            try:
                session, keep = begun(plan.lowered, plan.hint, more)
                used = plan
            except ModelError as error:  # OpenVINO claims nodes that it then cannot read
                if not plan.hint:
                    raise
                if openvino.PROVIDER in starter.provider_options:
                    openvino.require_options(starter.provider_options[openvino.PROVIDER], lambda g: begun(g, "f32", {}))
                used = openvino.refused(plan, error)
                session, keep = begun(self._lowered(source, "cpu"), "", more)
            kept = [keep, sites]

            def host() -> onnxruntime.InferenceSession:
                session, keep = begun(self._lowered(source, "cpu"), "", {})
                kept.append(keep)
                return session

            sizes = None
            if used.sizes is not None:
                sizes, keep = begun(used.sizes, "", {})
                kept.append(keep)
            return openvino.Compiled(session, used, host, sizes), kept

        return start

    def _load_compiled(self, model: onnx.ModelProto | bytes | str | os.PathLike[str]) -> Model:
        name, content = content_of(model)
        starter = self._starter

        def start(more: Mapping[str, Any]) -> tuple[onnxruntime.InferenceSession, object]:
            options = starter.options(more)
            try:
                session = starter.create(content, options)
            except Exception as error:
                raise refused(name, error) from error
            require_started(session, self.providers)
            return session, None

        started = start({})
        return Model(name, start, *model_types.types_of(started[0]), started)
