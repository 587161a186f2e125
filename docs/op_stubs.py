"""The typed stubs of the ops, made from the functions themselves: signatures as they are written, and first lines."""

from __future__ import annotations

import ast
import builtins
import inspect
import sys
import textwrap
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from graphcore import ops  # declares the ops
from graphcore.build.declare import REGISTRY, Declaration

BY_HAND = Path(__file__).parent.parent / "ops" / "shared" / "control.pyi"
"""The types of the ops whose results have the structure of an operand, which no annotation of one function says."""

HEAD = """\
# Made by docs/make_stubs.py from the declarations.
# fmt: off
# ruff: noqa: E501, RUF022
"""


@dataclass(slots=True)
class Imports:
    """The imports of a stub: the names that annotations need, by the module that has them."""

    own: frozenset[str]
    """The names that the stub itself declares."""
    homes: dict[str, tuple[str, str]] = field(default_factory=dict)
    """(module, name there), by name in the stub."""
    shown: frozenset[str] = frozenset()
    """The names that are imported for the stub's readers."""

    def named(self, name: str, module: str) -> str:
        """Return the name by which the stub knows what `name` is in a module."""
        home, original = home_of(module, name)
        if not original:
            self.homes[name] = home, ""
            return name
        if home == "builtins":
            if name not in self.own:
                return name
            self.homes["builtins"] = "builtins", ""
            return f"builtins.{name}"
        family = module.rsplit(".", 1)[-1].strip("_")
        for local in (original, f"{family}_{original}".strip("_")):
            if local not in self.own and self.homes.setdefault(local, (home, original)) == (home, original):
                return local
        raise ValueError(f"{module}: {name} has no name left in the stub")

    def rewritten(self, annotation: str, module: str) -> str:
        """Return an annotation of a module with the stub's names."""
        tree = ast.parse(annotation, mode="eval")
        for node in ast.walk(tree):
            if isinstance(node, ast.Name):
                node.id = self.named(node.id, module)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and not _is_literal(tree, node):
                node.value = self.rewritten(node.value, module)
        return ast.unparse(tree)

    def lines(self) -> list[str]:
        """Return the import statements, sorted: the standard library's, those of other packages, the library's own."""
        groups: tuple[list[tuple[str, str]], ...] = ([], [], [])
        plain: dict[str, list[str]] = {}
        for local, (home, original) in self.homes.items():
            if original and local == original and local not in self.shown:
                plain.setdefault(home, []).append(local)
                continue
            renamed = "" if local == home else f" as {local}"
            line = f"from {home} import {original}{renamed}" if original else f"import {home}{renamed}"
            groups[_group(home)].append((home if original else "", line))
        for home, names in plain.items():
            groups[_group(home)].append((home, f"from {home} import {', '.join(sorted(names))}"))
        results: list[str] = []
        for group in filter(None, groups):
            results += ["", *(line for _, line in sorted(group))]
        return results[1:]


def _group(home: str) -> int:
    top = home.partition(".")[0]
    return 0 if top in sys.stdlib_module_names else 2 if top == "graphcore" else 1


def _is_literal(tree: ast.AST, inner: ast.Constant) -> bool:
    literals = [n for n in ast.walk(tree) if isinstance(n, ast.Subscript) and ast.unparse(n.value).endswith("Literal")]
    return any(inner in ast.walk(n) for n in literals)


@cache
def home_of(module: str, name: str) -> tuple[str, str]:
    """Return the module that defines what `name` is in `module`, and its name there; "" for the module itself."""
    if module == "builtins":
        return module, name
    tree = ast.parse(inspect.getsource(import_module(module)))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return alias.name, ""
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    inside = node.module.startswith("graphcore")
                    return home_of(node.module, alias.name) if inside else (node.module, alias.name)
    for statement in tree.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return module, name
        if isinstance(statement, (ast.ClassDef, ast.FunctionDef)) and statement.name == name:
            return module, name
    if hasattr(builtins, name):
        return "builtins", name
    raise ValueError(f"{module} has no {name}")


_STARS: dict[object, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}


def signature_of(function: Callable[..., Any], name: str, imports: Imports) -> str:
    """Return the line of a function without its body."""
    signature = inspect.signature(function)
    module: str = inspect.unwrap(function).__globals__["__name__"]
    parts: list[str] = []
    kinds = [p.kind for p in signature.parameters.values()]
    for position, (label, parameter) in enumerate(signature.parameters.items()):
        star = _STARS.get(parameter.kind, "")
        if parameter.kind is parameter.KEYWORD_ONLY and not {parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL} & {
            *kinds[:position]
        }:
            parts.append("*")
        default = "" if parameter.default is parameter.empty else f" = {_default(parameter.default, module, imports)}"
        parts.append(f"{star}{label}: {imports.rewritten(parameter.annotation, module)}{default}")
        is_last = position + 1 == len(kinds) or kinds[position + 1] is not parameter.POSITIONAL_ONLY
        if parameter.kind is parameter.POSITIONAL_ONLY and is_last:
            parts.append("/")
    returned = imports.rewritten(signature.return_annotation, module)
    return f"def {name}({', '.join(parts)}) -> {returned}:"


def _default(value: object, module: str, imports: Imports) -> str:
    if value is None or isinstance(value, (bool, int, float, str)) or value == ():
        return repr(value)
    if isinstance(value, tuple):
        return repr(value)
    return "..."


def documented(line: str, summary: str) -> list[str]:
    """Return a function of a stub with the first line of its docstring."""
    quoted = summary.replace("\\", "\\\\").replace('"""', r"\"\"\"")
    return [line, f'    """{quoted}"""' if summary else "    ..."]


def stub(declaration: Declaration, imports: Imports) -> list[str]:
    """Return the lines of an op: its overloads where it has some."""
    function = declaration.function
    if declaration.name in written_by_hand():
        return []
    variants = typing.get_overloads(function)
    if not variants:
        return documented(signature_of(function, declaration.name, imports), declaration.summary)
    imports.homes["overload"] = "typing", "overload"
    results: list[str] = []
    for variant in variants:
        results += ["@overload", *documented(signature_of(variant, declaration.name, imports), declaration.summary)]
    return results


@cache
def written_by_hand() -> frozenset[str]:
    """Return the names of the functions in `BY_HAND`."""
    tree = ast.parse(BY_HAND.read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def by_family(declarations: Iterable[Declaration]) -> dict[str, list[Declaration]]:
    """Return the declarations by the file they are in, both in alphabetical order."""
    results: dict[str, list[Declaration]] = {}
    for declaration in sorted(declarations, key=lambda d: (d.family, d.name)):
        results.setdefault(declaration.family, []).append(declaration)
    return results


def listed(names: Iterable[str]) -> list[str]:
    """Return the lines of `__all__`."""
    quoted = ", ".join(f'"{name}"' for name in names)
    return ["__all__ = [", *textwrap.wrap(quoted, 116, initial_indent="    ", subsequent_indent="    "), "]"]


def page() -> str:
    """Return ops/__init__.pyi."""
    declared = [REGISTRY[name] for name in ops.__all__]
    submodules = {name: ("graphcore.ops", name) for name in dir(ops) if name not in ops.__all__}
    own = frozenset(ops.__all__) - written_by_hand()
    by_hand = {name: ("graphcore.ops.shared.control", name) for name in written_by_hand()}
    imports = Imports(own, submodules | by_hand, frozenset({*submodules, *by_hand}))
    body: list[str] = []
    for family, declarations in by_family(declared).items():
        lines = [line for declaration in declarations for line in stub(declaration, imports)]
        body += ["", f"# {family}", "", *lines] if lines else []
    return "\n".join([HEAD, *imports.lines(), "", *listed(ops.__all__), *body]) + "\n"
