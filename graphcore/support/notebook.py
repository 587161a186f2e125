"""IPython and its notebooks, as far as a program runs in one: names of cells, and a bar that is updated in place."""

from __future__ import annotations

import sys
from typing import Any

from graphcore.support.markup import escaped


def cell_of(path: str) -> str:
    """Return `Cell In[3]` for the path of the code of a cell, "" for other paths.

    IPython 8.12 to 9.18 tells it. Older releases, 7.34 and 8.0, do not.
    """
    name = getattr(getattr(_shell(), "compile", None), "format_code_name", None)
    words = name(path) if name is not None else None
    return " ".join(words) if words else ""


def display() -> Any:
    """Return a display of IPython that can be updated, None outside of notebooks. It is empty."""
    if getattr(_shell(), "kernel", None) is None:  # in a terminal
        return None
    return sys.modules["IPython"].display.display({"text/plain": ""}, raw=True, display_id=True)


def update(display: Any, done: int, total: int | None, text: str) -> None:
    """Show a bar with a text in a display. total: None if it is unknown, which shows the text alone."""
    bar = "" if total is None else f'<progress value="{min(done, total)}" max="{max(total, 1)}"></progress> '
    display.update({"text/plain": text, "text/html": f"<div>{bar}{escaped(text)}</div>"}, raw=True)


def _shell() -> Any:
    """Return the shell of IPython, None if the program does not run in one."""
    module = sys.modules.get("IPython")
    return None if module is None else module.get_ipython()
