"""The private state of a Graph is used by `graphcore.ir` and by `build.insert` alone."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from graphcore import DType, Graph, TensorType

FOLDERS = ("graphcore", "ops", "runtime", "models", "array_api")
"""The folders of the source; packages are links in `graphcore`, which are followed once."""

ROOT = next(folder for folder in Path(__file__).resolve().parents if (folder / "pyproject.toml").exists())


def private_names() -> set[str]:
    """Return the private attributes and methods of a Graph, but those that Python and notebooks call."""
    return {name for name in {*vars(Graph("some")), *vars(Graph)} if name.startswith("_") and not name.endswith("_")}


def sources() -> list[Path]:
    """Return the files that may not use them."""
    names = {path.resolve() for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")}
    home = (ROOT / "graphcore" / "ir").resolve()
    insert = (ROOT / "graphcore" / "build" / "insert.py").resolve()
    return sorted(path for path in names if home not in path.parents and path != insert)


def test_no_other_file_uses_private_state_of_a_graph() -> None:
    names = private_names()
    assert {"_nodes", "_symbols", "_inputs", "_outputs"} <= names
    mention = re.compile(rf"\.({'|'.join(names)})\b")
    results = []
    for path in sources():
        text = path.read_text(encoding="utf-8")
        if mention.search(text):
            results += [f"{path.relative_to(ROOT)}:{line}" for line in uses(ast.parse(text), names)]
    assert not results, "\n".join(results)


def uses(tree: ast.Module, names: set[str]) -> list[str]:
    """Return the uses of attributes of these names, but those of `self` in a class that is not made of Graph."""
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and _is_of_graph(node)]
    in_graphs = {node for item in classes for node in ast.walk(item)}
    return [
        f"{node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr in names
        and (node in in_graphs or not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")))
    ]


def _is_of_graph(node: ast.ClassDef) -> bool:
    return any(isinstance(base, ast.Name) and base.id in ("Graph", "Draft") for base in node.bases)


def test_private_state_is_found_by_its_use() -> None:
    source = (
        "graph._nodes\nself._nodes\nclass A:\n    def f(self): self._nodes\n"
        "class B(Graph):\n    def f(self): self._nodes\n"
    )
    assert uses(ast.parse(source), {"_nodes"}) == ["1: graph._nodes", "6: self._nodes"]


def test_nodes_and_symbols_are_views() -> None:
    graph = Graph("some", {"x": TensorType(DType.float32, [2])})
    nodes, symbols = graph.nodes, graph.symbols
    assert nodes == ()
    y = graph["x"] + graph["x"]
    assert [*nodes] == [y.producer]
    assert tuple(nodes) == nodes == [y.producer] == graph.nodes
    assert symbols[-1] is y
    assert all(a is b for a, b in zip(symbols[:2], (graph["x"], y), strict=True))
    assert repr(nodes) == repr(tuple(nodes))
