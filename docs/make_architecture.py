"""Make the picture and the tables of ARCHITECTURE.md: `PYTHONPATH=. python docs/make_architecture.py`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from html import escape

from docs.imports import ORDER, ROOT, inside, modules, unit

PAGE = ROOT / "ARCHITECTURE.md"
PICTURE = ROOT / "docs" / "architecture.svg"

_WIDTH, _BOX, _HEIGHT, _GAP, _MARGIN = 760, 132, 34, 34, 16


def summary(module: str) -> str:
    """Return the first line of a module's docstring."""
    text = ast.get_docstring(ast.parse(modules()[module].read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split())


def edges(folder: str) -> set[tuple[str, str]]:
    """Return the imports between the parts of a folder."""
    return {(unit(each.source, folder), unit(each.target, folder)) for each in inside(folder)}


def reduced(pairs: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return the edges of a graph without circles that follow from no others."""
    out: dict[str, set[str]] = {}
    for a, b in pairs:
        out.setdefault(a, set()).add(b)

    def reach(name: str) -> set[str]:
        return set().union(*({other} | reach(other) for other in out.get(name, ())))

    far = {a: set().union(*(reach(b) for b in targets)) for a, targets in out.items()}
    return {(a, b) for a, targets in out.items() for b in targets if b not in far[a]}


def rows(folder: str = "") -> list[list[str]]:
    """Return the parts of a folder, from the top down."""
    return [row.split() for row in ORDER[folder]]


def picture() -> str:
    """Return the folders of the package as SVG: each imports only what is below it."""
    entry = {"__main__", "__init__"}
    shown = [[name for name in row if name not in entry] for row in rows()]
    shown = [row for row in shown if row]
    place = {}
    for level, row in enumerate(shown):
        step = _WIDTH / len(row)
        for i, name in enumerate(row):
            place[name] = (round(step * (i + 0.5)), _MARGIN + level * (_HEIGHT + _GAP))
    height = 2 * _MARGIN + len(shown) * (_HEIGHT + _GAP) - _GAP
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif">',
        "<style>rect{fill:#eef3fa;stroke:#4a6fa5}path{fill:none;stroke:#9ab}text{fill:#123;font-size:14px;text-anchor:middle}</style>",
        f'<rect x="0" y="0" width="{_WIDTH}" height="{height}" style="fill:#fff;stroke:none"/>',
    ]
    for a, b in sorted(reduced((a, b) for a, b in edges("") if a in place and b in place)):
        (x, y), (u, v) = place[a], place[b]
        y += _HEIGHT
        bend = (v - y) / 2
        lines.append(f'<path d="M{x} {y}C{x} {y + bend:g} {u} {v - bend:g} {u} {v}"/>')
    for name, (x, y) in place.items():
        label = f"{name}/" if f"{name}" in _packages() else f"{name}.py"
        lines.append(f'<rect x="{x - _BOX // 2}" y="{y}" width="{_BOX}" height="{_HEIGHT}" rx="5"/>')
        lines.append(f'<text x="{x}" y="{y + _HEIGHT // 2 + 5}">{escape(label)}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def _packages() -> set[str]:
    return {module for module, path in modules().items() if path.name == "__init__.py"}


def folders_table(folder: str = "") -> str:
    """Return the table of the parts of a folder: what each has, and what it imports."""
    result = edges(folder)
    order = [name for row in rows(folder) for name in row if name != "__init__"]
    lines = ["| part | what it has | imports |", "|---|---|---|"]
    for name in order:
        module = f"{folder}.{name}".strip(".")
        path = modules()[module].relative_to(ROOT).as_posix().removesuffix("__init__.py")
        imported = [f"`{other}`" for other in order if (name, other) in result]
        lines.append(f"| [{path}]({path}) | {summary(module)} | {', '.join(imported)} |")
    return "\n".join(lines)


def tables() -> dict[str, str]:
    """Return the parts of ARCHITECTURE.md that are made, by the names of their marks."""
    from docs.architecture_tables import pipeline_table, targets_table  # the code of lowering

    results = {f"folders of {name or 'graphcore'}": folders_table(name) for name in ORDER}
    return {**results, "pipeline": pipeline_table().rstrip(), "targets": targets_table().rstrip()}


def page() -> str:
    """Return ARCHITECTURE.md with its tables made anew."""
    text = PAGE.read_text(encoding="utf-8")
    for name, table in tables().items():
        mark = re.compile(rf"<!-- {re.escape(name)} -->\n.*?<!-- end {re.escape(name)} -->", re.DOTALL)
        assert mark.search(text), f"ARCHITECTURE.md has no mark {name!r}"
        text = mark.sub(lambda _, n=name, t=table: f"<!-- {n} -->\n{t}\n<!-- end {n} -->", text)  # type: ignore[misc]
    return text


def main() -> None:
    PICTURE.write_text(picture(), encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
