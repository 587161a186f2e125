"""Opened models: their bytes, their message, and what the message says of versions, names and defaults.

Only a large message, and what needs a Graph, imports the package onnx: its import takes longer than most direct loads.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import sys
from collections.abc import Callable, Iterable, Sequence, Set
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from graphcore.arrays.external_data import Folder, Links, model_bytes
from graphcore.arrays.resource_limits import USUAL, Limits, Watch
from graphcore.errors import ModelError
from graphcore.onnx import notes
from graphcore.onnx.notes import LIMIT
from graphcore.onnx.proto import messages
from graphcore.onnx.proto.limits import MAX_NAME_LENGTH, check_text, invalid
from graphcore.onnx.proto.type_protos import read_type
from graphcore.onnx.proto.value_protos import Large, split, varint_at
from graphcore.types.tensor_types import Type

if TYPE_CHECKING:
    import onnx

_ALIGNMENT = 4


class Opened:
    """An opened model: its bytes, and its protobuf message once it is parsed.

    path: of the file; None for a model in memory. folder: of its external data. name: for errors. limits: of resources.
    watch: the time since it was opened.
    """

    def __init__(self, source: object, links: Links | None, limits: Limits = USUAL) -> None:
        self.limits = limits
        self.watch = Watch(limits)
        is_path = isinstance(source, (str, os.PathLike))
        self.path = os.fsdecode(os.fspath(source)) if is_path else None  # type: ignore[call-overload]
        self._stamp_at_open = self._stamp()
        self.content, self.folder, self.name = content_of(source, links, self._admit)
        self._bytes = 0
        self._count(len(self.content))
        self._split: tuple[onnx.ModelProto, Large] | None = None

    @classmethod
    def of_parts(cls, proto: onnx.ModelProto, large: Large) -> Opened:
        """Return a model in memory. proto: the message without the content of some tensors. large: that content."""
        opened = cls(b"", None)
        opened._split, opened.name = (proto, large), proto.graph.name or "the model"
        return opened

    @property
    def proto(self) -> onnx.ModelProto:
        """The message without the content of the graph's large tensors. Raises `ModelError`."""
        return self._parsed()[0]

    @property
    def large(self) -> Large:
        """The content of the graph's large tensors, by position."""
        return self._parsed()[1]

    def is_aligned(self) -> bool:
        """Return True if most bytes of the large tensors are where kernels can use them, without a copy."""
        sizes = {True: 0, False: 0}
        for content in self.large.contents:
            sizes[np.frombuffer(content, np.uint8).ctypes.data % _ALIGNMENT == 0] += len(content)
        return sizes[True] >= sizes[False]

    def _admit(self, stat: os.stat_result, tensor: str) -> None:
        """Raise an error for a file of external data that must not be read."""
        if (stat.st_dev, stat.st_ino) == self._stamp_at_open[:2]:
            raise invalid(
                f"the external data of {tensor} is the model's own file", help="save the model with its data inside"
            )
        if self.limits.strict is not None:
            raise invalid(
                f"{tensor} has external data, which the limit strict does not allow",
                help="save the model with its data inside, or load it without strict",
            )
        self._count(stat.st_size)

    def _count(self, size: int) -> None:
        self._bytes += size
        self.limits.check("bytes", self._bytes, f"{self.name} has {self._bytes} bytes with its data")

    def files(self) -> dict[str, memoryview]:
        """Return the content of the opened files, by their paths in the folder; "" is the model's own."""
        return {"": self.content, **self.folder.files}

    def place(self, array: np.ndarray[Any, Any]) -> tuple[str, int] | None:
        """Return the path of the opened file with an array's memory, and the offset there; None if it is in none."""
        address = array.ctypes.data
        for location, content in self.files().items():
            offset = address - np.frombuffer(content, np.uint8).ctypes.data
            if 0 <= offset < len(content) and isinstance(content.obj, mmap.mmap):
                return location, offset
        return None

    def is_unchanged(self) -> bool:
        """Return True if the file is the one that was opened, by its times, size and inode."""
        return self._stamp() == self._stamp_at_open

    def is_overwritten(self) -> bool:
        """Return True if the file was written to in place, so that its mapped bytes have changed."""
        now = self._stamp()
        return now[:2] == self._stamp_at_open[:2] and now != self._stamp_at_open

    def forget(self) -> None:
        """Drop the parsed message and the pages of the file in memory; the next use reads them again."""
        self._split = None
        if isinstance(self.content.obj, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            self.content.obj.madvise(mmap.MADV_DONTNEED)

    def whole(self) -> onnx.ModelProto:
        """Return the message with the content of all tensors, not cached. Raises `ModelError`."""
        own = None if is_imported() else messages.decoded(self.content)
        return own or self._message(self.content)

    def _parsed(self) -> tuple[onnx.ModelProto, Large]:
        if self._split is None:
            try:
                if not self.content:
                    raise not_a_model(self.name, self.content)
                slim, large = split(self.content)
            except ModelError:
                raise not_a_model(self.name, self.content) from None
            self._split = self._message(slim), large
        return self._split

    def _message(self, content: bytes | memoryview) -> onnx.ModelProto:
        import onnx

        try:
            message: onnx.ModelProto = onnx.ModelProto.FromString(content)
        except Exception:
            raise not_a_model(self.name, self.content) from None
        return message

    def _stamp(self) -> tuple[int, ...]:
        if self.path is None:
            return ()
        try:
            stat = os.stat(self.path)
        except (OSError, ValueError):  # reading the file raises a better error
            return (0,)
        return stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns


def is_imported() -> bool:
    """Return True if the package onnx is imported: then its parser is the fastest."""
    return "onnx" in sys.modules


def is_message(source: object) -> TypeGuard[onnx.ModelProto]:
    """Return True for a ModelProto. Without the package onnx there are none."""
    package = sys.modules.get("onnx")
    return package is not None and isinstance(source, package.ModelProto)


def content_of(
    source: object, links: Links | None = None, admit: Callable[[os.stat_result, str], None] | None = None
) -> tuple[memoryview, Folder, str]:
    """Return the bytes of a model, the folder of its external data, and its name for errors."""
    if is_message(source):
        if source.ByteSize() > LIMIT:
            raise invalid("the model is larger than 2 GiB", help="give its path")
        return memoryview(source.SerializeToString()), Folder(None), source.graph.name or "the model"
    if isinstance(source, (bytes, bytearray, memoryview)):
        return memoryview(bytes(source)), Folder(None), "the model"
    if isinstance(source, (str, os.PathLike)):
        path = os.fsdecode(os.fspath(source))
        return model_bytes(path), Folder(os.path.dirname(os.path.abspath(path)), links, admit), path
    raise invalid(
        f"the model must be a path, bytes or a ModelProto, got {type(source).__name__}",
        help="give a path, bytes or a ModelProto; sessions also load a Graph",
    )


def overridable(proto: onnx.ModelProto) -> frozenset[str]:
    """Return the names of the initializers that a call of the runtime may override: those that are also inputs."""
    inputs = {value.name for value in proto.graph.input} if proto.ir_version >= _MIN_IR_OF_DEFAULTS else ()
    return frozenset(tensor.name for tensor in proto.graph.initializer if tensor.name in inputs) if inputs else _NONE


def default_names(proto: onnx.ModelProto, requested: bool | Iterable[str]) -> frozenset[str]:
    """Return the names of the initializers that are defaults of inputs: the requested ones, or all if requested is True
    or graphcore wrote the model, which lists no others. Raises `ModelError` for the name of another value.
    """
    names = overridable(proto)
    if requested is True or (names and any(p.key.partition("#")[0] == notes.PROMOTION for p in proto.metadata_props)):
        return names
    chosen = frozenset([requested] if isinstance(requested, str) else requested or ())
    if unknown := sorted(chosen - names):
        raise invalid(
            f"{unknown[0]!r:.80} is not an initializer that is also an input, so it cannot be a default",
            help=f"those of the model: {', '.join(sorted(names)[:_MAX_NAMES_IN_ERRORS]) or 'none'}",
        )
    return chosen


def constants_of(proto: onnx.ModelProto, defaults: Set[str]) -> dict[str, Type]:
    """Return the declared types of the other constants that calls may override; none if one is invalid."""
    names = overridable(proto) - defaults
    with contextlib.suppress(ModelError):
        return {v.name: read_type(v.type) for v in proto.graph.input if v.name in names} if names else {}
    return {}


_MAX_NAMES_IN_ERRORS = 20
_MIN_IR_OF_DEFAULTS = 4
"""Before this version of the file format, every initializer had to be an input too."""
_NONE: frozenset[str] = frozenset()


def graph_name(name: str) -> str:
    """Return the name of a graph without control characters."""
    printable = "".join(c for c in name if ord(c) >= 32)
    return printable or "graph"


def domain_of(name: str) -> str:
    """Return a domain by the name that a file has for it: "" for ONNX's own."""
    return "" if name == "ai.onnx" else name


def versions_of(imports: Sequence[onnx.OperatorSetIdProto]) -> dict[str, int]:
    """Return the version of each domain. Raises `ModelError` if a domain has two."""
    versions: dict[str, int] = {}
    check_text((entry.domain for entry in imports), "an opset")
    for entry in imports:
        domain = domain_of(entry.domain)
        if versions.setdefault(domain, entry.version) != entry.version:
            raise invalid(
                f"the model imports opsets {versions[domain]} and {entry.version} of "
                f"{domain[:MAX_NAME_LENGTH] or 'ONNX'}",
                help="export it with one of them",
            )
    return versions


# Files that are not ONNX models, recognised by their first bytes: what they are, and what to do with them.

_CHECK_FILE = "check that the file is a complete .onnx file"


def _begins(*heads: bytes, at: int = 0) -> Callable[[bytes], bool]:
    return lambda first: first[at:].lstrip(b"\xef\xbb\xbf \t\r\n" if at == 0 else b"").startswith(heads)


_KINDS: tuple[tuple[Callable[[bytes], bool], str, str], ...] = (
    (lambda first: not first.strip(b"\0"), "zeros", "copy or download it again"),
    (_begins(b"version https://git-lfs"), "a git-lfs pointer", "run git lfs pull in its repository"),
    (
        _begins(b"<!DOCTYPE", b"<!doctype", b"<html", b"<HTML", b"<?xml", b"<head"),
        "an HTML or XML page",
        "download the file itself: the server sent a page, of an error or a login",
    ),
    (_begins(b"{", b"["), "JSON text", "give the .onnx file; a server may have answered with an error"),
    (_begins(b"GGUF"), "a GGUF checkpoint", "gc.load_tensors reads it, and models.llama.build takes it"),
    (lambda first: first[8:10] == b'{"', "a safetensors checkpoint", "gc.load_tensors reads it"),
    (
        _begins(b"ORTM", at=4),
        "a model in onnxruntime's own format",
        'if you trust its source, since nothing checks it: InferenceSession().load(path, format="ort")',
    ),
    (_begins(b"TFL3", at=4), "a TensorFlow Lite model", "convert it with tf2onnx"),
    (_begins(b"\x89HDF"), "an HDF5 file", "convert the Keras model with tf2onnx"),
    (_begins(b"PK\3\4"), "a zip archive, such as a PyTorch checkpoint", "export the model with torch.onnx.export"),
    (
        lambda first: first[:1] == b"\x80" and first[1:2] in (b"\2", b"\3", b"\4", b"\5"),
        "a pickle",
        "export the model with the library that wrote it; pickles run code and are never read",
    ),
    (_begins(b"\x1f\x8b"), "a gzip file", "unpack it"),
    (_begins(b"\xfd7zXZ", b"7z\xbc\xaf", b"\x28\xb5\x2f\xfd"), "a compressed file", "unpack it"),
    (_begins(b"ustar", at=257), "a tar archive", "unpack it"),
    (_begins(b"\x7fELF", b"MZ"), "a program or a shared library", _CHECK_FILE),
)
"""Kinds of files: a test of their first bytes, the name with its article, and the help."""


def not_a_model(name: str, content: bytes | memoryview) -> ModelError:
    """Return the error for bytes that are not an ONNX model, with their size and the kind of file.

    name: of the file. content: all of it.
    """
    size = len(content)
    if not size:
        return invalid(f"{name} is empty", help="copy or download it again")
    first = bytes(content[:512])
    for matches, kind, help in _KINDS:
        if matches(first):
            return invalid(f"{name} is not an ONNX model: its {size:,} bytes are {kind}", help=help)
    fault, is_cut = _fault(memoryview(content))
    help = "it is truncated: copy or download it again" if is_cut else _CHECK_FILE
    return invalid(f"{name} of {size:,} bytes is not an ONNX model: {fault}", help=help)


def _fault(content: memoryview) -> tuple[str, bool]:
    """Return a description of the first malformed field of the message, and True if the file is truncated there."""
    position, size = 0, len(content)
    while position < size:
        start = position
        try:
            key, position = varint_at(content, position)
            length, after = varint_at(content, position) if key & 7 in (0, 2) else (0, position)
        except ModelError:
            return f"the field at byte {start:,} has no length", size - position <= 10
        kind = key & 7 if key >> 3 else -1
        if kind == 2:
            position = after
            if position + length > size:
                remaining = size - position
                return f"the field at byte {start:,} claims {length:,} bytes, but only {remaining:,} follow", True
            position += length
        elif kind == 0:
            position = after
        elif kind in (1, 5):
            position += 8 if kind == 1 else 4
        else:
            return f"byte {start:,} does not start a field of a message", False
    return "a part of it is not a message of ONNX", position > size
