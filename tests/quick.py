"""Run the tests of what changed: `make test-quick`, or `make test-quick FILES="ops/math.py tests/ops/test_math.py"`.

Without FILES these are the files that differ from the last commit, or those of the last commit where none does. A
test file is run where it changed, and where it names an object that a changed source file defines. Where no test names
anything of a file, the files that import it stand in for it, and so on. Tests in the folder that mirrors the source
come first; what does not fit into MAX_SECONDS is left to `make test`.
"""

from __future__ import annotations

import ast
import importlib
import os
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from itertools import zip_longest
from pathlib import Path
from types import ModuleType

from docs.imports import imports, modules
from tests.sampling import MAX_CASES, ROOT, seconds_of_cases
from tests.sampling import MAX_SECONDS as MAX_SECONDS_OF_FUNCTION

MAX_SECONDS = 60.0
"""Of test time, which two processes share: 30 s beside their start."""
_UNMEASURED_SECONDS = 0.1
"""Of a test function without a row in tests/times.json."""


def changed_files() -> list[str]:
    """Return the paths that differ from the last commit, or those of the last commit."""
    return [*_git("diff --name-only HEAD"), *_git("ls-files --others --exclude-standard")] or _git(
        "diff --name-only HEAD~1 HEAD"
    )


def _git(command: str) -> list[str]:
    return subprocess.run(
        ["git", *command.split()], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()


@cache
def test_files() -> dict[str, frozenset[str]]:
    """Return every test file, and the modules of the package that define what it names."""
    paths = sorted((ROOT / "tests").rglob("test_*.py"))
    return {path.relative_to(ROOT).as_posix(): modules_named(path) for path in paths}


@cache
def modules_named(path: Path) -> frozenset[str]:
    """Return the modules that define what a test file and the helpers that it imports name."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names: dict[str, object] = {}
    modules: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "graphcore":
                    names[alias.asname or "graphcore"] = _module(alias.name if alias.asname else "graphcore")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "graphcore":
            for alias in node.names:
                names[alias.asname or alias.name] = value = _attribute(_module(node.module or ""), alias.name)
                modules |= _defining(value, node.module or "")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests."):
            base = ROOT.joinpath(*(node.module or "").split("."))
            for helper in {base.with_suffix(".py"), *(base / f"{alias.name}.py" for alias in node.names)}:
                if helper.exists() and helper != path:
                    modules |= modules_named(helper)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in names:
            owner = names[node.value.id]
            modules |= _defining(_attribute(owner, node.attr), getattr(owner, "__name__", ""))
    return frozenset(modules)


def _module(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:  # an extra is not installed, or there is no such submodule
        return None


def _attribute(owner: object, name: str) -> object:
    """Return an attribute or a submodule; None where there is neither."""
    try:
        attribute = getattr(owner, name, None)
    except ImportError:  # of an extra
        attribute = None
    return _module(f"{owner.__name__}.{name}") if attribute is None and isinstance(owner, ModuleType) else attribute


def _defining(value: object, default: str) -> set[str]:
    """Return the module that defines a value, without `graphcore.`; `default` for a value that does not say."""
    name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", default)
    return {name.removeprefix("graphcore.")} if isinstance(name, str) and name.startswith("graphcore.") else set()


def tests_of(path: str) -> list[str]:
    """Return the test files for a changed file, the closest first."""
    if path in test_files():
        return [path]
    parts = path.removesuffix(".py").split("/")
    if parts[0] == "tests":
        return _tests_with(".".join(parts))
    if parts[0] == "tools":  # which tests name by the file, or by a package that it is in
        return next(filter(None, (_tests_with(".".join(parts[:end])) for end in range(len(parts), 1, -1))), [])
    changed = {module for module, file in modules().items() if file == ROOT / path}
    tests: list[str] = []
    if not changed:  # a table, a page or a script
        name = Path(path).name
        changed = {module for module, file in modules().items() if name in file.read_text(encoding="utf-8")}
        tests = _tests_with(name)
    nearest, reached = changed, set(changed)
    named: list[str] = []
    while nearest:
        named = [test for test, its_modules in test_files().items() if its_modules & nearest]
        if named:
            break
        nearest = {each.source for each in imports() if each.target in nearest} - reached
        reached |= nearest
    folder, stem = f"/{Path(path).parent.name}/", Path(path).stem
    named.sort(key=lambda test: (stem not in test, folder not in test, len(test_files()[test])))
    return list(dict.fromkeys([*tests, *named]))


def _tests_with(text: str) -> list[str]:
    return [test for test in test_files() if text in (ROOT / test).read_text(encoding="utf-8")]


def seconds_of(test: str) -> float:
    """Return the seconds that the sample of a test file takes, from tests/times.json."""
    tree, times = ast.parse((ROOT / test).read_text(encoding="utf-8")), seconds_of_cases()
    functions = [f"{test}::{node.name}" for node in tree.body if isinstance(node, ast.FunctionDef)]
    return sum(
        min(MAX_SECONDS_OF_FUNCTION, times[name] * MAX_CASES) if name in times else _UNMEASURED_SECONDS
        for name in functions
        if "::test_" in name
    )


def chosen(paths: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the test files that fit into MAX_SECONDS, and those that do not. Test files that changed always run."""
    paths = list(paths)
    queues = [tests_of(path) for path in paths]
    ordered = [test for rank in zip_longest(*queues) for test in rank if test]  # the closest of each file come first
    seconds = 0.0
    runs: list[str] = []
    rest: list[str] = []
    for test in dict.fromkeys(ordered):
        seconds += seconds_of(test)
        (runs if test in paths or seconds <= MAX_SECONDS or not runs else rest).append(test)
    return runs, rest


def main() -> None:
    paths = [Path(os.path.relpath(path, ROOT)).as_posix() for path in sys.argv[1:]] or changed_files()
    runs, rest = chosen(paths)
    if not runs:
        print(f"no test names anything of {' '.join(paths) or 'a change'}: make test")
        return
    print(f"{len(runs)} test files of {len(paths)} changed files; {len(rest)} more reach them: make test", flush=True)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-m", "not ray and not browser and not docs", *runs]
    sys.exit(subprocess.call(command, cwd=ROOT))


if __name__ == "__main__":
    main()
