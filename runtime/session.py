"""Sessions: a graph or a file becomes a Model that runs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, Literal

from graphcore.arrays.casting import Array
from graphcore.arrays.external_data import ExternalData, links_of
from graphcore.arrays.resource_limits import Limits, limits_of
from graphcore.errors import GraphError, ModelError
from graphcore.ir.graph import Graph, Optimize, Precision, TargetName
from graphcore.runtime.lowering import LEVELS, PRECISIONS
from graphcore.runtime.model import Model
from graphcore.runtime.ort import memory as session_memory
from graphcore.runtime.ort.memory import Prepack, checked
from graphcore.runtime.ort.options import (
    Starter,
    check_attributes,
    checked_libraries,
    config_entries,
    options_of,
    resolve,
)
from graphcore.runtime.sessions import loading
from graphcore.runtime.sessions.loading import LoadOptions, require_format
from graphcore.runtime.sessions.plan import Engine
from graphcore.runtime.sessions.warm_start import prepared as beside
from graphcore.support.escaping import suggestion

if TYPE_CHECKING:
    import onnx

    from graphcore.custom_ops.custom_op import CustomOp


class InferenceSession:
    """Loads graphs and models for one or more providers.

    providers: by preference, among those installed: "cpu", "cuda", "openvino" or onnxruntime's names; by default "cpu".
    precision: "exact" rounds after every op, "fast" leaves consecutive ones on floats narrower than float32 in float32;
    None, the default, is "exact" for what is built, and leaves float16 and bfloat16 in models that others wrote to
    onnxruntime's own kernels (docs/numbers.md).
    optimize: "exact" runs the passes of `Graph.optimize` on what is loaded, bit for bit; "all" looks for what the
    provider runs faster in another form, whose sums in float32 may come in another order, and runs the passes where
    there is some (docs/howto/optimize.md); "off" does neither. huge_pages: whether what a start puts in order is
    gathered in large pages; None does where buffers are written in place, as by decoders, after some calls
    (docs/howto/fast_calls.md).
    provider_options: options of onnxruntime's providers by name, such as
    `{"cuda": {"device_id": 1, "enable_cuda_graph": True}}`. config: entries of onnxruntime's session configuration,
    such as `{"session.intra_op.allow_spinning": False}`, whose names onnxruntime does not check. session_options:
    attributes of `onnxruntime.SessionOptions`, such as `intra_op_num_threads=2`: docs/howto/fast_calls.md.
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
        starter = Starter(self.providers, by_provider, session_options, entries, self.huge_pages, libraries)
        starter.options({})  # which raises for a value that an attribute does not take
        self._engine = Engine(starter, precision, optimize)

    @property
    def target(self) -> TargetName:
        """Return the target that graphs are lowered for."""
        return self._engine.target

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
        docs/howto/fast_start.md. prepared: start from what `prepare` wrote beside the file, where that is there and of
        this file; for folders of your own alone, since it is not checked as a model is. external_data,
        external_data_root: whether and where symbolic links are followed to the data of a model in a file, as in
        `Graph.load`. limits:
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
        allowed: Set[str] = frozenset()
        if custom_ops:
            # what declares operators, which most loads do not need
            from graphcore.custom_ops.declaration import called

            allowed = called(custom_ops)
        links, bounds = links_of(external_data, external_data_root), limits_of(limits)
        options = LoadOptions(weights or {}, prepack, cache_dir, prepared, links, bounds, allowed, format)
        return loading.load(model, self._engine, options, self.load)

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

        def load(folder: str) -> Model:
            return self.load(
                path,
                prepack=prepack,
                cache_dir=folder,
                external_data=external_data,
                external_data_root=external_data_root,
            )

        def find(folder: str) -> Model | None:
            options = LoadOptions(prepack=prepack, cache_dir=folder, links=links)
            return loading.kept(loading.Load(path, self._engine, options, self.load))

        beside.prepare(path, load, find)
