"""The page: one HTML file with its program, its style and its data, which loads nothing and asks no network."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from graphcore.errors import ExportError, GraphError
from graphcore.ir.graph import Graph
from graphcore.support.atomic_files import replace_files
from graphcore.support.markup import escaped
from graphcore.view.data import Shown, page_data

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


def save_html(graph: Graph, path: str | os.PathLike[str], shown: Shown) -> str:
    """Write the page of a graph, whole or not at all, and return the path of the file. Raises as `Graph.save_html`."""
    content = page_html(graph, shown).encode("ascii")
    try:
        file = os.path.realpath(os.fspath(path))
        replace_files([(file, (content,))])
    except (OSError, ValueError) as error:
        raise ExportError(
            f"save_html: {os.fspath(path)} cannot be written: {getattr(error, 'strerror', None) or error}",
            help="choose a folder that exists and can be written to",
        ) from error
    return file


def view(graph: Graph, path: str | os.PathLike[str] | None, opens: bool, shown: Shown) -> str:
    """Write the page, to a temporary file where there is no path, show it in the browser, and return its path."""
    if path is None:
        handle, path = tempfile.mkstemp(prefix="graphcore-", suffix=".html")
        os.close(handle)
        try:
            file = save_html(graph, path, shown)
        except BaseException:
            os.unlink(path)
            raise
    else:
        file = save_html(graph, path, shown)
    if opens:
        import webbrowser  # what only writes a page needs none

        webbrowser.open(Path(file).as_uri())
    return file


def page_html(graph: Graph, shown: Shown) -> str:
    """Return the page as text of ASCII characters."""
    return html_of(page_data(graph, shown))


def html_of(data: Mapping[str, Any]) -> str:
    """Return the page of data that `page_data` gave. Raises `GraphError` where the page's program was not built."""
    program, style = asset("page.js"), asset("page.css")
    return _TEMPLATE.format(
        policy=_policy(program),
        title=escaped(str(data["title"])).encode("ascii", "xmlcharrefreplace").decode(),
        style=style,
        data=embedded(data),
        program=program,
    )


def embedded(data: Mapping[str, Any]) -> str:
    """Return data as JSON that may stand in a script element: ASCII, and no character that begins markup."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).translate(_ESCAPES)


def asset(name: str) -> str:
    """Return a file of the page, as ASCII. Raises `GraphError` where there is none, or one that ends its element."""
    try:
        text = (ASSETS / name).read_text(encoding="ascii")
    except (OSError, ValueError) as error:
        raise GraphError(
            f"view: {name} of the page is not there, or no text: {error}",
            help="install a wheel of graphcore, or build the page in a checkout: make page",
        ) from error
    if "</script" in text.lower() or "<!--" in text or "</style" in text.lower():
        raise GraphError(f"view: {name} has a tag that ends it", help="build the page anew: make page")
    return text


def _policy(program: str) -> str:
    """Return the Content-Security-Policy: this one program runs, and nothing is loaded or sent."""
    digest = base64.b64encode(hashlib.sha256(program.encode("ascii")).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}' blob:; worker-src blob:; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
