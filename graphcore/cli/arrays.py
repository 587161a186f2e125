"""Arrays as the command line reads, invents, shows and writes them."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from typing import IO, Any
from urllib.parse import quote, unquote

import numpy as np

from graphcore.arrays.casting import Array
from graphcore.cli import output
from graphcore.errors import DTypeError, ExportError, FeedError, ResourceLimitError
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, Type

_SHOWN = 6
"""Values that a summary shows."""

_LARGEST = 1 << 31
"""Bytes of the largest random array."""


def read(path: str, name: str, type_: Type) -> Array:
    """Return the array of a .npy file, as an input takes it. Raises `FeedError`."""
    try:
        if not os.path.isfile(path):
            raise FileNotFoundError("no such file")
        loaded = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError, SyntaxError) as error:
        reason = getattr(error, "strerror", None) or str(error).split("\n")[0]
        raise FeedError(f"{path} for input {name!r} cannot be read: {reason}", help="give a .npy file") from None
    if not isinstance(loaded, np.ndarray):
        raise FeedError(f"{path} for input {name!r} holds several arrays", help="give a .npy file of one")
    wanted = type_.dtype.numpy if isinstance(type_, TensorType) else loaded.dtype
    if wanted.kind not in "V" and not _is_added(wanted):
        return loaded
    if loaded.dtype.kind in "Vu" and loaded.dtype.itemsize == wanted.itemsize and not _is_integer(wanted):
        return loaded.view(wanted)
    if loaded.dtype.kind in "iu" and loaded.dtype.itemsize == 1 and _is_integer(wanted):
        return loaded.astype(wanted)
    return loaded


def write(path: str, results: Mapping[str, Array]) -> list[str]:
    """Write a .npz file; return a line for each array that is stored as something else. Raises `ExportError`.

    Members are called as the results, with what could lead out of a folder percent-encoded: `member_name`.
    """
    held: dict[str, Any] = {}
    said = []
    for name, array in results.items():
        if not isinstance(array, np.ndarray):
            raise ExportError(f"run: {name} is no array and is not written", help="leave --output out")
        if array.dtype == object:
            held[name] = array.astype(str)
        elif _is_added(array.dtype):
            plain = array.astype(np.int8) if _is_integer(array.dtype) else array.view(f"u{array.dtype.itemsize}")
            held[name] = plain
            held[f"{name}.dtype"] = np.array(array.dtype.name)
            said.append(f"{name} is stored as {plain.dtype}; {name}.dtype says {array.dtype.name}")
        else:
            held[name] = array
    buffer = io.BytesIO()
    _write_members(buffer, held)
    output.write("run", path, [buffer.getbuffer()])
    return said


def read_all(path: str) -> dict[str, Array]:
    """Return the arrays of a file that `write` wrote, of their own dtypes."""
    with np.load(path, allow_pickle=False) as held:
        made: dict[str, Array] = {}
        members = {value_name(member): member for member in held.files}
        for name, member in members.items():
            wanted = members.get(f"{name}.dtype")
            if wanted is None:
                made[name] = held[member]
                continue
            dtype = DType.of(str(held[wanted])).numpy
            made[name] = held[member].astype(dtype) if _is_integer(dtype) else held[member].view(dtype)
    notes = {f"{name}.dtype" for name in made}
    return {name: array for name, array in made.items() if name not in notes}


def _write_members(file: IO[bytes], held: Mapping[str, Array]) -> None:
    """Write an archive as `numpy.savez` does, which takes the names of members for those of its own arguments too."""
    import zipfile  # few commands write archives

    with zipfile.ZipFile(file, "w", allowZip64=True) as archive:
        for name, array in held.items():
            with archive.open(zipfile.ZipInfo(f"{member_name(name)}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)


def random(rng: np.random.Generator, dtype: DType, dims: Sequence[int]) -> Array:
    """Return floats of the standard normal distribution, integers from 0 to 9 as far as they go, bools, or digits."""
    count = 1
    for d in dims:
        count *= d
    if count * max(8, dtype.numpy.itemsize) > _LARGEST:
        raise ResourceLimitError(f"a random array of {list(dims)} is too large", help="give files: --input NAME=FILE")
    if dtype is DType.bool:
        return rng.integers(0, 2, dims).astype(np.bool_)
    if dtype is DType.string:
        return rng.integers(0, 10, dims).astype(str).astype(object)
    if dtype.is_float:
        return rng.standard_normal(dims).astype(dtype.numpy)
    if dtype.is_complex:
        return (rng.standard_normal(dims) + 1j * rng.standard_normal(dims)).astype(dtype.numpy)
    most = (1 << (dtype.bits - dtype.is_signed)) - 1
    return rng.integers(0, min(10, most + 1), dims).astype(dtype.numpy)


def described(result: Any) -> dict[str, Any]:
    """Return what `summary` says as plain values, for JSON."""
    if not isinstance(result, np.ndarray):
        return {"text": str(result)[:200]}
    made: dict[str, Any] = {"dtype": _dtype_name(result), "shape": list(result.shape)}
    values = result.reshape(-1)
    made["first"] = [
        _plain(v.item() if isinstance(v, np.generic) and not _is_added(v.dtype) else v) for v in values[:_SHOWN]
    ]
    if values.size and result.dtype != object and result.dtype.kind not in "USbc":
        wide = values.astype(np.float64) if _is_added(result.dtype) or result.dtype.kind == "f" else values
        finite = wide[~np.isnan(wide)] if wide.dtype.kind == "f" else wide
        if finite.size:
            made |= {"min": finite.min().item(), "max": finite.max().item()}
        made["nan"] = int(wide.size - finite.size)
    return made


def _plain(value: Any) -> Any:
    if isinstance(value, complex):
        return str(value)
    return value if isinstance(value, (str, int)) else str(value) if isinstance(value, bytes) else float(value)


def _dtype_name(array: Array) -> str:
    try:
        return DType.of(array.dtype).name
    except DTypeError:
        return str(array.dtype)


def summary(name: str, result: Any, type_: Type) -> str:
    """Return one line: the name, the type as it came out, the least and greatest value, the first values."""
    if not isinstance(result, np.ndarray):
        return f"{name}  {type_}  {str(result)[:200]}"
    dtype = _dtype_name(result)
    shape = ", ".join(map(str, result.shape))
    values = result.reshape(-1)
    shown = " ".join(_text(v) for v in values[:_SHOWN]) + (" ..." if values.size > _SHOWN else "")
    line = f"{name}  {dtype}[{shape}]"
    if values.size and result.dtype != object and result.dtype.kind not in "USbc":
        wide = values.astype(np.float64) if _is_added(result.dtype) or result.dtype.kind == "f" else values
        finite = wide[~np.isnan(wide)] if wide.dtype.kind == "f" else wide
        if finite.size:
            line += f"  min {_text(finite.min())}  max {_text(finite.max())}"
        if finite.size < wide.size:
            line += f"  NaN x{wide.size - finite.size}"
    return f"{line}  [{shown}]"


def _text(value: Any) -> str:
    if isinstance(value, (str, bytes)):
        return repr(value)
    if isinstance(value, (bool, np.bool_, np.integer)):
        return str(value)
    if isinstance(value, (complex, np.complexfloating)):
        return f"{complex(value):.6g}"
    return f"{float(value):.6g}"


def _is_added(dtype: np.dtype[Any]) -> bool:
    """Return whether it is one of ml_dtypes."""
    return dtype.type.__module__.partition(".")[0] != "numpy"


def _is_integer(dtype: np.dtype[Any]) -> bool:
    return dtype.name.startswith(("int", "uint"))


# Names of values as names of members of archives: none leaves the folder that an archive is unpacked in.


def member_name(name: str) -> str:
    """Return a name for a member of an archive, in which what could lead out of a folder is percent-encoded.

    That is: segments of dots and blanks alone, empty segments, backslashes, drives, and what is not printable; `%`
    itself too, so that `value_name` returns the name. Other names stay as they are.
    """
    kept = "".join(c if c.isprintable() and c not in "%\\" else _encoded(c) for c in name)
    if kept[1:2] == ":":
        kept = f"{kept[0]}%3A{kept[2:]}"
    first, *others = kept.split("/")
    made = _segment(first)
    for before, segment in zip([first, *others], others, strict=False):
        slash = "/" if before and segment else "%2F"
        made += f"{slash}{_segment(segment)}"
    return made


def value_name(member: str) -> str:
    """Return the name that `member_name` made a member's of."""
    return unquote(member, errors="surrogatepass")


def _segment(text: str) -> str:
    return text if text.strip(". ") else text.replace(".", "%2E").replace(" ", "%20")


def _encoded(character: str) -> str:
    return quote(character.encode("utf-8", "surrogatepass"), safe="")
