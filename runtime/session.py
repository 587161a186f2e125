"""Sessions: a graph or a file becomes a Model that runs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence, Set
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from graphcore.arrays.casting import Array
from graphcore.arrays.external_data import ExternalData, links_of
from graphcore.arrays.resource_limits import Limits, limits_of
from graphcore.errors import GraphError, ModelError
from graphcore.ir.graph import Graph, Optimize, Precision, TargetName
from graphcore.runtime.lowering import LEVELS, PRECISIONS
from graphcore.runtime.model import Model
from graphcore.runtime.ort import devices as session_devices
from graphcore.runtime.ort import memory as session_memory
from graphcore.runtime.ort.memory import Prepack, checked
from graphcore.runtime.ort.options import (
    SessionStarter,
    check_attributes,
    checked_libraries,
    config_entries,
    one_providers,
    options_of,
    resolve,
)
from graphcore.runtime.sessions import loading
from graphcore.runtime.sessions.loading import Load, require_format
from graphcore.runtime.sessions.plan import Engine, LoadOptions
from graphcore.runtime.sessions.warm_start import prepared as prepared_files
from graphcore.support.escaping import choices

if TYPE_CHECKING:
    import onnx

    from graphcore.custom_ops.custom_op import CustomOp


class InferenceSession:
    """Loads graphs and models for one or more providers.

    Args:
        providers: Names of installed providers, by preference: "cpu", "cuda", "openvino" or onnxruntime's names. The
            default is "cpu".
        devices: Instead of providers: a list of onnxruntime's `OrtEpDevice`, by preference, or the policy by which it
            chooses among `onnxruntime.get_ep_devices()`: "default", "prefer_cpu", "prefer_gpu", "prefer_npu",
            "max_performance" (a GPU), "max_efficiency" or "min_power" (an NPU). A policy takes the first device of that
            type, if there is one, then the first CPU, then the CPU provider: discrete GPUs before others, then devices
            of the provider's vendor, then by the provider's name. Models are lowered for the first provider, and for
            the CPU if graphcore has no table of it; `load` raises an error if onnxruntime chooses otherwise.
        precision: "exact" rounds after every op; "fast" computes consecutive ops on floats narrower than float32 in
            float32; on OpenVINO all floats are in float16 or bfloat16 (docs/howto/openvino.md). None, the default, is
            "exact" for built graphs, and leaves float16 and bfloat16 of imported models to onnxruntime's kernels
            (docs/numbers.md).
        optimize: "exact" runs the passes of `Graph.optimize`, whose results are equal bit for bit; "all" also replaces
            nodes by operators that the provider runs faster, which may add float32 numbers in another order
            (docs/howto/optimize.md); "off" does neither.
        huge_pages: Whether to collapse the memory of prepacked weights into huge pages. None does so after some calls
            if buffers are written in place, as decoders do (docs/howto/fast_calls.md).
        provider_options: Options of onnxruntime's providers by name, such as
            `{"cuda": {"device_id": 1, "enable_cuda_graph": True}}`.
        config: Entries of onnxruntime's session configuration, such as `{"session.intra_op.allow_spinning": False}`.
            onnxruntime does not check their names.
        custom_op_libraries: Paths of shared libraries with custom operators, which run with all your rights. They also
            tell `load` the types of such nodes (docs/custom_ops.md).
        session_options: Attributes of `onnxruntime.SessionOptions`, such as `intra_op_num_threads=2`.
            docs/howto/fast_calls.md says which pay.

    Raises:
        RunError: If a provider is not installed.
        GraphError: For an unknown option or an invalid value.
    """

    @one_providers
    def __init__(
        self,
        providers: str | Sequence[str] | None = None,
        *,
        devices: str | Sequence[Any] | None = None,
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
                f"InferenceSession: there is no precision {precision!r}", help=choices(precision, PRECISIONS)
            )
        if optimize not in LEVELS:
            raise GraphError(
                f"InferenceSession: there is no level of optimization {optimize!r}", help=choices(optimize, LEVELS)
            )
        self.precision = precision
        self.optimize = optimize
        self.huge_pages = checked(huge_pages)
        if devices is not None and providers is not None:
            raise GraphError(
                f"InferenceSession: got providers {providers!r:.80} and devices {devices!r:.80}",
                help="give one of them: devices have providers",
            )
        selection = None if devices is None else session_devices.select(devices)
        self.providers = resolve(providers) if selection is None else selection.providers
        by_provider = options_of(self.providers, provider_options or {})
        check_attributes(session_options)
        entries = config_entries(config or {})
        libraries = checked_libraries(custom_op_libraries)
        starter = SessionStarter(
            self.providers, by_provider, session_options, entries, self.huge_pages, libraries, selection
        )
        starter.options({})  # raises for an invalid value
        self._engine = Engine(starter, precision, optimize)

    @property
    def target(self) -> TargetName:
        """The target that graphs are lowered for."""
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
        prepared: bool | None = None,
        external_data: ExternalData = "plain",
        external_data_root: str | os.PathLike[str] | None = None,
        limits: Limits | None = None,
        custom_ops: Iterable[str | CustomOp[..., Any]] = (),
        format: Literal["onnx", "ort"] | None = None,
        component: str | None = None,
    ) -> Model:
        """Return a Model that runs.

        Args:
            model: A Graph, or an ONNX model as a path, bytes or a ModelProto, which `Graph.load` reads. It is lowered
                for the first provider. From a model package, a folder, onnxruntime chooses the variant for the
                providers. A model in onnxruntime's own format (a path that ends in ".ort", or format="ort") runs
                without checks: load only those that you trust.
            weights: Arrays that replace weights of the graph, by name, of the same types. As a rule they are not
                copied: do not change them while the Model lives.
            prepack: Whether kernels prepack weights, which takes a second copy of them. "auto" does unless the shapes
                show that only one row is multiplied with each matrix.
            cache_dir: A folder for optimised graphs, from which the next load on the CPU starts
                (docs/howto/fast_start.md).
            prepared: True starts from the files that `prepare` wrote beside the model, if they exist and match it. Use
                it only for your own folders: these files are not checked like models. None and True also write the
                optimised graph of a decoder's file beside it, without its weights, and start from that the next time
                (docs/howto/fast_start.md). False does neither.
            external_data: Whether symbolic links to the external data of a model are followed, as in `Graph.load`.
            external_data_root: The folder that must contain the external data, as in `Graph.load`.
            limits: Limits on models other than Graphs, by default `gc.Limits()`. Loads with other limits are not
                cached.
            custom_ops: Custom ops whose Python functions the model may call, as in `Graph.load`; empty by default.
            format: "onnx" or "ort"; None decides by the path.
            component: The part of a model package to load; None if it has only one.

        Raises:
            ModelError: If the model cannot be read or run.
            ResourceLimitError: If the model exceeds a limit.
            GraphError: If the graph is unfinished, or an operator has no kernel.
            RunError: If a provider does not start.
        """
        if weights is not None and not isinstance(weights, Mapping):
            raise ModelError(
                f"load: weights must be a mapping of names to arrays, got {type(weights).__name__}",
                help='give a mapping: {"w": array}, or gc.load_tensors(path)',
            )
        session_memory.require(prepack)
        require_format(format)
        allowed: Set[str] = frozenset()
        if custom_ops:
            # declarations of operators, which most loads do not need
            from graphcore.custom_ops.declaration import callable_labels

            allowed = callable_labels(custom_ops)
        links, bounds = links_of(external_data, external_data_root), limits_of(limits)
        model = loading.chosen_model(model, component, self._engine.starter)
        options = LoadOptions(weights or {}, prepack, cache_dir, prepared, links, bounds, allowed, format)
        return loading.load(Load(model, self._engine, options, self.load))

    def prepare(
        self,
        path: str | os.PathLike[str],
        *,
        compiled: str | os.PathLike[str] | None = None,
        prepack: Prepack = "auto",
        external_data: ExternalData = "plain",
        external_data_root: str | os.PathLike[str] | None = None,
    ) -> None:
        """Write a folder beside a model's file, `path` + ".start", from which sessions with these options start.

        `load(path, prepared=True)` starts from this folder, and neither reads nor lowers the file, as with `cache_dir`.
        The folder is valid for this file at this path, and for the installed releases: after a change of either, the
        file is loaded without the folder. You can remove the folder at any time. Waits until the file is 2 s old.

        Args:
            path: The file of the model.
            compiled: The file of a model to write instead of the folder, in which nodes `EPContext` of com.microsoft
                have what the providers compiled. Sessions of the same providers `load` it as any other model.
            prepack: As in `load`.
            external_data: As in `load`.
            external_data_root: As in `load`.

        Raises:
            ModelError: If the model cannot be cached, or no provider compiles nodes of it, and as `load` with
                `cache_dir` raises.
        """
        if compiled is not None:
            graph = Graph.load(path, external_data=external_data, external_data_root=external_data_root)
            prepared_files.write_compiled(os.fsdecode(compiled), graph, self._engine)
            return
        links = links_of(external_data, external_data_root)
        load = partial(
            self.load, path, prepack=prepack, external_data=external_data, external_data_root=external_data_root
        )

        def find(folder: str) -> Model | None:
            options = LoadOptions(prepack=prepack, cache_dir=folder, links=links)
            return loading.load_cached(Load(path, self._engine, options, self.load))

        prepared_files.prepare(path, lambda folder: load(cache_dir=folder), find)
