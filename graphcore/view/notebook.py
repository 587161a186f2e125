"""Views in notebooks: drawings of small graphs and of the nodes before a Symbol, the page for large graphs."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphcore.analysis.casts import casts_of
from graphcore.errors import ExportError, GraphcoreError, GraphError
from graphcore.ir.definitions import Definition, definition_of, definitions
from graphcore.ir.graph import Graph
from graphcore.ir.state.open_expressions import is_swallowed
from graphcore.ir.symbol import Captured, Constant, Node, Symbol
from graphcore.runtime.ort.web import web_package
from graphcore.support.atomic_files import replace_files
from graphcore.support.markup import code, escaped
from graphcore.view.data import PageOptions as PageOptions
from graphcore.view.data import page_data
from graphcore.view.graph_data import layout
from graphcore.view.text import array_text, attribute_text, short_text

SMALL = 80
"""The maximum number of nodes of a drawing; notebooks show larger graphs as the page."""

_MAX_SYMBOL_NODES = 24
"""The maximum number of nodes before a Symbol in its drawing."""

_LINES = 4
_LETTER, _LINE, _PADDING, _MAX_LINE_LENGTH, _BETWEEN = 6.7, 15.0, 8.0, 34, 30.0
_COLOURS = {
    "input": "#d9ead3", "output": "#d0e0f5", "node": "#eeeef6", "cast": "#fce5cd", "more": "#f3f3f3",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Box:
    """A box. title: its first line. lines: below the title. hint: its tooltip."""

    kind: str
    title: str
    lines: tuple[str, ...]
    hint: str

    @property
    def width(self) -> float:
        """The width in pixels."""
        return 2 * _PADDING + _LETTER * max(len(_cut(line)) for line in (self.title, *self.lines))

    @property
    def height(self) -> float:
        """The height in pixels."""
        return _PADDING + _LINE * (1 + len(self.lines))


def graph_svg(graph: Graph) -> str | None:
    """Return a drawing of a small graph, None for one of over `SMALL` nodes."""
    nodes = [node for node in graph.nodes if not any(map(is_swallowed, node.outputs))]
    if len(nodes) > SMALL:
        return None
    outputs = [(name or symbol.name, symbol) for name, symbol in graph.named_outputs]
    return _draw(graph, graph.input_symbols, nodes, outputs)


def symbol_svg(symbol: Symbol) -> str:
    """Return a drawing of the nearest nodes before a Symbol."""
    graph = symbol.graph
    wanted: dict[int, Node] = {}
    waiting = [symbol]
    while waiting and len(wanted) < _MAX_SYMBOL_NODES:
        node = waiting.pop(0).producer
        if isinstance(node, Node) and id(node) not in wanted:
            wanted[id(node)] = node
            waiting += [s for s in node.inputs if s is not None]
    nodes = [node for node in graph.nodes if id(node) in wanted]
    results = {id(s) for node in nodes for s in node.outputs}
    read = [s for node in nodes for s in node.inputs if s is not None] or [symbol]
    sources = {id(s): s for s in read if id(s) not in results and not isinstance(s.producer, Constant)}
    return _draw(graph, [*sources.values()], nodes, [(symbol.name, symbol)])


def graph_html(graph: Graph) -> str:
    """Return the HTML of a graph for notebooks: a drawing, or the page in a frame that runs scripts and saves files."""
    drawn = graph_svg(graph)
    if drawn is not None:
        return drawn
    try:
        page = page_html(graph, PageOptions(targets=(), statistics=False, weight_bytes=1 << 16))
    except GraphcoreError as error:  # the page is not built in this checkout
        return f"{code(repr(graph))}<p>{escaped(error.summary)}</p>"
    source = page.replace("&", "&amp;").replace('"', "&quot;")
    look = 'width="100%" height="640" style="border:1px solid #8888"'
    return f'<iframe sandbox="allow-scripts allow-downloads" {look} srcdoc="{source}"></iframe>'


def symbol_html(symbol: Symbol) -> str:
    """Return the HTML of a Symbol for notebooks: its name, its type, and a drawing of the nodes before it."""
    return f"<div>{code(str(symbol))}</div>{symbol_svg(symbol)}"


# Boxes


def _draw(graph: Graph, inputs: Sequence[Symbol], nodes: Sequence[Node], outputs: Sequence[tuple[str, Symbol]]) -> str:
    called = definitions(graph)
    reasons = {id(cast.node): cast.words for cast in casts_of(graph)}
    boxes: list[_Box] = []
    makers: dict[int, int] = {}
    edges: list[tuple[int, int]] = []
    for symbol in inputs:
        makers[id(symbol)] = len(boxes)
        boxes.append(_source(symbol))
    for node in nodes:
        edges += _edges(node.inputs, makers, len(boxes))
        makers.update((id(s), len(boxes)) for s in node.outputs)
        boxes.append(_box(node, called, reasons.get(id(node), "")))
    for name, symbol in outputs:
        edges += _edges([symbol], makers, len(boxes))
        boxes.append(_Box("output", name, (str(symbol.type),), f"output {name}"))
    return _svg(boxes, [*dict.fromkeys(edges)])


def _edges(operands: Iterable[Symbol | None], makers: dict[int, int], to: int) -> list[tuple[int, int]]:
    return [(makers[id(s)], to) for s in operands if s is not None and id(s) in makers]


def _source(symbol: Symbol) -> _Box:
    """Return the box of an input, or of a value whose node is not drawn."""
    is_made = isinstance(symbol.producer, (Node, Captured))
    kind = "buffer " if symbol.given_name in symbol.graph.buffers else ""
    hint = f"made by {symbol.line}" if is_made else f"{kind or 'input '}{symbol.name}"
    return _Box("more" if is_made else "input", f"{kind}{symbol.name}", (str(symbol.type),), hint)


def _box(node: Node, called: dict[Definition, str], reason: str) -> _Box:
    definition = definition_of(node)
    title = node.op_type if definition is None else called[definition]
    lines = [", ".join(str(s.type) for s in node.outputs[:2])]
    lines += [_constant(s, s.producer) for s in node.inputs if s is not None and isinstance(s.producer, Constant)]
    lines += [key for key, value in node.attributes.items() if isinstance(value, Graph)]
    if len(lines) > _LINES:
        lines[_LINES - 1 :] = [f"and {len(lines) - _LINES + 1} more operands"]
    attributes = [
        f"{key}={attribute_text(value)}"
        for key, value in node.attributes.items()
        if not isinstance(value, (Graph, Definition)) and not (definition is not None and key == "dims")
    ]
    hints = [", ".join(s.name for s in node.outputs), *attributes, str(node.line or ""), reason]
    is_cast = node.op_type == "Cast" and not node.domain
    return _Box("cast" if is_cast else "node", title, tuple(lines), "\n".join(filter(None, hints)))


def _constant(symbol: Symbol, producer: Constant) -> str:
    text = array_text(producer.array)
    return f"{symbol.given_name or ''} {text or symbol.type}".strip()


# Drawing


def _svg(boxes: Sequence[_Box], edges: Sequence[tuple[int, int]]) -> str:
    places = layout([box.width for box in boxes], edges)
    tops, heights, height = _rows(boxes, places.ranks)
    shapes = []
    for (start, end), route in zip(edges, places.routes, strict=True):
        first = tops[places.ranks[start]] + _top(boxes[start], heights[places.ranks[start]]) + boxes[start].height
        points = [(places.centres[start], first)]
        for rank, x in enumerate(route, places.ranks[start] + 1):
            points += [(x, tops[rank]), (x, tops[rank] + heights[rank])]
        points.append((places.centres[end], tops[places.ranks[end]] + _top(boxes[end], heights[places.ranks[end]])))
        shapes.append(f'<path d="{_path(points)}" fill="none" stroke="#888" marker-end="url(#gc-arrow)"/>')
    for box, centre, rank in zip(boxes, places.centres, places.ranks, strict=True):
        shapes.append(_shape(box, centre - box.width / 2, tops[rank] + _top(box, heights[rank])))
    arrow = (
        '<defs><marker id="gc-arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto"><path d="M0 0L8 4L0 8z" fill="#888"/></marker></defs>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{places.width + 4:.0f}" height="{height + 4:.0f}" '
        f'viewBox="-2 -2 {places.width + 4:.1f} {height + 4:.1f}" font-family="monospace" font-size="11">'
        f"{arrow}{''.join(shapes)}</svg>"
    )


def _rows(boxes: Sequence[_Box], ranks: Sequence[int]) -> tuple[list[float], list[float], float]:
    """Return the top and height of each rank, and the total height."""
    heights = [0.0] * (max(ranks, default=-1) + 1)
    for box, rank in zip(boxes, ranks, strict=True):
        heights[rank] = max(heights[rank], box.height)
    tops, top = [], 0.0
    for height in heights:
        tops.append(top)
        top += height + _BETWEEN
    return tops, heights, max(top - _BETWEEN, 0.0)


def _top(box: _Box, height: float) -> float:
    return (height - box.height) / 2


def _path(points: Sequence[tuple[float, float]]) -> str:
    """Return a path down through points: straight within ranks, curved between them."""
    (x, y), *others = points
    parts = [f"M{x:.1f} {y:.1f}"]
    for to_x, to_y in others:
        if abs(to_x - x) < 0.05:
            parts.append(f"L{to_x:.1f} {to_y:.1f}")
        else:
            middle = (y + to_y) / 2
            parts.append(f"C{x:.1f} {middle:.1f} {to_x:.1f} {middle:.1f} {to_x:.1f} {to_y:.1f}")
        x, y = to_x, to_y
    return "".join(parts)


def _shape(box: _Box, x: float, y: float) -> str:
    looks = ['fill="#111" font-weight="bold"', *['fill="#444"'] * len(box.lines)]
    lines = [
        f'<text x="{x + _PADDING:.1f}" y="{y + _LINE * (i + 1):.1f}" {look}>{escaped(_cut(line))}</text>'
        for i, (line, look) in enumerate(zip((box.title, *box.lines), looks, strict=True))
    ]
    return (
        f"<g><title>{escaped(short_text(box.hint))}</title>"
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" rx="4" '
        f'fill="{_COLOURS[box.kind]}" stroke="#667"/>{"".join(lines)}</g>'
    )


def _cut(line: str) -> str:
    return line if len(line) <= _MAX_LINE_LENGTH else f"{line[: _MAX_LINE_LENGTH - 1]}\u2026"


# The page: one HTML file with its program, style and data, which loads nothing over the network.

ASSETS = Path(__file__).parent / "assets"
"""The built program and style of the page."""

_ESCAPES = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})

_TEMPLATE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="referrer" content="no-referrer">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main id="page"><noscript>This page draws a graph, for which it needs JavaScript.</noscript></main>
<script type="application/json" id="graphcore-data">{data}</script>
<script>{program}</script>
</body>
</html>
"""


def save_html(graph: Graph, path: str | os.PathLike[str], options: PageOptions) -> str:
    """Write the page of a graph atomically, and return the path of the file. Raises as `Graph.save_html`."""
    data = page_data(graph, options)
    content = html_of(data).encode("ascii")
    try:
        file = os.path.realpath(os.fspath(path))
        wasm = data.get("run", {}).get("beside")
        before = [(os.path.join(os.path.dirname(file), wasm), web_package()[2:])] if wasm else []
        replace_files([*before, (file, (content,))])
    except (OSError, ValueError) as error:
        raise ExportError(
            f"save_html: {os.fspath(path)} cannot be written: {getattr(error, 'strerror', None) or error}",
            help="choose a folder that exists and can be written to",
        ) from error
    return file


def view(graph: Graph, path: str | os.PathLike[str] | None, opens: bool, options: PageOptions) -> str:
    """Write the page, to a temporary file if `path` is None, open it in a browser if `opens`, and return its path."""
    if path is None:
        if options.run == "beside":
            raise GraphError("view: run='beside' needs a path", help="give a path in a folder that a server serves")
        handle, path = tempfile.mkstemp(prefix="graphcore-", suffix=".html")
        os.close(handle)
        try:
            file = save_html(graph, path, options)
        except BaseException:
            os.unlink(path)
            raise
    else:
        file = save_html(graph, path, options)
    if opens:
        import webbrowser  # imported only to open a browser

        webbrowser.open(Path(file).as_uri())
    return file


def page_html(graph: Graph, options: PageOptions) -> str:
    """Return the HTML of the page, in ASCII."""
    return html_of(page_data(graph, options))


def html_of(data: Mapping[str, Any]) -> str:
    """Return the HTML of the page for the result of `page_data`. Raises `GraphError` if the page is not built."""
    program, style = asset("page.js"), asset("page.css")
    digest = base64.b64encode(hashlib.sha256(program.encode("ascii")).digest()).decode()
    # This one program runs, and nothing is loaded or sent, but the WebAssembly beside the page.
    run = data.get("run")
    wasm = "" if run is None else " 'wasm-unsafe-eval'"
    connect = "connect-src 'self'; " if run is not None and run["beside"] else ""
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'{wasm} blob:; worker-src blob:; {connect}"
        "style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    return _TEMPLATE.format(
        policy=policy,
        title=escaped(str(data["title"])).encode("ascii", "xmlcharrefreplace").decode(),
        style=style,
        data=embed_json(data),
        program=program,
    )


def embed_json(data: Mapping[str, Any]) -> str:
    """Return data as JSON for a script element: ASCII, without characters that begin markup."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).translate(_ESCAPES)


def asset(name: str) -> str:
    """Return an asset of the page. Raises `GraphError` if it is missing, or contains a tag that ends its element."""
    try:
        text = (ASSETS / name).read_text(encoding="ascii")
    except (OSError, ValueError) as error:
        raise GraphError(
            f"view: {name} of the page cannot be read: {error}",
            help="install a wheel of graphcore, or build the page in a checkout: make page",
        ) from error
    if "</script" in text.lower() or "<!--" in text or "</style" in text.lower():
        raise GraphError(
            f"view: {name} of the page contains a tag that would end its element",
            help="build the page again: make page",
        )
    return text
