"""Files that are no ONNX models, told by how they begin: what they are, and what to do with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from graphcore.errors import ModelError

_WHOLE = "check that the file is whole and is an .onnx file"


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of file. told: from its first bytes. name: with its article."""

    told: Callable[[bytes], bool]
    name: str
    help: str


def _begins(*heads: bytes, at: int = 0) -> Callable[[bytes], bool]:
    return lambda first: first[at:].lstrip(b"\xef\xbb\xbf \t\r\n" if at == 0 else b"").startswith(heads)


_KINDS = (
    _Kind(lambda first: not first.strip(b"\0"), "zeros", "copy or download it again"),
    _Kind(_begins(b"version https://git-lfs"), "a git-lfs pointer", "run git lfs pull in its repository"),
    _Kind(
        _begins(b"<!DOCTYPE", b"<!doctype", b"<html", b"<HTML", b"<?xml", b"<head"),
        "an HTML or XML page",
        "download the file itself: the server gave a page, of an error or a login",
    ),
    _Kind(_begins(b"{", b"["), "text of JSON", "give the .onnx file; a server may have answered with an error"),
    _Kind(_begins(b"GGUF"), "a GGUF checkpoint", "gc.load_tensors reads it, and models.llama.build takes it"),
    _Kind(lambda first: first[8:10] == b'{"', "a safetensors checkpoint", "gc.load_tensors reads it"),
    _Kind(
        _begins(b"ORTM", at=4),
        "a model in onnxruntime's own format",
        'where you trust who made it, since nothing checks it: InferenceSession().load(path, format="ort")',
    ),
    _Kind(_begins(b"TFL3", at=4), "a TensorFlow Lite model", "convert it with tf2onnx"),
    _Kind(_begins(b"\x89HDF"), "an HDF5 file", "convert the Keras model with tf2onnx"),
    _Kind(_begins(b"PK\3\4"), "a zip archive, as PyTorch's checkpoints are", "export the model with torch.onnx.export"),
    _Kind(
        lambda first: first[:1] == b"\x80" and first[1:2] in (b"\2", b"\3", b"\4", b"\5"),
        "a pickle",
        "export the model where it was made; pickles run code and are never read",
    ),
    _Kind(_begins(b"\x1f\x8b"), "a gzip file", "unpack it"),
    _Kind(_begins(b"\xfd7zXZ", b"7z\xbc\xaf", b"\x28\xb5\x2f\xfd"), "a compressed file", "unpack it"),
    _Kind(_begins(b"ustar", at=257), "a tar archive", "unpack it"),
    _Kind(_begins(b"\x7fELF", b"MZ"), "a program or a shared library", _WHOLE),
)


def not_a_model(name: str, content: bytes | memoryview) -> ModelError:
    """Return the error for bytes that are no ONNX model: it tells their size and what they seem to be.

    name: of the file. content: all of it.
    """
    size = len(content)
    if not size:
        return ModelError(f"load: {name} is empty", help="copy or download it again")
    first = bytes(content[:512])
    found = next((kind for kind in _KINDS if kind.told(first)), None)
    if found is not None:
        return ModelError(f"load: {name} is no ONNX model: its {size:,} bytes are {found.name}", help=found.help)
    fault, is_cut = _fault(memoryview(content))
    help = "it is cut short: copy or download it again" if is_cut else _WHOLE
    return ModelError(f"load: {name} is no ONNX model of {size:,} bytes: {fault}", help=help)


def _fault(content: memoryview) -> tuple[str, bool]:
    """Return where the protobuf message breaks, and whether that is its end."""
    position, size = 0, len(content)
    while position < size:
        start = position
        key, position = _varint(content, position)
        kind = -1 if key is None or not key >> 3 else key & 7
        if kind == 2:
            length, position = _varint(content, position)
            if length is None:
                return f"the field at byte {start:,} has no length", position >= size
            if position + length > size:
                left = size - position
                return f"the field at byte {start:,} says that it has {length:,} bytes, and {left:,} follow", True
            position += length
        elif kind == 0:
            _, position = _varint(content, position)
        elif kind in (1, 5):
            position += 8 if kind == 1 else 4
        else:
            return f"byte {start:,} begins no field of a message", False
    return "a part of it is no message of ONNX", position > size


def _varint(content: memoryview, position: int) -> tuple[int | None, int]:
    number = shift = 0
    while position < len(content) and shift < 64:
        byte = content[position]
        position += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, position
        shift += 7
    return None, position
