"""Output of commands: tables, JSON, progress bars, and files written atomically.

On a terminal the package rich draws them if it is installed; otherwise text is plain and aligned.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TextIO, TypeAlias, TypeVar, cast

from graphcore.errors import ExportError
from graphcore.support.atomic_files import replace_files
from graphcore.support.escaping import escaped
from graphcore.support.progress import Progress

Record = TypeVar("Record")

Advance: TypeAlias = Callable[[int, "int | None"], None]
"""Called with the amount done and the total, or None if that is unknown."""

_DELAY = 1.0
"""Seconds before progress is displayed."""

_UPDATE_SECONDS = 0.2
"""Seconds between two updates of a bar."""


def escaped_record(record: Record) -> Record:
    """Return a dataclass with its strings escaped, also those in tuples and nested dataclasses."""
    item: Any = record
    changed = {field.name: _escaped_value(getattr(item, field.name)) for field in fields(item)}
    return cast("Record", replace(item, **changed))


def _escaped_value(value: Any) -> Any:
    if isinstance(value, str):
        return escaped(value)
    if isinstance(value, tuple):
        return tuple(map(_escaped_value, value))
    return escaped_record(value) if is_dataclass(value) and not isinstance(value, type) else value


def is_terminal(stream: TextIO) -> bool:
    """Return True if a stream is a terminal that can move its cursor."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def has_colour(stream: TextIO) -> bool:
    """Return True if a stream displays colours. Source: no-color.org."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR")


@functools.cache
def has_rich() -> bool:
    """Return True if the package rich is installed."""
    return importlib.util.find_spec("rich") is not None


def line(text: str = "") -> None:
    """Print a line, escaped."""
    print(escaped(text))


def heading(text: str) -> None:
    """Print the title of a section after an empty line, in bold if the terminal has colours."""
    escaped_text = escaped(text)
    print(f"\n\x1b[1m{escaped_text}\x1b[0m" if has_colour(sys.stdout) else f"\n{escaped_text}")


def table(rows: Sequence[Sequence[str]], *, head: Sequence[str] = (), numbers: Collection[int] = ()) -> None:
    """Print rows. numbers: the columns to align on the right."""
    if not rows:
        return
    if is_terminal(sys.stdout) and has_rich():
        _print_rich_table(rows, head, numbers)
        return
    for text in aligned([head, *rows] if head else rows, numbers):
        print(text)


def aligned(rows: Sequence[Sequence[str]], numbers: Collection[int] = ()) -> list[str]:
    """Return the rows as lines with aligned columns. numbers: the columns to align on the right."""
    cells = [[escaped(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if i in numbers else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]


def _print_rich_table(rows: Sequence[Sequence[str]], head: Sequence[str], numbers: Collection[int]) -> None:
    """Print a table that fits the terminal, with rich."""
    # Importing rich takes as long as importing the rest of the command line.
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=None, show_header=bool(head), pad_edge=False, padding=(0, 2, 0, 0))
    for i in range(len(rows[0])):
        right = i in numbers
        grid.add_column(
            Text(head[i]) if head else "", justify="right" if right else "left", overflow="fold", no_wrap=right
        )
    for row in rows:
        grid.add_row(*(Text(escaped(cell)) for cell in row))
    Console(highlight=False).print(grid)


def document(value: object) -> None:
    """Print one JSON document. Numbers that are not finite become the strings "nan", "inf" and "-inf"."""
    print(json_text(value))


def json_text(value: object) -> str:
    """Return the text that `document` prints."""
    return json.dumps(_plain(value), indent=2, allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value


@contextlib.contextmanager
def working(what: str) -> Iterator[None]:
    """Display a text on stderr while work takes over a second, if stderr is a terminal."""
    if not is_terminal(sys.stderr):
        yield
        return
    is_displayed = threading.Event()

    def show() -> None:
        is_displayed.set()
        sys.stderr.write(f"{escaped(what)} ...")
        sys.stderr.flush()

    timer = threading.Timer(_DELAY, show)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        if is_displayed.is_set():
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


@contextlib.contextmanager
def progress(what: str) -> Iterator[Advance]:
    """Yield the function to call with the progress of work: a bar on stderr after a second, if it is a terminal."""
    if not is_terminal(sys.stderr):
        yield lambda done, total: None
        return
    started = time.perf_counter()
    bar: Progress | _RichBar | None = None

    def advance(done: int, total: int | None) -> None:
        nonlocal bar
        if bar is None and time.perf_counter() - started > _DELAY:
            bar = _RichBar(total, what) if has_rich() else Progress(total, escaped(what))
        if bar is not None:
            bar.show(done)

    try:
        yield advance
    finally:
        if bar is not None:
            bar.close()


class _RichBar:
    """A bar of the package rich, which disappears when the work is done."""

    def __init__(self, total: int | None, what: str) -> None:
        # Imported late, as in `_print_rich_table`.
        from rich.console import Console
        from rich.markup import escape
        from rich.progress import Progress as Bar

        # Drawn only between steps: a thread that draws would disturb measurements.
        console = Console(stderr=True, highlight=False)
        self._bar = Bar(console=console, transient=True, auto_refresh=False)
        self._task = self._bar.add_task(escape(escaped(what)), total=total)
        self._bar.start()
        self._total = total
        self._last_drawn = 0.0

    def show(self, done: int) -> None:
        now = time.perf_counter()
        if now - self._last_drawn > _UPDATE_SECONDS or done == self._total:
            self._last_drawn = now
            self._bar.update(self._task, completed=done, refresh=True)

    def close(self) -> None:
        self._bar.stop()


def size(count: int | float) -> str:
    """Return a number of bytes with a unit: 1.2 MB."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{int(count)} B"


def short_count(count: int | float) -> str:
    """Return a number with a unit: 1.20 M, 3.40 G."""
    for unit, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if count >= scale:
            return f"{count / scale:.2f} {unit}"
    return str(int(count))


# Files that commands write: completely, or not at all.


def write(what: str, path: str, chunks: Sequence[bytes | memoryview]) -> None:
    """Write a file. what: the command, for errors. Raises `ExportError` if it cannot be written."""
    try:
        replace_files([(os.path.realpath(path), chunks)])
    except OSError as error:
        raise ExportError(
            f"{what}: {path} cannot be written: {error.strerror or error}",
            help="choose an existing folder with write permission",
        ) from None


def write_text(what: str, path: str, text: str) -> None:
    """Write a text file. Raises as `write` does."""
    write(what, path, [text.encode("utf-8", "backslashreplace")])


def require_other(what: str, source: str, path: str) -> None:
    """Raise `ExportError` if the file to write is the file that is read."""
    if os.path.exists(path) and os.path.exists(source) and os.path.samefile(source, path):
        raise ExportError(f"{what}: {path} is the file that is read", help="choose another name for the file to write")
