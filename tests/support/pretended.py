"""Pretend that another release of onnxruntime is installed, with another list of kernels."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import onnxruntime
import pytest
from onnxruntime.capi import onnxruntime_pybind11_state as state

from graphcore import DType, Graph, TensorType
from graphcore.ir.symbol import Node
from graphcore.runtime.lowering import lower
from graphcore.runtime.lowering.targets.legality import BY_RESULT, PRIMARY
from graphcore.runtime.lowering.targets.releases import Runtime, table_of
from graphcore.runtime.ort import release
from tests.support.every_op import CASES, graph_of

CPU = "CPUExecutionProvider"

Pretend = Callable[..., None]


def kernel(
    op_name: str, types: Sequence[str], versions: tuple[int, int] = (1, (1 << 31) - 1), **rest: Any
) -> SimpleNamespace:
    """An entry of the list of kernels, of one type parameter."""
    entry = {"op_name": op_name, "domain": "", "provider": CPU, "version_range": versions}
    return SimpleNamespace(**{**entry, "type_constraints": {"T": list(types)}, **rest})


@functools.cache
def listed() -> tuple[SimpleNamespace, ...]:
    """Return the kernels that the installed build lists, as entries that can be changed."""
    names = ("op_name", "domain", "provider", "version_range", "type_constraints")
    return tuple(SimpleNamespace(**{name: getattr(k, name) for name in names}) for k in state.get_all_opkernel_def())


def lacking(*lost: str) -> list[SimpleNamespace]:
    """The list without some operators, or without one dtype of them: "Where", "MatMul int32"."""
    whole = {name for name in lost if " " not in name}
    parts: dict[str, set[str]] = {}
    for name in lost:
        op_type, _, dtype = name.partition(" ")
        parts.setdefault(op_type, set()).add(f"tensor({ {'float32': 'float', 'float64': 'double'}.get(dtype, dtype) })")
    items = []
    for k in listed():
        if k.domain or k.op_name not in parts:
            items.append(k)
        elif k.op_name not in whole:
            results = {p: [t for t in types if t not in parts[k.op_name]] for p, types in k.type_constraints.items()}
            items.append(SimpleNamespace(**{**vars(k), "type_constraints": results}))
    return items


def pretended(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pretend]:
    """Pretend that a release is installed, with its kernels: a list, or a function that returns one."""
    listed()

    def pretend(kernels: Any = None, version: str = "99.0") -> None:
        monkeypatch.setattr(onnxruntime, "__version__", version)
        if kernels is not None:
            answer = kernels if callable(kernels) else lambda: kernels
            monkeypatch.setattr(state, "get_all_opkernel_def", answer)
        release.runtime.cache_clear()

    yield pretend
    release.runtime.cache_clear()


def lost_kernels(graph: Graph) -> set[str]:
    """The kernels that a graph needs as it is lowered, of those that the table has and the installed build does not."""
    runtime = release.runtime()
    if runtime.registry is None:
        return set()
    rows = _rows(runtime)
    results = set()
    for node in nodes(lower(graph, "cpu", runtime=runtime, optimize="all")):
        dtype = deciding(node)
        if node.domain or dtype is None or dtype not in rows.get(node.op_type, ()):
            continue
        there = runtime.registry.dtypes(CPU, node.op_type, runtime.opset)
        if there is not None and dtype not in there:
            results.add(f"{node.op_type} {dtype}")
    return results


@functools.lru_cache(maxsize=1)
def _rows(runtime: Runtime) -> dict[str, frozenset[DType]]:
    return table_of("cpu").kernels(runtime)


def nodes(graph: Graph) -> Iterator[Node]:
    for node in graph.nodes:
        yield node
        for value in node.attributes.values():
            if isinstance(value, Graph):
                yield from nodes(value)


def deciding(node: Node) -> DType | None:
    """The dtype by which a node's kernel is chosen."""
    position = PRIMARY.get(node.op_type, 0)
    chosen = node.outputs[0] if node.op_type in BY_RESULT or position >= len(node.inputs) else node.inputs[position]
    return chosen.type.dtype if chosen is not None and isinstance(chosen.type, TensorType) else None


@functools.cache
def operators_of(dtype: DType) -> dict[str, frozenset[str]]:
    """The operators that each op needs on the installed release, by name."""
    results = {}
    for name, case in CASES.items():
        if dtype not in case.refused:
            graph, _, _ = graph_of([name], dtype)
            results[name] = frozenset(n.op_type for n in nodes(lower(graph, "cpu", runtime=release.runtime())))
    return results


def names_with(dtype: DType, lost: Iterable[str]) -> list[str]:
    operators = {name.partition(" ")[0] for name in lost}
    return [name for name, there in operators_of(dtype).items() if not operators.isdisjoint(there)]
