"""The imports of the package: which file imports which, what breaks the order of folders, and where there are circles.

    PYTHONPATH=. python docs/imports.py            print what breaks the rules, and the figures
    PYTHONPATH=. python docs/imports.py ir build   print the imports between these folders

Late imports (inside functions) and imports for types alone are counted like any other.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from graphcore._version import PACKAGES as PACKAGES

ROOT = Path(__file__).resolve().parent.parent
ORDER: dict[str, tuple[str, ...]] = {
    "": (
        "__main__",
        "__init__",
        "cli",
        "conformance scale",
        "onnx_backend",
        "decompile",
        "graph_methods",
        "view",
        "models array_api",
        "runtime",
        "surgery analysis",
        "ops",
        "onnx",
        "checkpoints custom_ops",
        "passes quantization build",
        "ir",
        "promotion",
        "arrays",
        "operators",
        "types",
        "errors",
        "support",
        "_version",
    ),
    "runtime": (
        "doctor",
        "__init__",
        "precision_search",
        "quantizer tracing",
        "isolation",
        "session",
        "batcher sessions",
        "model",
        "buffers",
        "calls",
        "export",
        "ort",
        "inspection",
        "lowering",
        "fusions waiting",
        "metrics stopping",
    ),
    "runtime.lowering": (
        "report",
        "__init__",
        "pipeline",
        "file_versions workarounds legalise",
        "select",
        "expansion",
        "decompositions functions",
        "build dtypes",
        "passes",
        "targets",
    ),
    "scale": (
        "__init__",
        "batch serving deploy",
        "placing recipes protocol",
        "storage",
    ),
    "onnx": (
        "exporters operators",
        "read",
        "versions",
        "schemas",
        "proto",
        "notes",
    ),
}
"""By folder what may import what: each row only rows below it, and what stands in one row each other's nothing."""


@dataclass(frozen=True, slots=True)
class Import:
    """One import of a file.

    source, target: modules without `graphcore.`. is_late: inside a function. is_type: under TYPE_CHECKING. reason: the
    comment beside it or above it.
    """

    source: str
    target: str
    path: str
    line: int
    is_late: bool
    is_type: bool
    reason: str

    def __str__(self) -> str:
        kind = " (late)" if self.is_late else " (types)" if self.is_type else ""
        return f"{self.path}:{self.line}: {self.source} -> {self.target}{kind}"


def module_of(path: Path) -> str:
    """Return the name under which a file is imported, without `graphcore.`; "" for the package itself."""
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    if parts[0] == "graphcore":
        parts = parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules() -> dict[str, Path]:
    """Return every module of the package and its file."""
    results = {}
    for room in ("graphcore", *PACKAGES):
        for folder, _, names in os.walk(ROOT / room, followlinks=False):
            for name in names:
                if name.endswith(".py"):
                    path = Path(folder, name)
                    results[module_of(path)] = path
    return results


@cache
def imports() -> tuple[Import, ...]:
    """Return every import of one module of the package by another."""
    return tuple(each for module, path in sorted(modules().items()) for each in _of_file(module, path))


_IMPORT = re.compile(r"^[ \t]*(?:from|import)\b[^(\n]*(?:\([^)]*\))?", re.MULTILINE)


@cache
def parsed(path: Path) -> ast.Module:
    """Return a file parsed up to the last of its imports, which is faster than to the end."""
    text = path.read_text(encoding="utf-8")
    end = max((match.end() for match in _IMPORT.finditer(text)), default=0)
    try:
        return ast.parse(text[:end])
    except SyntaxError:  # the last match is in a string, or in a `try`
        return ast.parse(text)


def _of_file(module: str, path: Path) -> Iterator[Import]:
    lines = path.read_text(encoding="utf-8").split("\n")
    for node, is_late, is_type in statements(parsed(path)):
        reason = _comment(lines, node.lineno - 1)
        for target in sorted(_targets(node)):
            if target != module:
                shown = path.relative_to(ROOT).as_posix()
                yield Import(module, target, shown, node.lineno, is_late, is_type, reason)


def _comment(lines: list[str], index: int) -> str:
    """Return the comment beside a line or on the line above it."""
    _, _, beside = lines[index].partition("  # ")
    above = lines[index - 1].strip()
    return beside or (above[2:] if above.startswith("# ") else "")


def statements(
    node: ast.AST, is_late: bool = False, is_type: bool = False
) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool, bool]]:
    """Yield each import below a node, whether it is late, and whether it is for types alone."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield node, is_late, is_type
        return
    if isinstance(node, ast.If) and ast.unparse(node.test).removeprefix("typing.") == "TYPE_CHECKING":
        for statement in node.body:
            yield from statements(statement, is_late, True)
        for statement in node.orelse:
            yield from statements(statement, is_late, is_type)
        return
    is_late = is_late or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    for child in ast.iter_child_nodes(node):
        yield from statements(child, is_late, is_type)


def _targets(node: ast.Import | ast.ImportFrom) -> set[str]:
    """Return the modules of the package that a statement names."""
    expected = modules()
    if isinstance(node, ast.Import):
        names = [a.name for a in node.names if a.name.split(".")[0] == "graphcore"]
        return {name.partition(".")[2] for name in names}
    origin = node.module or ""
    if node.level or origin.split(".")[0] != "graphcore":
        return set()
    base = origin.partition(".")[2]
    return {f"{base}.{a.name}".strip(".") if f"{base}.{a.name}".strip(".") in expected else base for a in node.names}


def unit(module: str, folder: str) -> str:
    """Return the part of a folder that a module belongs to: a file or a folder inside it; "__init__" for itself."""
    rest = module.removeprefix(folder).lstrip(".")
    return rest.split(".")[0] if rest else "__init__"


def folders() -> list[str]:
    """Return the folders that have modules."""
    return sorted({name.rpartition(".")[0] for name in modules() if "." in name} | {""})


def inside(folder: str) -> list[Import]:
    """Return the imports from one part of a folder to another."""
    prefix = f"{folder}." if folder else ""
    return [
        each
        for each in imports()
        if (each.source.startswith(prefix) or each.source == folder)
        and (each.target.startswith(prefix) or each.target == folder)
        and unit(each.source, folder) != unit(each.target, folder)
    ]


def against_order(folder: str) -> list[Import]:
    """Return the imports inside a folder that run against its row of `ORDER`."""
    rank = {name: i for i, row in enumerate(ORDER[folder]) for name in row.split()}
    results = []
    for each in inside(folder):
        source, target = unit(each.source, folder), unit(each.target, folder)
        missing = [name for name in (source, target) if name not in rank]
        if missing or rank[target] <= rank[source]:
            results.append(each)
    return results


def circles(edges: Iterable[tuple[str, str]]) -> list[list[str]]:
    """Return the groups of names that reach each other, the largest first."""
    out: Mapping[str, list[str]] = defaultdict(list)
    names = set()
    for a, b in edges:
        out[a].append(b)
        names |= {a, b}
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    results = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        on_stack.add(name)
        for other in out[name]:
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in on_stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            group: list[str] = []
            while not group or group[-1] != name:
                group.append(stack.pop())
                on_stack.discard(group[-1])
            if len(group) > 1:
                results.append(sorted(group))

    sys.setrecursionlimit(10_000)
    for name in sorted(names):
        if name not in index:
            visit(name)
    return sorted(results, key=lambda group: (-len(group), group))


def circles_of_files() -> list[list[str]]:
    """Return the circles of files. A package's `__init__` counts as the file that it is."""
    return circles((each.source or "__init__", each.target or "__init__") for each in imports())


def circles_of_folder(folder: str) -> list[list[str]]:
    """Return the circles between the parts of a folder."""
    return circles((unit(each.source, folder), unit(each.target, folder)) for each in inside(folder))


def late() -> list[Import]:
    """Return the late imports, one for each statement."""
    return list({(each.path, each.line): each for each in imports() if each.is_late}.values())


def loose_files() -> dict[str, int]:
    """Return the number of loose modules in each folder, its `__init__` left out."""
    counts: dict[str, int] = defaultdict(int)
    for path in modules().values():
        if path.name != "__init__.py":
            counts[path.parent.relative_to(ROOT).as_posix()] += 1
    return dict(counts)


def main() -> None:
    if len(sys.argv) > 1:
        chosen = set(sys.argv[1:])
        print(*(e for e in inside("") if {unit(e.source, ""), unit(e.target, "")} <= chosen), sep="\n")
        return
    wrong = [each for folder in ORDER for each in against_order(folder)]
    print(*wrong, sep="\n")
    print(f"\n{len(wrong)} imports against the order")
    for group in circles_of_files():
        print(f"circle of {len(group)} files: {' '.join(group)}")
    for folder in folders():
        for group in circles_of_folder(folder):
            print(f"circle in {folder or 'graphcore'}/: {' '.join(group)}")
    print(f"{len(late())} late imports, {sum(not e.reason for e in late())} without a reason")
    print(*(f"{count} loose files in {name}" for name, count in sorted(loose_files().items()) if count > 12), sep="\n")


if __name__ == "__main__":
    main()
