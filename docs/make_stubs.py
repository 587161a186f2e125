"""Write the typed stubs: of `ops` from the declarations, of `ops.onnx` and its modules from ONNX's schemas.

Run it after declaring ops or an update of onnx.
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

from graphcore.onnx.schemas.catalogue import KINDS, OperatorSpec, entry, names, signature
from graphcore.onnx.schemas.schemas import MICROSOFT

HERE = Path(__file__).parent
FOLDER = HERE.parent / "ops" / "onnx"
sys.path.insert(0, str(HERE.parent))  # for the other modules of this script

HEAD = """\
# Made by docs/make_stubs.py from ONNX's schemas.
# fmt: off
# ruff: noqa: E501, N802

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, overload

from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol, TensorLike
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import Type
"""

ALIASES = """
_V: TypeAlias = TensorLike | str | Sequence[Any]  # an operand
_I: TypeAlias = int | DType
_S: TypeAlias = str | bytes
_Is: TypeAlias = Sequence[int]
_Fs: TypeAlias = Sequence[float]
_Ss: TypeAlias = Sequence[str] | Sequence[bytes]
_Body: TypeAlias = Graph | Callable[..., Any]

"""

_MODULES = {
    "__init__.pyi": (
        "",
        "from graphcore.ops.onnx import ml as ml\nfrom graphcore.ops.onnx import preview as preview\n",
    ),
    "ml.pyi": ("ai.onnx.ml", ""),
    "preview/__init__.pyi": ("ai.onnx.preview", "from graphcore.ops.onnx.preview import training as training\n"),
    "preview/training.pyi": ("ai.onnx.preview.training", ""),
}
"""The domain of each stub, and its imports of other modules."""

_UNUSED = "from graphcore.types.tensor_types import Type\n"
"""The import that few operators need."""

_TYPES: dict[int, str] = {
    KINDS.INT: "_I",
    KINDS.INTS: "_Is",
    KINDS.FLOAT: "float",
    KINDS.FLOATS: "_Fs",
    KINDS.STRING: "_S",
    KINDS.STRINGS: "_Ss",
    KINDS.TENSOR: "Any",
    KINDS.SPARSE_TENSOR: "Any",
    KINDS.GRAPH: "_Body",
    KINDS.TYPE_PROTO: "Type",
}


def stub(of: OperatorSpec) -> list[str]:
    """Return the lines of an operator: one, or two overloads where further results are optional."""
    if of.gives_list:
        return [_line(of, "int | None = None", "list[Symbol]")]
    many = ", ".join(["Symbol"] * of.least_results)
    usual = "Symbol" if of.least_results == 1 else f"tuple[{many}]"
    if not of.takes_outputs:
        return [_line(of, "", usual)]
    requested = _line(of, "int", "tuple[Symbol, ...]")
    return ["@overload", _line(of, "None = None", usual), "@overload", requested]


def _line(of: OperatorSpec, outputs: str, returned: str) -> str:
    attributes = {a.name: a for a in of.attributes}
    optional = {p.name for p in of.op.inputs if p.is_optional}
    parts: list[str] = []
    is_star = of.variadic is not None
    for name, parameter in signature(of).parameters.items():
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            parts.append(f"*{name}: _V")
            continue
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and not is_star:
            parts.append("*")
            is_star = True
        if name in attributes:
            kind = _TYPES[attributes[name].kind]
            kind += " | None" if parameter.default is None and kind != "Any" else ""
        else:
            kind = "_V | None" if name in optional else "_V"
        if name == "outputs":
            parts.append(f"{name}: {outputs}")
        elif parameter.default is parameter.empty:
            parts.append(f"{name}: {kind}")
        else:
            parts.append(f"{name}: {kind} = {parameter.default!r}")
    return f"def {of.op.name}({', '.join(parts)}) -> {returned}: ...".replace("'", '"')


def pages() -> dict[str, str]:
    """Return the stubs of the modules of ONNX's domains, by file name."""
    pages = {}
    for name, (domain, module) in _MODULES.items():
        lines = "\n".join(line for operator in names(domain) for line in stub(entry(operator, domain)))
        head = HEAD.replace("from graphcore.types.dtypes", f"{module}from graphcore.types.dtypes")
        head = head.replace(", overload", "") if "@overload" not in lines else head
        head = head if ": Type" in lines else head.replace(_UNUSED, "")
        pages[name] = f"{head}{ALIASES}{lines}\n"
    return pages


def microsoft_page() -> str:
    """Return the stub of `ops.microsoft`: its declared operators, and those made from onnxruntime's schemas."""
    from graphcore.ops import microsoft
    from graphcore.ops.microsoft._declare import ROWS

    modules = [(ROWS[name].op.__wrapped__.__module__, name) for name in microsoft.__all__]
    imports = "".join(f"from {module} import {name} as {name}\n" for module, name in sorted(modules))
    lines = "\n".join(line for name in names(MICROSOFT) for line in stub(entry(name, MICROSOFT)))
    head = HEAD.replace("ONNX's schemas", "onnxruntime's schemas").replace(_UNUSED, "")
    head = head.replace("from graphcore.types.dtypes", f"{imports}from graphcore.types.dtypes")
    return f"{head}{ALIASES}__all__: list[str]\n\n{lines}\n"


def package_pages() -> dict[str, str]:
    """Return the stubs that are made from the library's own functions, by path in the repository."""
    from docs.array_api_stubs import pages as array_api_pages
    from docs.op_stubs import page  # the ops, which the other stubs do not need

    return {"ops/__init__.pyi": page(), **array_api_pages(), "ops/microsoft/__init__.pyi": microsoft_page()}


def main() -> None:
    for name, page in pages().items():
        (FOLDER / name).write_text(page, encoding="utf-8")
    for path, page in package_pages().items():
        (HERE.parent / path).write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
