"""The typed stubs of array_api, made from its functions: results are Symbols, Arrays or Tensors, as the operands are.

In annotations of the functions `Tensor` stands for the three of them; in the stubs it is `gc.Tensor`.
"""

from __future__ import annotations

import ast
import inspect
import re
import typing
from collections.abc import Callable
from importlib import import_module
from types import FunctionType, ModuleType
from typing import Any

from docs.op_stubs import Imports, documented, listed, signature_of
from graphcore import array_api
from graphcore.array_api import fft, linalg
from graphcore.types.dtypes import DType

HEAD = """\
# Made by docs/make_stubs.py from the functions.
# fmt: off
# ruff: noqa: E501
"""

ALIASES = """
_T = TypeVar("_T", Symbol, Array, EagerTensor)
_A: TypeAlias = Array | np.ndarray[Any, Any] | np.generic | {bool} | int | float | {complex}  # an operand among Arrays
_E: TypeAlias = EagerTensor | _A  # an operand among which is a Tensor
_S: TypeAlias = Symbol | _E  # an operand among which is a Symbol
"""

OWN = ["__array_api_version__: str", "def _namespace(api_version: str | None = None) -> Any: ..."]

_LISTS = re.compile(r"tuple\[Tensor, \.\.\.\] \| list\[Tensor\]|list\[Tensor\]")
_TENSOR = re.compile(r"\bTensor\b")


def variants(function: Callable[..., Any], name: str, imports: Imports) -> list[str]:
    """Return the lines of a function without bodies: one, or overloads for Arrays and for Symbols."""
    annotations = [str(p.annotation) for p in inspect.signature(function).parameters.values()]
    operands = sum(len(_TENSOR.findall(annotation)) for annotation in annotations)
    line = signature_of(function, name, imports)
    parameters, returned = line.rsplit(" -> ", 1)
    if not operands and "Tensor" not in returned:
        return [line]
    if not operands and not re.search(r"\bDim(Like)?\b", parameters):
        return [f"{parameters} -> {_TENSOR.sub('Array', returned)}"]
    if not operands:
        static = re.sub(r" \| Dim\b", "", re.sub(r"\bDimLike\b", "int", parameters))
        return [f"{static} -> Array:", f"{parameters} -> Symbol:"]
    if annotations.count("Tensor") == operands == 1 and "*" not in parameters.partition("Tensor")[0]:
        return [_TENSOR.sub("_T", line)]
    results = []
    for operand, result in (("_A", "Array"), ("_E", "EagerTensor"), ("_S", "Symbol")):
        value = _TENSOR.sub(operand, _LISTS.sub("Sequence[Tensor]", parameters))
        results.append(f"{value} -> {_TENSOR.sub(result, returned)}")
    return results


def stub(function: Callable[..., Any], name: str, imports: Imports) -> list[str]:
    """Return the lines of a function."""
    summary = (function.__doc__ or "").strip().split("\n")[0]
    overloads = typing.get_overloads(inspect.unwrap(function))
    lines = [signature_of(f, name, imports) for f in overloads] or variants(function, name, imports)
    if len(lines) == 1:
        return documented(lines[0], summary)
    imports.homes["overload"] = "typing", "overload"
    overlapping = [line if overloads else f"{line}  # type: ignore[overload-overlap]" for line in lines[:-1]]
    results = ["@overload", *documented(overlapping[0], summary)]
    for line in overlapping[1:]:
        results += ["@overload", line.replace(":  # type", ": ...  # type") if not overloads else f"{line} ..."]
    return [*results, "@overload", f"{lines[-1]} ..."]


def page(module: ModuleType) -> str:
    """Return the stub of the namespace or of an extension."""
    names = sorted(n for n in getattr(module, "__all__", vars(module)) if not n.startswith("_"))
    inside = "graphcore.array_api"
    functions = {
        name: value
        for name in names
        if isinstance(value := getattr(module, name), FunctionType) and value.__module__.startswith(inside)
    }
    values = {
        name: value
        for name in names
        if isinstance(value := getattr(module, name), (DType, float, tuple)) or (name == "newaxis" and value is None)
    }
    imports = Imports(frozenset({*functions, *values}))
    for local, home in {
        "Array": "graphcore.array_api._eager",
        "Symbol": "graphcore.ir.symbol",
        "Sequence": "collections.abc",
        "Any": "typing",
        "TypeAlias": "typing",
        "TypeVar": "typing",
    }.items():
        imports.homes[local] = home, local
    imports.homes["EagerTensor"] = "graphcore.runtime.tracing.tensor", "Tensor"
    numbers = {name: imports.named(name, inside) for name in ("bool", "complex")}
    lines: list[str] = []
    for name, value in values.items():
        kind = "None" if value is None else imports.named(type(value).__name__, _HOMES[type(value)])
        lines.append(f"{name}: {kind if kind != 'tuple' else 'tuple[str, ...]'}")
    for name, function in functions.items():
        lines += stub(function, name, imports)
    for name in _results(imports):
        lines = [re.sub(rf" -> {name}:", f" -> {_own_name(name, module)}[_T]:", line) for line in lines]
    lines = [*_own_definitions(module, imports), *lines]
    if module is array_api:
        lines += OWN
    return "\n".join([HEAD, *_imported(module, imports), ALIASES.format(**numbers), *listed_of(module), *lines]) + "\n"


def _results(imports: Imports) -> list[str]:
    """Return the named tuples that the functions of a stub return."""
    return [n for n, (home, _) in imports.homes.items() if hasattr(getattr(import_module(home), n, None), "_fields")]


def _own_name(name: str, module: ModuleType) -> str:
    """Return the name of a definition in the stub of a module: private where the module has none of that name."""
    return name if hasattr(module, name) else f"_{name}"


def _own_definitions(module: ModuleType, imports: Imports) -> list[str]:
    """Return the definitions that annotations need from the module itself, which its stub replaces, and tuples of
    results.
    A named tuple has fields of one type, which its module leaves open.
    """
    results = _results(imports)
    own = {n: home for n, (home, _) in imports.homes.items() if n in results or home == module.__name__}
    items: list[str] = []
    for local, home in sorted(own.items()):
        del imports.homes[local]
        for node in ast.parse(inspect.getsource(import_module(home))).body:
            if isinstance(node, ast.ClassDef) and node.name == local:
                imports.homes |= {"NamedTuple": ("typing", "NamedTuple"), "Generic": ("typing", "Generic")}
                fields = [ast.unparse(field) for field in node.body if isinstance(field, ast.AnnAssign)]
                items.append(f"class {_own_name(local, module)}(NamedTuple, Generic[_T]):")
                items += [f"    {_TENSOR.sub('_T', field)}" for field in fields]
            elif isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == local:
                imports.homes["Literal"] = "typing", "Literal"
                items.append(ast.unparse(node).replace("'", '"'))
    return items


_HOMES: dict[type, str] = {DType: "graphcore.types.dtypes", float: "builtins", tuple: "builtins"}


def _imported(module: ModuleType, imports: Imports) -> list[str]:
    shown = _EXTRA_HOMES if module is array_api else {}
    for local, home in shown.items():
        imports.homes[local] = home, local
    imports.shown = frozenset(shown)
    imports.homes.pop("Tensor", None)
    imports.homes["np"] = "numpy", ""
    return imports.lines()


_EXTRA_HOMES = {
    "Array": "graphcore.array_api._eager",
    "__array_namespace_info__": "graphcore.array_api._data_types",
    "fft": "graphcore.array_api",
    "linalg": "graphcore.array_api",
}


def listed_of(module: ModuleType) -> list[str]:
    """Return the lines of `__all__`, where the module has one."""
    named = getattr(module, "__all__", None)
    return [] if named is None else [*listed(named), ""]


def pages() -> dict[str, str]:
    """Return the stubs by path in the repository."""
    return {f"array_api/{name}.pyi": page(module) for name, module in _MODULES.items()}


_MODULES = {"__init__": array_api, "fft": fft, "linalg": linalg}
