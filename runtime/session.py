"""Sessions: where a graph or a file becomes a Model that runs."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import onnxruntime

from graphcore.arrays.casting import Array
from graphcore.errors import GraphcoreError, GraphError, ModelError
from graphcore.ir.buffers import exposed, outputs_of
from graphcore.ir.graph import Graph, Optimize, Precision, Target
from graphcore.ir.symbol import Constant
from graphcore.onnx.proto.model_proto import LIMIT
from graphcore.runtime import python_ops
from graphcore.runtime.buffers.state import kept_of
from graphcore.runtime.lowering import LEVELS, PRECISIONS, lower
from graphcore.runtime.lowering.functions import custom_ops
from graphcore.runtime.lowering.functions.inline import inlined
from graphcore.runtime.memory import prepacking
from graphcore.runtime.memory.huge_pages import checked, gathered
from graphcore.runtime.memory.prepacking import Prepack
from graphcore.runtime.model import Model, Start
from graphcore.runtime.openvino import session as openvino
from graphcore.runtime.ort import model_types, output_carriers, sessions
from graphcore.runtime.ort.providers import EXACT, TENSOR_CORES, options_of, require_started, resolve, target_of
from graphcore.runtime.ort.release import broken, memory, runtime
from graphcore.runtime.ort.sessions import refused
from graphcore.runtime.ort.tensor_cores import multiplies_in_tf32
from graphcore.runtime.replaced_weights import with_weights

if TYPE_CHECKING:
    import onnx

    from graphcore.runtime.warm_start import start as restart
    from graphcore.runtime.warm_start.cache import Cache

# Measured: the CPU kernel of the first is five times slower than what it replaces, the second gains nothing.
_SLOWER = ("SkipLayerNormFusion", "BiasGeluFusion")

# Products with weights that a node dequantises become ones that round the other operand to int8, unless told not to.
_EXACT_PRODUCTS = {"session.qdq_matmulnbits_accuracy_level": "0"}

# Measured: it compares initializers pairwise, three quarters of the start of a session with 10,000 of them.
_QUADRATIC = ("ConstantSharing",)
_MANY = 1000


_COUNTS = frozenset({"intra_op_num_threads", "inter_op_num_threads"})
_MOST_THREADS = 4096
"""onnxruntime starts as many as it is told, if that takes an hour and all memory."""


class InferenceSession:
    """Loads graphs and models for one or more providers.

    providers: by preference, among those installed: "cpu", "cuda", "openvino" or onnxruntime's names; by default "cpu".
    precision: "exact" rounds after every op, "fast" leaves consecutive ones on floats narrower than float32 in float32.
    optimize: "exact" runs the passes of `Graph.optimize` on what is loaded, bit for bit; "all" looks for what the
    provider runs faster in another form, whose sums in float32 may come in another order, and runs the passes where
    there is some (docs/passes.md); "off" does neither. huge_pages: whether what a start puts in order is gathered in
    large pages; None does where buffers are written in place, as by decoders (docs/running.md).
    provider_options: options of onnxruntime's providers by name, such as
    `{"cuda": {"device_id": 1, "enable_cuda_graph": True}}`. config: entries of onnxruntime's session configuration,
    such as `{"session.intra_op.allow_spinning": False}`, whose names onnxruntime does not check. session_options:
    attributes of `onnxruntime.SessionOptions`, such as `intra_op_num_threads=2`. docs/running.md says which pay.

    Raises `RunError` for a provider that is not installed, `GraphError` for an option that does not exist or a value it
    does not take.
    """

    def __init__(
        self,
        providers: str | Sequence[str] | None = None,
        *,
        precision: Precision = "exact",
        optimize: Optimize = "all",
        huge_pages: bool | None = None,
        provider_options: Mapping[str, Mapping[str, Any]] | None = None,
        config: Mapping[str, str | int | bool] | None = None,
        **session_options: Any,
    ) -> None:
        if precision not in PRECISIONS:
            raise GraphError(
                f"InferenceSession: there is no precision {precision!r}", help=f"use one of {', '.join(PRECISIONS)}"
            )
        if optimize not in LEVELS:
            raise GraphError(
                f"InferenceSession: there is no level of optimization {optimize!r}",
                help=f"use one of {', '.join(LEVELS)}",
            )
        self.precision = precision
        self.optimize = optimize
        self.huge_pages = checked(huge_pages)
        self.providers = resolve(providers)
        self._provider_options = options_of(self.providers, provider_options or {})
        _check_options(session_options)
        self._options = session_options
        self._config = _entries(config or {})
        self._session_options({})

    @property
    def target(self) -> Target:
        """What graphs are lowered to."""
        return target_of(self.providers[0])

    def __repr__(self) -> str:
        return f"<InferenceSession on {', '.join(self.providers)}, {self.precision}>"

    def load(
        self,
        model: Graph | onnx.ModelProto | bytes | str | os.PathLike[str],
        weights: Mapping[str, Array] | None = None,
        *,
        prepack: Prepack = "auto",
        cache_dir: str | os.PathLike[str] | None = None,
    ) -> Model:
        """A Model that runs.

        model: a Graph, or an ONNX model as a path, bytes or a ModelProto, which `Graph.load` reads; it is lowered for
        the first provider. A model in onnxruntime's own format (.ort) is run as it is. weights: arrays to use in place
        of the graph's weights, by name, of the same types. The arrays of weights are not copied as a rule: leave them
        as they are while the Model lives. prepack: whether kernels put weights into an order of their own, which takes
        a second copy of them: "auto" does unless the shapes tell that one row goes through each matrix. cache_dir: a
        folder in which the graph is kept as onnxruntime has optimised it, for the next start on the CPU; see
        docs/running.md.

        Raises `ModelError` for what cannot be read or run, `GraphError` for an
        unfinished graph or an operator that no kernel computes, `RunError` where a provider does not start.
        """
        if weights is not None and not isinstance(weights, Mapping):
            raise ModelError(
                f"load: weights are a {type(weights).__name__}, no arrays by name",
                help='give a mapping: {"w": array}, or gc.load_tensors(path)',
            )
        prepacking.require(prepack)
        source = None
        if cache_dir is not None and not weights and not _is_compiled(model):
            from graphcore.runtime.warm_start import start as restart

            source = self._source(model, prepack, cache_dir)
            found = None if source is None else restart.restarted(source, self, prepack)
            if found is not None:
                return found
        if isinstance(model, Graph):
            return self._load_graph(model, weights or {}, prepack, cache_dir, source)
        if _is_compiled(model):
            if weights:
                raise ModelError("load: weights can be given for a graph or an ONNX model only", help="leave them out")
            return self._load_compiled(model)
        try:
            return self._load_graph(Graph.load(model), weights or {}, prepack, cache_dir, source)
        except GraphcoreError:
            raise
        except Exception as error:  # of a model that ONNX's checks let through and that makes no sense
            raise ModelError(
                f"load: the model cannot be lowered: {type(error).__name__}: {error}",
                help="check the model with onnx.checker, full_check=True",
            ) from error

    def _session_options(self, more: Mapping[str, Any]) -> onnxruntime.SessionOptions:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4  # failures come as exceptions
        for name, value in {**_EXACT_PRODUCTS, **self._options, **more, **self._config}.items():
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

    def _create(
        self,
        model: bytes | str,
        options: onnxruntime.SessionOptions,
        disabled: Sequence[str] = _SLOWER,
        defaults: Mapping[str, Mapping[str, str]] = EXACT,
        providers: Sequence[str] | None = None,
        runs_often: bool = False,
    ) -> onnxruntime.InferenceSession:
        providers = providers or self.providers
        # The fallback would print on stdout, drop the options and run on another provider than was asked for.
        with gathered(runs_often if self.huge_pages is None else self.huge_pages):
            return onnxruntime.InferenceSession(
                model,
                options,
                providers=list(providers),
                provider_options=[{**defaults.get(p, {}), **self._provider_options.get(p, {})} for p in providers],
                disabled_optimizers=list(disabled),
                enable_fallback=0,
            )

    def _load_graph(
        self,
        graph: Graph,
        weights: Mapping[str, Array],
        prepack: Prepack,
        cache_dir: str | os.PathLike[str] | None,
        begun: restart.Source | None = None,
    ) -> Model:
        """begun: what a restart is to find."""
        graph.verify()
        if weights:
            graph = with_weights(graph, weights)
        buffers = {name: held.buffer for name, held in graph._buffers.items()}
        shown = exposed(graph)
        source_of = inlined(custom_ops.resolved(shown, self.target, runtime())), self
        graph, sites = python_ops.prepared(source_of[0])
        inputs = model_types.noted({s.name: s.type for s in graph.inputs}, graph._metadata)
        outputs = model_types.noted(graph.output_types, graph._metadata)
        is_carried = output_carriers.needed(inputs, outputs)
        source = output_carriers.carried(graph) if is_carried else graph
        plan = None
        if self.target == "openvino":
            plan = openvino.planned(source, self._lowered, self.precision, runtime(), has_buffers=bool(buffers))
        lowered = self._lowered(source, self.target) if plan is None else plan.lowered
        defaults = TENSOR_CORES if self.target == "cuda" and multiplies_in_tf32(source, lowered) else EXACT
        constants = sum(isinstance(s.producer, Constant) for s in lowered._symbols)
        disabled = (*_SLOWER, *_QUADRATIC) if constants >= _MANY else _SLOWER
        disabled = (*disabled, *broken(lowered))
        packing = {**prepacking.entries(lowered, prepack), **memory(lowered)}
        in_steps = self.target == "cpu" and any(buffer.in_place for buffer in buffers.values())
        # What Python computes has another number in each process.
        cache = None if cache_dir is None or sites or plan is not None else self._cache(cache_dir, disabled, packing)

        def begin(more: Mapping[str, Any]) -> tuple[onnxruntime.InferenceSession, object]:
            started = sessions.start(
                lowered,
                lambda: python_ops.options(self._session_options({**packing, **more}), lowered),
                lambda model, options: self._create(model, options, disabled, defaults, runs_often=in_steps),
                None if more else cache,
            )
            require_started(started[0], self.providers)
            return started[0], (started[1], sites)

        start: Start = begin if plan is None else self._planned(plan, source, sites)
        try:
            kept = kept_of(buffers, outputs_of(shown), inputs, outputs, lowered)
            model = Model(graph.name, start, inputs, outputs, None, is_carried, lowered, source_of, kept)
        except ModelError as error:
            raise python_ops.undeclared(lowered, error) from error.__cause__
        if begun is not None and cache is not None and cache.used is not None:
            from graphcore.runtime.warm_start import start as restart

            restart.keep(begun, model, cache, disabled, packing)
        return model

    def _lowered(self, graph: Graph, target: Target) -> Graph:
        return lower(graph, target, self.precision, runtime=runtime(), optimize=self.optimize)

    def _planned(self, plan: openvino.Plan, source: Graph, sites: object) -> Start:
        """What starts the sessions of a plan: OpenVINO's, and the CPU provider's for the graph or for a call."""

        def begun(graph: Graph, hint: str, more: Mapping[str, Any]) -> tuple[onnxruntime.InferenceSession, object]:
            providers = self.providers if hint else ("CPUExecutionProvider",)
            defaults = {openvino.PROVIDER: openvino.options(hint)}
            started = sessions.start(
                graph,
                lambda: python_ops.options(self._session_options(more), graph),
                lambda model, options: self._create(
                    model, options, (*_SLOWER, *broken(graph)), defaults, providers=providers
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
                if openvino.PROVIDER in self._provider_options:
                    openvino.require_options(self._provider_options[openvino.PROVIDER], lambda g: begun(g, "f32", {}))
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

    def _source(self, model: object, prepack: Prepack, folder: str | os.PathLike[str]) -> restart.Source | None:
        """What is known again when it is loaded again. Raises `ModelError`."""
        from graphcore.runtime.warm_start import graph_key
        from graphcore.runtime.warm_start import start as restart

        cache = self._cache(folder, prepack, restart.code())
        if cache is None:
            return None
        return graph_key.built_of(cache, model) if isinstance(model, Graph) else restart.file_of(cache, model)

    def _cache(self, folder: str | os.PathLike[str], *said: object) -> Cache | None:
        """Where optimised graphs are kept: on the CPU, where it was tried. Raises `ModelError` and `GraphError`."""
        from graphcore.runtime.warm_start.cache import Cache

        if "optimized_model_filepath" in self._options:
            raise GraphError(
                "load: with cache_dir the optimised graph goes there, and the option optimized_model_filepath says"
                " another place",
                help="leave one of them out",
            )
        options = sorted({**_EXACT_PRODUCTS, **self._options, **self._config}.items())
        made = Cache(folder, (self.providers, self._provider_options, self.precision, self.optimize, options, *said))
        return made if self.providers == ("CPUExecutionProvider",) else None

    def _load_compiled(self, model: onnx.ModelProto | bytes | str | os.PathLike[str]) -> Model:
        name, content = _content(model)

        def start(more: Mapping[str, Any]) -> tuple[onnxruntime.InferenceSession, object]:
            options = self._session_options(more)
            try:
                session = self._create(content, options)
            except Exception as error:
                raise refused(name, error) from error
            require_started(session, self.providers)
            return session, None

        started = start({})
        return Model(name, start, *model_types.types_of(started[0]), started)


def _is_compiled(model: object) -> bool:
    """Whether a model is in onnxruntime's own format, a flatbuffer."""
    if isinstance(model, (str, os.PathLike)) and os.path.isfile(model):
        with open(model, "rb") as file:
            head = file.read(8)
    else:
        head = bytes(model[:8]) if isinstance(model, (bytes, bytearray, memoryview)) else b""
    return head[4:8] == b"ORTM"


def _check_options(options: Mapping[str, Any]) -> None:
    fresh = onnxruntime.SessionOptions()
    known = [name for name in dir(fresh) if not name.startswith("_") and not callable(getattr(fresh, name))]
    unknown = [name for name in options if name not in known]
    if unknown:
        import difflib

        close = difflib.get_close_matches(unknown[0], known, 3, 0.4)
        raise GraphError(
            f"InferenceSession: onnxruntime has no session option {', '.join(map(repr, unknown))}",
            help=f"did you mean {' or '.join(close)}?" if close else "see the attributes of onnxruntime.SessionOptions",
        )
    for name in _COUNTS.intersection(options):
        count = options[name]
        if isinstance(count, bool) or (isinstance(count, int) and not 0 <= count <= _MOST_THREADS):
            raise GraphError(
                f"InferenceSession: {name}={count!r:.40} is no number of threads",
                help=f"give 1 to {_MOST_THREADS}, or 0 for one to each core",
            )


def _entries(config: Mapping[str, str | int | bool]) -> dict[str, str]:
    """Entries of the session's configuration as onnxruntime takes them. Raises `GraphError`."""
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


def _content(model: object) -> tuple[str, bytes | str]:
    """What errors call a finished model, and its bytes or its path."""
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
