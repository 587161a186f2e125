"""The source lines of user code that nodes come from."""

from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Iterable
from types import CodeType
from typing import Any, NamedTuple, Self, TypeAlias

from graphcore._version import FOLDER, PACKAGES
from graphcore.support.notebook import cell_of

# Packages beside graphcore/ may be linked into it: both paths belong to the library.
_PACKAGES = tuple(
    {path + os.sep for folder in (FOLDER, *PACKAGES.values()) for path in (folder, os.path.realpath(folder))}
)
# Models are user code: errors should show their lines.
_MODELS = tuple({PACKAGES["models"] + os.sep, os.path.realpath(PACKAGES["models"]) + os.sep})
# Installed packages that call functions of the user. Other installed packages may define models, so they are user code.
_WRAPPERS = frozenset({"_pytest", "decorator", "joblib", "numpy", "pluggy", "scipy", "toolz", "tqdm", "wrapt"})
_STANDARD = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_INSTALLED = ("site-packages" + os.sep, "dist-packages" + os.sep)
is_ours: dict[str, bool] = {}
"""True by path for files that are not user code: the library, and wrappers between it and the user."""
_is_wrapper: set[str] = set()
"""The files of wrappers."""


_MAX_LENGTH = 160
"""The maximum number of characters of a line in an error."""


class Line(NamedTuple):
    """A line of user code, printed as `file.py:12`, and as `Cell In[3], line 5` in a notebook."""

    path: str
    number: int

    def __str__(self) -> str:
        cell = cell_of(self.path)
        return f"{cell}, line {self.number}" if cell else f"{os.path.basename(self.path)}:{self.number}"

    @property
    def text(self) -> str:
        """The text of the line, stripped; empty if the file cannot be read."""
        return linecache.getline(self.path, self.number).strip()

    @property
    def excerpt(self) -> str:
        """The text of the line in errors, shortened if it is long, as in generated code."""
        text = self.text
        return text if len(text) <= _MAX_LENGTH else f"{text[: _MAX_LENGTH - 3]}..."


class OfFile(Line):
    """A line that loaded a model: the origin of its nodes, and of the nodes that passes derive from them.

    The origin of each node of a file has its `NodeFields` as further items.
    """

    __slots__ = ()

    def __new__(cls, path: str, number: int, *fields: Any) -> Self:
        return tuple.__new__(cls, (path, number, *fields))

    @property
    def fields(self) -> NodeFields | None:
        """The fields of the node in the file; None if they were not read."""
        return NodeFields(*self[2:]) if len(self) > 2 else None

    def with_sources(self, others: Iterable[object]) -> OfFile:
        """Return the origin of a node that a pass made of this one and of others, which are named first."""
        if len(self) == 2:
            return self
        of_file = [o.fields for o in (*others, self) if isinstance(o, OfFile)]
        names = dict.fromkeys(name for own in of_file if own is not None for name in own.sources or (own.label,))
        return type(self)(*self[:_BEFORE_SOURCES], tuple(names)[-_MAX_SOURCES:])


_BEFORE_SOURCES = 8
"""The number of items before `NodeFields.sources`."""
_MAX_SOURCES = 100
"""The number of nodes that are named, the last ones."""


class Imported(OfFile):
    """A line that loaded a third-party model. Its nodes keep the numbers of the kernels that it was written for."""

    __slots__ = ()


class Loaded(OfFile):
    """A line that loaded a model written by this package."""

    __slots__ = ()


class NodeFields(NamedTuple):
    """The fields of a node of a file that do not say what it computes, encoded, and those by which it is recognised.

    output: the name of its first result. name: the field, empty if there is none. rest: all others. attributes: the
    fields of attributes beside their values, by name. sources: the names of the nodes that a pass made one of; empty if
    it is this one alone.
    """

    op_type: str
    domain: str
    output: str
    name: bytes
    rest: bytes
    attributes: tuple[tuple[str, bytes], ...] = ()
    sources: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The name of the node, or that of its first result."""
        start = 1  # after the tag: the length, whose last byte is below 128
        while self.name[start : start + 1] > b"\x7f":
            start += 1
        return self.name[start + 1 :].decode() or self.output


class PromotedLine(Line):
    """The line of an op that cast an operand implicitly: the origin of that cast, and of nodes derived from it."""

    cause: tuple[Any, ...]
    """The op, then its operands before the cast: types of Symbols, `(class, value)` of Python numbers."""


# A location in user code is stored as (code, instruction), which is cheap; `line_of` computes the line on demand.
# Pickled graphs store the line. Implicit casts also have a cause, as in `PromotedLine`.
Origin: TypeAlias = "tuple[CodeType, int] | tuple[CodeType, int, tuple[Any, ...]]"


def _ours(path: str) -> bool:
    ours = path.startswith(_PACKAGES) and not path.startswith(_MODELS)
    if not ours and _wraps(path):
        _is_wrapper.add(path)
        ours = True
    is_ours[path] = ours
    return ours


def _wraps(path: str) -> bool:
    """Return True for files of the standard library, and of packages that call functions of the user."""
    if path.startswith(("<frozen ", "<__array_function__")):
        return True
    for folder in _INSTALLED:
        before, separator, inside = path.rpartition(folder)
        if separator and before.endswith(os.sep):
            return inside.partition(os.sep)[0].removesuffix(".py") in _WRAPPERS
    return path.startswith(_STANDARD)


def origin_of(frame: Any) -> Origin | None:
    """Return the innermost frame of user code, from `frame` outwards; None if there is none.

    Frames of NumPy, contextlib and the like are skipped if there is a user frame outside of them.
    """
    cached = is_ours
    wrapper: Origin | None = None
    while frame is not None:
        code = frame.f_code
        path = code.co_filename
        ours = cached.get(path)
        if not (_ours(path) if ours is None else ours):
            return code, frame.f_lasti
        if wrapper is None and path in _is_wrapper:
            wrapper = code, frame.f_lasti
        frame = frame.f_back
    return wrapper


def user_origin(depth: int = 1) -> Origin | None:
    """Return `origin_of` the caller `depth` frames up."""
    return origin_of(sys._getframe(depth))


def user_line(depth: int = 1) -> Line | None:
    """Return the innermost line of user code, `depth` callers up or more.

    For errors that a model itself raises, about its configuration or weights, it is a line outside of the models.
    """
    frame: Any = sys._getframe(depth)
    if frame.f_code.co_filename.startswith(_MODELS):
        while frame is not None and (frame.f_code.co_filename.startswith(_PACKAGES) or _is_generated(frame.f_code)):
            frame = frame.f_back
    return line_of(origin_of(frame))


def _is_generated(code: CodeType) -> bool:
    """Return True for the generated `__init__` of a dataclass."""
    return code.co_filename == "<string>" and code.co_name == "__init__"


def line_of(origin: Origin | Line | None) -> Line | None:
    """Return the line of an origin."""
    if origin is None or isinstance(origin, Line):
        return origin
    code, instruction = origin[:2]
    lines = ((start, end, line) for start, end, line in code.co_lines() if line is not None)
    number = next((line for start, end, line in lines if start <= instruction < end), code.co_firstlineno)
    if len(origin) == 2:
        return Line(code.co_filename, number)
    result = PromotedLine(code.co_filename, number)
    result.cause = origin[2]
    return result


def promoted(origin: Origin | Line | None, cause: tuple[Any, ...]) -> Origin | Line | None:
    """Return an origin with the cause of an implicit cast. Origins of loaded models do not change."""
    if type(origin) is tuple:  # the common case; a Line has another type
        return origin[0], origin[1], cause  # type: ignore[return-value]
    if origin is None or isinstance(origin, OfFile):
        return origin
    result = PromotedLine(*origin[:2])
    result.cause = cause
    return result


def cause_of(origin: Origin | Line | None) -> tuple[Any, ...] | None:
    """Return the cause of an implicit cast, see `PromotedLine.cause`; None for explicit casts, or if it is unknown."""
    if isinstance(origin, PromotedLine):
        return origin.cause
    return None if origin is None or isinstance(origin, Line) or len(origin) == 2 else origin[2]
