"""The methods of Graph that need more than a graph, for checkers: `graphcore.graph_methods` attaches them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from graphcore.arrays.external_data import ExternalData
from graphcore.arrays.resource_limits import Limits
from graphcore.custom_ops.custom_op import CustomOp
from graphcore.ir.buffers import Buffer
from graphcore.ir.graph import Graph, Optimize, Precision, TargetName
from graphcore.ir.symbol import Match, Node, Symbol
from graphcore.promotion import PromotionSystem
from graphcore.promotion.rules import Scalar
from graphcore.runtime.inspection.placement import Placement
from graphcore.runtime.inspection.profiling import Profile
from graphcore.runtime.quantizer.report import Report
from graphcore.support.progress import ProgressOption
from graphcore.types.tensor_types import DimLike, Type

class GraphMethods:
    """The base of Graph for checkers alone."""

    def __setitem__(self, key: str, value: Any) -> None:
        """Store to a buffer: `graph["cache"] = value`, see `ops.buffer_store`."""

    def full(self, value: Scalar, shape: Sequence[DimLike], dtype: object = None) -> Symbol:
        """Return a tensor of `shape`, which may have named dims, with `value` everywhere. See `ops.full`."""

    def range(
        self, start: Any, stop: Any = None, step: Any = 1, *, dtype: object = None, out_dim: Any = None
    ) -> Symbol:
        """Return the numbers from `start` up to `stop`, `step` apart. See `ops.range`."""

    def op(
        self,
        op_type: str,
        inputs: Sequence[Symbol | np.ndarray[Any, Any] | Scalar | None] = (),
        attributes: Mapping[str, Any] | None = None,
        out_types: Sequence[Type] | None = None,
        *,
        domain: str = "",
    ) -> tuple[Symbol, ...]:
        """Emit any operator of any domain as it is: no promotion, no check of operands."""

    def subgraph(
        self, name: str, fn: Callable[..., Any], types: Mapping[str, Type] | Sequence[Type] = ()
    ) -> Callable[..., Any]:
        """Return a function of declared operands, traced now, to be called any number of times."""

    @staticmethod
    def load(
        source: str | os.PathLike[str] | bytes | onnx.ModelProto,
        *,
        implicit_casts: bool = False,
        promotion: str | PromotionSystem | None = None,
        external_data: ExternalData = "plain",
        external_data_root: str | os.PathLike[str] | None = None,
        limits: Limits | None = None,
        custom_ops: Iterable[str | CustomOp[..., Any]] = (),
    ) -> Graph:
        """Read an ONNX model as a Graph."""

    def __call__(
        self,
        *operands: Any,
        implicit_casts: bool = False,
        as_function: bool = False,
        layer: str | None = None,
        **named: Any,
    ) -> Any:
        """Build this graph's nodes in the graph of the operands, on them, and return what its outputs are there."""

    def extract(self, inputs: Any = None, outputs: Any = ()) -> Graph:
        """Return a new graph of the part that computes some values from others."""

    def rename(
        self,
        names: Mapping[str, str] | None = None,
        *,
        values: Mapping[str, str] | None = None,
        dims: Mapping[str, str] | None = None,
    ) -> Graph:
        """Return a new graph with other names."""

    def with_dims(self, shapes: Mapping[str, Sequence[DimLike]] | None = None, **dims: DimLike) -> Graph:
        """Return a new graph whose inputs have other dims; everything in it is typed again."""

    def with_inputs(self, *inputs: str | Symbol, **more: Type | Buffer) -> Graph:
        """Return a new graph with these inputs, in this order."""

    def with_outputs(self, *outputs: str | Symbol, **named: str | Symbol) -> Graph:
        """Return a new graph with these outputs, in this order; what only others needed goes."""

    def with_constants(self, values: Mapping[str, Any] | None = None, **named: Any) -> Graph:
        """Return a new graph with constants in place of some inputs."""

    def with_weights(self, weights: Mapping[str, Any]) -> Graph:
        """Return a new graph with other arrays for some weights, by reference."""

    def verify(self) -> None:
        """Check that the graph is complete and sound. Raises `GraphError` that says what is not."""

    def replace(self, what: str | Symbol | Node, fn: Callable[..., Any]) -> Graph:
        """Return a new graph in which something else stands for a value, or for a node. This graph stays."""

    def replace_all(
        self,
        pattern: str | Callable[..., Any],
        fn: Callable[..., Any],
        *,
        where: Callable[[Match], bool] | None = None,
        missing_ok: bool = False,
    ) -> Graph:
        """Return a new graph in which something else stands for all that a pattern describes. This graph stays."""

    def find_all(
        self, pattern: str | Callable[..., Any], *, where: Callable[[Match], bool] | None = None
    ) -> list[Match]:
        """Return the parts of the graph that a pattern describes: what `replace_all` would replace."""

    def fold_preprocessing(self) -> Graph:
        """Return a new graph whose first products do the affine steps on the way from the inputs to them."""

    def astype(
        self, dtype: object, *, source: object = None, keep: str | Iterable[str] = (), keep_io: bool = True
    ) -> Graph:
        """Return a new graph that computes in another dtype of floats."""

    def diff(self, other: Graph) -> Any:
        """Return what differs between this graph and another one; printed, lines with "-", "+" and "~"."""

    def copy(self) -> Graph:
        """Return an independent graph of the same nodes; arrays are shared. Its outputs may be set anew."""

    def optimize(
        self,
        passes: Sequence[str | Callable[[Graph], Graph]] | None = None,
        *,
        limit: int = 1 << 20,
        keep: str | Iterable[str] = (),
    ) -> Graph:
        """Return a new graph that computes the same with fewer nodes, bit for bit but for which NaN a NaN is."""

    def to_onnx(
        self,
        *,
        target: TargetName = "cpu",
        precision: Precision | None = None,
        inline: bool = False,
        optimize: Optimize | None = None,
        opset: int | None = None,
        ir_version: int | None = None,
        runtime: str | None = None,
    ) -> onnx.ModelProto:
        """Return the graph as an `onnx.ModelProto` with its weights inside."""

    def export(
        self,
        path: str | os.PathLike[str],
        *,
        target: TargetName = "cpu",
        precision: Precision | None = None,
        external_data: bool | None = None,
        inline: bool = False,
        optimize: Optimize | None = None,
        opset: int | None = None,
        ir_version: int | None = None,
        runtime: str | None = None,
        progress: ProgressOption = False,
    ) -> None:
        """Write the graph as an ONNX file, atomically: a whole file or none."""

    def __str__(self) -> str: ...
    def save_html(
        self,
        path: str | os.PathLike[str],
        *,
        title: str = "",
        targets: Sequence[TargetName] | None = None,
        precision: Precision | None = None,
        optimize: Optimize = "all",
        profile: Profile | None = None,
        placement: Placement | None = None,
        quantization: Report | None = None,
        against: Graph | None = None,
        values: Mapping[str, Any] | None = None,
        statistics: bool = True,
    ) -> None:
        """Write the graph as one HTML file, whole or not at all: a page to look into it that asks no network."""

    def view(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        open: bool = True,
        title: str = "",
        targets: Sequence[TargetName] | None = None,
        precision: Precision | None = None,
        optimize: Optimize = "all",
        profile: Profile | None = None,
        placement: Placement | None = None,
        quantization: Report | None = None,
        against: Graph | None = None,
        values: Mapping[str, Any] | None = None,
        statistics: bool = True,
    ) -> str:
        """Write the page of the graph, show it in the browser, and return the path of the file."""

    def _repr_html_(self) -> str: ...
    def _repr_svg_(self) -> str | None: ...
