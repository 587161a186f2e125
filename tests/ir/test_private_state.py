"""The private state of a Graph is used by `graphcore.ir` and by `build.insert` alone."""

from __future__ import annotations

import ast
from pathlib import Path

from graphcore import DType, Graph, TensorType

FOLDERS = ("graphcore", "ops", "runtime", "models", "array_api")
"""The folders of the source; rooms are links in `graphcore`, which are followed once."""

ROOT = next(folder for folder in Path(__file__).resolve().parents if (folder / "pyproject.toml").exists())


def private_names() -> set[str]:
    """Return the private attributes and methods of a Graph, but those that Python and notebooks call."""
    return {name for name in {*vars(Graph("some")), *vars(Graph)} if name.startswith("_") and not name.endswith("_")}


def sources() -> list[Path]:
    """Return the files that may not use them."""
    found = {path.resolve() for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")}
    home = (ROOT / "graphcore" / "ir").resolve()
    insert = (ROOT / "graphcore" / "build" / "insert.py").resolve()
    return sorted(path for path in found if home not in path.parents and path != insert)


def test_no_other_file_uses_private_state_of_a_graph() -> None:
    names = private_names()
    assert {"_nodes", "_symbols", "_inputs", "_outputs"} <= names
    found = []
    for path in sources():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if not isinstance(node, ast.Attribute) or node.attr not in names:
                continue
            is_own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            if not is_own or _is_in_a_graph(tree, node):
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}")
    assert not found, "\n".join(found)


def _is_in_a_graph(tree: ast.Module, node: ast.Attribute) -> bool:
    """Return True for `self._x` in a class that is made of Graph."""
    return any(
        node in ast.walk(made)
        for made in ast.walk(tree)
        if isinstance(made, ast.ClassDef)
        and any(isinstance(base, ast.Name) and base.id in ("Graph", "Draft") for base in made.bases)
    )


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
