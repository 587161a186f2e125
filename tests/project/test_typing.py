"""Type checkers know the package: its stubs are those of the code, and installs of either kind show them."""

from __future__ import annotations

import ast
import inspect
import os
import runpy
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from docs.op_stubs import Imports
from graphcore import ops
from graphcore.build.declare import REGISTRY
from tests.project.test_packaging import build, copy_sources, make_venv

ROOT = Path(__file__).parents[2]
STUBS = (
    "ops/__init__.pyi",
    "array_api/__init__.pyi",
    "array_api/fft.pyi",
    "array_api/linalg.pyi",
    "ops/microsoft/__init__.pyi",
)
USER = ROOT / "tests" / "data" / "typing_user.py"


@cache
def stubs() -> dict[str, str]:
    """Return the stubs as the code has them, by path."""
    result: dict[str, str] = runpy.run_path(str(ROOT / "docs" / "make_stubs.py"))["package_pages"]()
    assert tuple(result) == STUBS
    return result


def functions(page: str) -> dict[str, list[ast.FunctionDef]]:
    """Return the functions of a stub, with all their overloads."""
    results: dict[str, list[ast.FunctionDef]] = {}
    for node in ast.parse(page).body:
        if isinstance(node, ast.FunctionDef):
            results.setdefault(node.name, []).append(node)
    return results


@pytest.mark.docs
@pytest.mark.parametrize("path", STUBS)
def test_stub_is_that_of_the_code_when_made_anew(path: str) -> None:
    assert (ROOT / path).read_text(encoding="utf-8") == stubs()[path], "run python docs/make_stubs.py"


@pytest.mark.docs
def test_stub_of_ops_has_every_op_with_its_parameters_and_first_line() -> None:
    by_hand = functions((ROOT / "ops" / "shared" / "control.pyi").read_text(encoding="utf-8"))
    typed = functions(stubs()["ops/__init__.pyi"]) | by_hand
    assert typed.keys() == set(ops.__all__)
    for name, declaration in REGISTRY.items():
        if name not in typed:  # declared by a user, in another test
            continue
        wanted = list(inspect.signature(declaration.function).parameters)
        first, *_ = typed[name]
        assert (ast.get_docstring(first) or "") == declaration.summary
        for overload in typed[name]:
            value = overload.args
            named = [*value.posonlyargs, *value.args, *filter(None, [value.vararg]), *value.kwonlyargs]
            shown = [argument.arg for argument in named]
            assert shown == [label for label in wanted if label in shown]
            assert set(wanted) - set(shown) <= {"collect"}


def test_names_of_annotations_are_found_where_they_come_from() -> None:
    imports = Imports(frozenset({"bool", "Symbol"}))
    module = "graphcore.array_api.linalg"
    assert imports.rewritten("dict[np.ndarray, Any] | bool", module) == "dict[np.ndarray, Any] | builtins.bool"
    assert imports.rewritten("Literal['a'] | 'Symbol'", module) == "Literal['a'] | 'linalg_Symbol'"
    own = "from graphcore.ir.symbol import Symbol as linalg_Symbol"  # the stub has a Symbol itself
    assert imports.lines() == [
        "import builtins", "from typing import Any, Literal", "", "import numpy as np", "", own,
    ]  # fmt: skip
    with pytest.raises(ValueError, match="has no Sybmol"):
        imports.rewritten("Sybmol", module)


def test_dir_of_ops_has_operators_and_submodules_alone() -> None:
    assert set(dir(ops)) == {*ops.__all__, "microsoft", "onnx"}


# Installed


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, without the path of these tests."""
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "MYPYPATH")}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module", params=["editable", "wheel"])
def python(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a venv in which the package is installed, from a copy of the repository."""
    home = tmp_path_factory.mktemp(request.param)
    wheel = build(copy_sources(home / "tree"), request.param, home)
    python = make_venv(home)
    zipfile.ZipFile(wheel).extractall(sysconfig.get_path("purelib", vars={"base": str(python.parents[1])}))
    return python


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., subprocess.CompletedProcess[str]]:
    """A function that runs a checker on a script; runs of mypy share a cache."""
    folder = tmp_path_factory.mktemp("checked")

    def check(checker: str, python: Path, script: str, *options: str) -> subprocess.CompletedProcess[str]:
        (folder / "user.py").write_text(script, encoding="utf-8")
        own = {
            "mypy": ["--strict", f"--python-executable={python}", f"--cache-dir={folder / 'cache'}"],
            "pyright": ["--pythonpath", str(python)],
        }
        return run(folder, sys.executable, "-m", checker, *own[checker], *options, "user.py")

    return check


@pytest.mark.full
@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_checker_finds_types_and_mistakes_of_a_script(
    python: Path, checker: str, checked: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    if find_spec(checker) is None:
        pytest.skip(f"{checker} is not installed")
    result = checked(checker, python, USER.read_text(encoding="utf-8"))
    assert result.returncode == 0, result.stdout + result.stderr


def test_checker_finds_the_package_and_its_marker(
    python: Path, checked: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    script = "import graphcore\nfrom graphcore.models import gpt2\nimport graphcore.nothing\n"
    result = checked("mypy", python, script, "--follow-imports=skip")
    assert 'user.py:3: error: Cannot find implementation or library stub for module named "graphcore.nothing"' in (
        result.stdout
    )
    assert "Found 1 error" in result.stdout, result.stdout + result.stderr
