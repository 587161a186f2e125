"""The stubs of methods that are attached to Graph and Symbol, held against the functions."""

from __future__ import annotations

import ast
import inspect
import os
from collections.abc import Iterator

import pytest

from graphcore import Graph, Symbol, graph_methods, surgery_methods
from graphcore.ir import graph


def _stubs(owner: type) -> Iterator[ast.FunctionDef]:
    """Yield the methods that a class declares for checkers: Graph in a stub of its base, Symbol under TYPE_CHECKING."""
    if owner is Graph:
        path = os.path.join(os.path.dirname(graph.__file__), "attached.pyi")
        with open(path, encoding="utf-8") as file:
            (base,) = (each for each in ast.parse(file.read()).body if isinstance(each, ast.ClassDef))
        yield from (each for each in base.body if isinstance(each, ast.FunctionDef))
        return
    (tree,) = ast.parse(inspect.getsource(owner)).body
    assert isinstance(tree, ast.ClassDef)
    for part in tree.body:
        if isinstance(part, ast.If) and ast.unparse(part.test) == "TYPE_CHECKING":
            yield from (each for each in part.body if isinstance(each, ast.FunctionDef))


def _functions() -> dict[str, ast.FunctionDef]:
    """Return the functions of graph_methods by the names that they are attached under."""
    found = {}
    for module in (graph_methods, surgery_methods):
        for each in ast.parse(inspect.getsource(module)).body:
            if isinstance(each, ast.FunctionDef) and each.name in vars(module):
                found[getattr(module, each.name).__qualname__] = each
    return found


def _signature(function: ast.FunctionDef) -> str:
    """Return a signature as written, without the type of `self`."""
    first = [*function.args.posonlyargs, *function.args.args][0]
    if first.arg == "self":
        first.annotation = None
    return f"{ast.unparse(function.args)} -> {ast.unparse(function.returns) if function.returns else ''}"


@pytest.mark.parametrize("owner", [Graph, Symbol])
def test_stubs_have_the_signatures_of_what_is_attached(owner: type) -> None:
    stubs = {each.name: each for each in _stubs(owner)}
    attached = {
        name.rpartition(".")[2]: function
        for name, function in _functions().items()
        if name.startswith(f"{owner.__name__}.")
    }
    assert attached
    # To type checkers nothing is an attribute that is not listed.
    assert attached.pop("__getattr__", None) is None or "__getattr__" not in stubs
    assert not attached.keys() - stubs.keys()
    for name, function in attached.items():
        assert _signature(stubs[name]) == _signature(function), name
        summary = ast.get_docstring(stubs[name])
        assert summary is None or summary == (ast.get_docstring(function) or "").split("\n")[0], name


@pytest.mark.parametrize("owner", [Graph, Symbol])
def test_every_stub_is_attached(owner: type) -> None:
    assert [each.name for each in _stubs(owner) if each.name not in vars(owner)] == []
