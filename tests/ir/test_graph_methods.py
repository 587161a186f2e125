"""What checkers see of the methods that are attached to Graph and Symbol, held against the functions."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

from graphcore import Graph, Symbol, TensorType, decompile, graph_methods
from graphcore.analysis import bounds
from graphcore.build import insert
from graphcore.ir import graph, symbol
from graphcore.onnx.read import ir_models, reader
from graphcore.surgery import astype, interface, products, replacing, sizes
from graphcore.surgery.diff import compare

MODULES = (
    graph_methods,
    decompile,
    insert,
    ir_models,
    reader,
    astype,
    interface,
    products,
    replacing,
    sizes,
    compare,
    bounds,
)


def _stubs() -> Iterator[ast.FunctionDef]:
    """Yield the methods that Symbol declares for checkers, its own and those that it shares with Tensor."""
    tree = ast.parse(Path(symbol.__file__).read_text(encoding="utf-8"))
    for part in ast.walk(tree):
        if isinstance(part, ast.ClassDef) and part.name == "TensorMethods":
            yield from (each for each in part.body if isinstance(each, ast.FunctionDef))
        if isinstance(part, ast.ClassDef) and part.name == "Symbol":
            for block in part.body:
                if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING":
                    yield from (each for each in block.body if isinstance(each, ast.FunctionDef))


def _named() -> dict[str, str]:
    """Return the members of the base class of Graph for type checkers: functions by the names of the methods."""
    page = Path(graph.__file__).with_name("attached.pyi").read_text(encoding="utf-8")
    (base,) = (each for each in ast.parse(page).body if isinstance(each, ast.ClassDef))
    return {ast.unparse(n.targets[0]): ast.unparse(n.value) for n in base.body if isinstance(n, ast.Assign)}


def _functions() -> dict[str, ast.FunctionDef]:
    """Return the functions that are attached, by the names that they are attached under."""
    results = {}
    for module in MODULES:
        for each in ast.parse(inspect.getsource(module)).body:
            if isinstance(each, ast.FunctionDef) and each.name in vars(module):
                results[getattr(module, each.name).__qualname__] = each
    return results


def _signature(function: ast.FunctionDef) -> str:
    """Return a signature as written, without the type of `self`."""
    first = [*function.args.posonlyargs, *function.args.args][0]
    if first.arg == "self":
        first.annotation = None
    return f"{ast.unparse(function.args)} -> {ast.unparse(function.returns) if function.returns else ''}"


def test_base_of_graph_for_checkers_names_the_functions_that_are_attached() -> None:
    attached = {name.removeprefix("Graph.") for name in _functions() if name.startswith("Graph.")}
    assert attached == set(_named())
    spaces = {module.__name__.rpartition(".")[2]: module for module in MODULES} | {"staticmethod": staticmethod}
    for name, function in _named().items():
        assert inspect.unwrap(eval(function, spaces)) is inspect.unwrap(vars(Graph)[name]), name


def test_stubs_of_symbol_have_the_signatures_of_what_is_attached() -> None:
    stubs = {each.name: each for each in _stubs()}
    attached = {
        name.removeprefix("Symbol."): function for name, function in _functions().items() if name.startswith("Symbol.")
    }
    assert attached
    # To type checkers nothing is an attribute that is not listed.
    assert attached.pop("__getattr__", None) is None or "__getattr__" not in stubs
    assert not attached.keys() - stubs.keys()
    for name, function in attached.items():
        assert _signature(stubs[name]) == _signature(function), name
        summary = ast.get_docstring(stubs[name])
        assert summary is None or summary == (ast.get_docstring(function) or "").split("\n")[0], name


def test_every_stub_of_symbol_is_attached() -> None:
    assert [each.name for each in _stubs() if each.name not in vars(Symbol)] == []


def test_operator_takes_one_symbol_and_a_domain_before_its_name() -> None:
    graph = Graph("g", {"x": TensorType("float32", ["n", 4])})
    (y,) = graph.op("Relu", graph["x"])
    (z,) = graph.op("my.domain::Op", y, out_types=[y.type])
    assert (z.producer.domain, z.producer.op_type, z.producer.inputs) == ("my.domain", "Op", (y,))  # type: ignore[union-attr]
    assert repr(z.producer) == f"{z.name}: float32[n, 4] = my.domain.Op({y.name})"


def test_long_attributes_are_shortened_in_print() -> None:
    graph = Graph("g", {})
    with graph:
        graph.op("Constant", [], {"value_floats": [1.5] * 500})
        graph.op("Constant", [], {"value_string": "a" * 500})
    assert "Constant(value_floats=[1.5, 1.5, 1.5, 1.5, ... 500 in all])" in str(graph)
    assert max(map(len, str(graph).splitlines())) < 300
