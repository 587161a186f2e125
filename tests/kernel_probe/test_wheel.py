"""The probe of kernels is a tool of this repository: nothing in the package imports it, and the wheel leaves it out."""

import ast
import fnmatch
import os
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOL = "graphcore.runtime.kernel_probe"


def modules() -> Iterator[Path]:
    """Yield the files of the package, the tool's own left out."""
    for folder in ("graphcore", "ops", "runtime", "models", "array_api"):
        for place, _, names in os.walk(ROOT / folder, followlinks=False):
            if not Path(place).is_relative_to(ROOT / "runtime" / "kernel_probe"):
                yield from (Path(place, name) for name in names if name.endswith(".py"))


def imported(source: str) -> Iterator[str]:
    """Yield the modules that a file imports, late or not."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_nothing_in_the_package_imports_the_tool() -> None:
    assert [*imported("def f():\n    from graphcore.runtime import kernel_probe")] == [TOOL]
    texts = {path: path.read_text(encoding="utf-8") for path in modules()}
    assert len(texts) > 500
    mentions = {path: text for path, text in texts.items() if "kernel_probe" in text}
    assert not [path for path, text in mentions.items() if any(name.startswith(TOOL) for name in imported(text))]


def test_wheel_leaves_the_tool_out() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    excluded = settings["tool"]["setuptools"]["packages"]["find"]["exclude"]
    for name in (TOOL, f"{TOOL}.kernels", f"{TOOL}.probes"):
        assert any(fnmatch.fnmatchcase(name, pattern) for pattern in excluded)
    assert not any(fnmatch.fnmatchcase("graphcore.runtime.doctor", pattern) for pattern in excluded)
