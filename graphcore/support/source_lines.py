"""The lines of the user's code that nodes come from."""

from __future__ import annotations

import linecache
import os
import sys
from types import CodeType
from typing import Any, NamedTuple, TypeAlias

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
# Rooms are reached through links from graphcore/ or lie beside it: both spellings are ours.
_ROOMS = tuple(
    {
        _ROOT,
        *(
            os.path.realpath(_ROOT + room) + os.sep
            for room in ("array_api", "ops", "runtime", "models")
            if os.path.exists(_ROOT + room)
        ),
    }
)
# A model is user code to the library: its lines are the ones an error should show.
_MODELS = tuple({_ROOT + "models" + os.sep, os.path.realpath(_ROOT + "models") + os.sep})
# Of what is installed these packages call functions that they are given; any other may be a library of models.
_WRAPPERS = frozenset({"_pytest", "decorator", "joblib", "numpy", "pluggy", "scipy", "toolz", "tqdm", "wrapt"})
_STANDARD = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_INSTALLED = ("site-packages" + os.sep, "dist-packages" + os.sep)
is_ours: dict[str, bool] = {}
"""True, by path, for files whose lines are not the user's: the library's, and those between it and the user."""
_is_wrapper: set[str] = set()
"""Of those, the files of others."""


_LONGEST = 160
"""Characters of a line that errors show."""


class Line(NamedTuple):
    """A line of the user's code; printed as `file.py:12`."""

    path: str
    number: int

    def __str__(self) -> str:
        return f"{os.path.basename(self.path)}:{self.number}"

    @property
    def text(self) -> str:
        """The line itself, stripped; empty where the file cannot be read."""
        return linecache.getline(self.path, self.number).strip()

    @property
    def excerpt(self) -> str:
        """The line as errors show it: the beginning of one that is long, as generated code has them."""
        text = self.text
        return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


class Imported(Line):
    """A line that loaded a model of others: the origin of its nodes, and of what they are made into.

    Such nodes keep the numbers of the kernels that the model was written for.
    """

    __slots__ = ()


class Loaded(Line):
    """A line that loaded a model that this package wrote: the origin of its nodes."""

    __slots__ = ()


class PromotedLine(Line):
    """The line of an op that had an operand cast: the origin of that cast, and of what passes make of it."""

    cause: tuple[Any, ...]
    """The op, then its operands as they were before: types of Symbols, `(class, value)` of Python numbers."""


# A place in the user's code is kept as (code, instruction), which costs next to nothing; its line is worked out when
# asked for. A graph that was pickled keeps the line. Of a cast that was inserted there is the cause too, as
# `PromotedLine` has it.
Origin: TypeAlias = "tuple[CodeType, int] | tuple[CodeType, int, tuple[Any, ...]]"


def _ours(path: str) -> bool:
    ours = path.startswith(_ROOMS) and not path.startswith(_MODELS)
    if not ours and _wraps(path):
        _is_wrapper.add(path)
        ours = True
    is_ours[path] = ours
    return ours


def _wraps(path: str) -> bool:
    """Return whether a file is of the standard library, or of a package that calls functions that it is given."""
    if path.startswith(("<frozen ", "<__array_function__")):
        return True
    for folder in _INSTALLED:
        before, found, inside = path.rpartition(folder)
        if found and before.endswith(os.sep):
            return inside.partition(os.sep)[0].removesuffix(".py") in _WRAPPERS
    return path.startswith(_STANDARD)


def origin_of(frame: Any) -> Origin | None:
    """The innermost frame of the user's code, from `frame` outwards; None where there is none.

    Frames of NumPy, contextlib and the like are passed over where a user's frame stands outside of them.
    """
    known = is_ours
    wrapper: Origin | None = None
    while frame is not None:
        code = frame.f_code
        path = code.co_filename
        ours = known.get(path)
        if not (_ours(path) if ours is None else ours):
            return code, frame.f_lasti
        if wrapper is None and path in _is_wrapper:
            wrapper = code, frame.f_lasti
        frame = frame.f_back
    return wrapper


def user_origin(depth: int = 1) -> Origin | None:
    """`origin_of` the caller `depth` frames up."""
    return origin_of(sys._getframe(depth))


def user_line(depth: int = 1) -> Line | None:
    """The user's line, the innermost one that `origin_of` finds, `depth` callers up or more.

    Of what a model says itself, about its configuration or its weights, that is a line outside of the models too.
    """
    frame: Any = sys._getframe(depth)
    if frame.f_code.co_filename.startswith(_MODELS):
        while frame is not None and (frame.f_code.co_filename.startswith(_ROOMS) or _is_generated(frame.f_code)):
            frame = frame.f_back
    return line_of(origin_of(frame))


def _is_generated(code: CodeType) -> bool:
    """Return whether code is a dataclass's generated `__init__`."""
    return code.co_filename == "<string>" and code.co_name == "__init__"


def line_of(origin: Origin | Line | None) -> Line | None:
    """The line of an origin, worked out now."""
    if origin is None or isinstance(origin, Line):
        return origin
    code, instruction = origin[:2]
    lines = ((start, end, line) for start, end, line in code.co_lines() if line is not None)
    number = next((line for start, end, line in lines if start <= instruction < end), code.co_firstlineno)
    if len(origin) == 2:
        return Line(code.co_filename, number)
    made = PromotedLine(code.co_filename, number)
    made.cause = origin[2]
    return made


def promoted(origin: Origin | Line | None, cause: tuple[Any, ...]) -> Origin | Line | None:
    """Return an origin that says why a cast was inserted there. What was read from a file keeps its own."""
    if type(origin) is tuple:  # most are; no Line is one, whatever checkers think
        return origin[0], origin[1], cause  # type: ignore[return-value]
    if origin is None or isinstance(origin, (Imported, Loaded)):
        return origin
    made = PromotedLine(*origin[:2])
    made.cause = cause
    return made


def cause_of(origin: Origin | Line | None) -> tuple[Any, ...] | None:
    """Return why a cast was inserted, as `PromotedLine.cause`; None where that is not known, or the user wrote it."""
    if isinstance(origin, PromotedLine):
        return origin.cause
    return None if origin is None or isinstance(origin, Line) or len(origin) == 2 else origin[2]
