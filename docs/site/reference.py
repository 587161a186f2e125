"""The pages of the reference: one for each name of `graphcore` and each op, one for each other public module."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from importlib import import_module
from types import FunctionType

from docs.site.public_names import MODULES, Name, module_of, names
from graphcore.build.declare import MEANINGS, REGISTRY
from graphcore.custom_ops.custom_op import CustomOp


def pages() -> dict[str, str]:
    """Return the text of each page by its path in the folder of the documents."""
    results = {"reference/index.md": _index()}
    for module in MODULES:
        listed = names(module)
        if module == "graphcore.ops":
            results |= {name.page: _op_page(name) for name in listed}
            results["reference/ops/index.md"] = _module_page(module, listed)
        elif module == "graphcore":
            results |= {name.page: _headed(name, name.path) + _attached(name) for name in listed}
        else:
            results[listed[0].page] = _module_page(module, []) + "\n".join(_entry(name, 2) for name in listed)
    return results


def _index() -> str:
    lines = ["# Reference", "", "Every public name, from its docstring.", ""]
    for module, subject in MODULES.items():
        listed = names(module)
        lines += [f"## {subject}", "", f"`{module}`", ""]
        lines += [_linked(listed, "reference/index.md"), ""]
    lines += [
        "## ONNX's operators",
        "",
        "`graphcore.ops.onnx.<Operator>`, `graphcore.ops.onnx.ml.<Operator>`: made from the schemas of the installed "
        "onnx. [The operators and their dtypes](../operators.md).",
    ]
    return "\n".join(lines) + "\n"


def _linked(listed: list[Name], page: str) -> str:
    up = "../" * page.count("/")
    return ", ".join(f"[`{name.name}`]({up}{name.page}{name.anchor})" for name in listed)


def _module_page(module: str, listed: list[Name]) -> str:
    text = inspect.getdoc(module_of(module)) or ""
    head = f"# {MODULES[module]}\n\n`{module}`\n\n{text}\n\n"
    return head + (_linked(listed, "reference/ops/index.md") + "\n" if listed else "")


def _op_page(name: Name) -> str:
    declared = REGISTRY[name.name]
    facts = [f"**ONNX**: {declared.onnx}.", f"**Promotion**: `{declared.rule}`, {MEANINGS[declared.rule]}."]
    if declared.operator:
        facts.append(f"**Operator**: `{declared.operator}`.")
    return f"{_headed(name, f'ops.{name.name}')}\n{' '.join(facts)} [By dtype](../../dtypes.md).\n"


def _headed(name: Name, heading: str) -> str:
    """Return a page of one name, titled as its users write it."""
    return f"---\ntitle: {heading}\n---\n\n{_entry(name, 1)}      heading: {heading}\n      toc_label: {heading}\n"


def _attached(name: Name) -> str:
    """Return the methods of a class that other files attach to it, which inspecting it does not show."""
    if not inspect.isclass(name.value):
        return ""
    methods, ops = [], []
    for called in dir(name.value):  # which attaches them
        method = vars(name.value).get(called)
        if called.startswith("_") or not inspect.isfunction(method) or method.__module__ == name.value.__module__:
            continue
        op = method.__name__.rstrip("_")
        if method.__module__.startswith("graphcore.ops.") and op in REGISTRY:
            ops.append(f"[`{called}`](ops/{op}.md)")
        else:
            methods.append(
                f"::: {method.__module__}.{_defined_as(method)}\n    options:\n      heading_level: 3\n"
                f"      show_root_heading: true\n      heading: {called}\n      toc_label: {called}\n"
            )
    listed = f"\n## Ops as methods\n\n{', '.join(ops)}\n" if ops else ""
    return listed + ("\n## More methods\n\n" + "\n".join(methods) if methods else "")


def _defined_as(method: FunctionType) -> str:
    """Return the name that a function has in its file: attached to a class it goes by another."""
    return next(name for name, value in vars(import_module(method.__module__)).items() if value is method)


def _entry(name: Name, level: int) -> str:
    value = name.value
    if isinstance(value, CustomOp):
        return "\n".join(_custom(name, value)) + "\n"
    if not (inspect.isclass(value) or inspect.isroutine(value)):
        return f"{'#' * level} {name.name} {{#{name.target}}}\n\nValue: `{_literal(value)}`\n"
    inherited = "      inherited_members: true\n" if _has_parts(value) else ""
    return f"::: {name.target}\n    options:\n      heading_level: {level}\n      show_root_heading: true\n{inherited}"


def _literal(value: object) -> str:
    """Return the repr of a value, with functions by name: the repr of a function has its address."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key!r}: {_literal(item)}' for key, item in value.items())}}}"
    return value.__name__ if inspect.isfunction(value) else repr(value)


def _has_parts(value: object) -> bool:
    """Return True if a class has methods of bases that have no page of their own."""
    public = {each.value for each in names("graphcore")}
    bases = value.__mro__[1:] if inspect.isclass(value) else ()
    places = ("graphcore.runtime.", "graphcore.arrays.")
    return any(base.__module__.startswith(places) and base not in public for base in bases)


def _custom(name: Name, value: CustomOp) -> Iterator[str]:
    yield f"## {name.name} {{#{name.target}}}\n"
    yield f"```python\n{name.name}{inspect.signature(value)}\n```\n"
    yield f"{inspect.getdoc(value) or ''}\n"
