"""Arrays of the command line: read from files, random, summarised, and written."""

from __future__ import annotations

import io
import math
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

_MAX_VALUES = 6
"""Maximum number of values in a summary."""

_MAX_RANDOM_BYTES = 1 << 31
"""Maximum size of a random array."""


def read(path: str, name: str, type_: Type) -> Array:
    """Return the array of a .npy file, in the dtype of an input. Raises `FeedError`."""
    try:
        if not os.path.isfile(path):
            raise FileNotFoundError("no such file")
        loaded = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError, SyntaxError) as error:
        reason = getattr(error, "strerror", None) or str(error).split("\n")[0]
        raise FeedError(f"{path} for input {name!r} cannot be read: {reason}", help="give a .npy file") from None
    if not isinstance(loaded, np.ndarray):
        raise FeedError(f"{path} for input {name!r} holds several arrays", help="give a .npy file, which holds one")
    dtype = type_.dtype.numpy if isinstance(type_, TensorType) else loaded.dtype
    if dtype.kind not in "V" and not _is_ml_dtype(dtype):
        return loaded
    if loaded.dtype.kind in "Vu" and loaded.dtype.itemsize == dtype.itemsize and not _is_integer(dtype):
        return loaded.view(dtype)
    if loaded.dtype.kind in "iu" and loaded.dtype.itemsize == 1 and _is_integer(dtype):
        return loaded.astype(dtype)
    return loaded


def write(path: str, results: Mapping[str, Array]) -> list[str]:
    """Write a .npz file; return a line for each array that is stored in another dtype. Raises `ExportError`.

    `member_name` makes the names of members from those of results.
    """
    members: dict[str, Any] = {}
    notes = []
    for name, array in results.items():
        if not isinstance(array, np.ndarray):
            raise ExportError(
                f"run: output {name!r} is not an array and cannot be written", help="run without --output"
            )
        if array.dtype == object:
            members[name] = array.astype(str)
        elif _is_ml_dtype(array.dtype):
            plain = array.astype(np.int8) if _is_integer(array.dtype) else array.view(f"u{array.dtype.itemsize}")
            members[name] = plain
            members[f"{name}.dtype"] = np.array(array.dtype.name)
            notes.append(f"{name} is stored as {plain.dtype}; {name}.dtype says {array.dtype.name}")
        else:
            members[name] = array
    buffer = io.BytesIO()
    _write_members(buffer, members)
    output.write("run", path, [buffer.getvalue()])
    return notes


def read_all(path: str) -> dict[str, Array]:
    """Return the arrays of a file that `write` wrote, in their original dtypes."""
    with np.load(path, allow_pickle=False) as archive:
        results: dict[str, Array] = {}
        members = {value_name(member): member for member in archive.files}
        for name, member in members.items():
            dtype_member = members.get(f"{name}.dtype")
            if dtype_member is None:
                results[name] = archive[member]
                continue
            dtype = DType.of(str(archive[dtype_member])).numpy
            results[name] = archive[member].astype(dtype) if _is_integer(dtype) else archive[member].view(dtype)
    note_names = {f"{name}.dtype" for name in results}
    return {name: array for name, array in results.items() if name not in note_names}


def _write_members(file: IO[bytes], members: Mapping[str, Array]) -> None:
    """Write an archive in the format of `numpy.savez`, which fails for names that are also its parameters."""
    import zipfile  # only few commands need it

    with zipfile.ZipFile(file, "w", allowZip64=True) as archive:
        for name, array in members.items():
            with archive.open(zipfile.ZipInfo(f"{member_name(name)}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)


def random(rng: np.random.Generator, dtype: DType, dims: Sequence[int]) -> Array:
    """Return floats of the standard normal distribution, integers from 0 to at most 9, bools, or digits as strings."""
    if math.prod(dims) * max(8, dtype.numpy.itemsize) > _MAX_RANDOM_BYTES:
        raise ResourceLimitError(f"a random array of {list(dims)} is too large", help="give files: --input NAME=FILE")
    if dtype is DType.bool:
        return rng.integers(0, 2, dims).astype(np.bool_)
    if dtype is DType.string:
        return rng.integers(0, 10, dims).astype(str).astype(object)
    if dtype.is_float:
        return rng.standard_normal(dims).astype(dtype.numpy)
    if dtype.is_complex:
        return (rng.standard_normal(dims) + 1j * rng.standard_normal(dims)).astype(dtype.numpy)
    max_value = (1 << (dtype.bits - dtype.is_signed)) - 1
    return rng.integers(0, min(10, max_value + 1), dims).astype(dtype.numpy)


def describe(result: Any) -> dict[str, Any]:
    """Return the facts of `summary` as plain values, for JSON."""
    if not isinstance(result, np.ndarray):
        return {"text": str(result)[:200]}
    facts: dict[str, Any] = {"dtype": _dtype_name(result), "shape": list(result.shape)}
    values = result.reshape(-1)
    facts["first"] = [
        _plain(v.item() if isinstance(v, np.generic) and not _is_ml_dtype(v.dtype) else v) for v in values[:_MAX_VALUES]
    ]
    if (numbers := _numbers(result)) is not None:
        if numbers.size:
            facts |= {"min": numbers.min().item(), "max": numbers.max().item()}
        facts["nan"] = int(values.size - numbers.size)
    return facts


def _numbers(result: Array) -> Array | None:
    """Return the elements of real numbers without NaNs, floats in float64; None for other and for empty arrays."""
    if not result.size or result.dtype == object or result.dtype.kind in "USbc":
        return None
    if not _is_ml_dtype(result.dtype) and result.dtype.kind != "f":
        return result.reshape(-1)
    wide = result.reshape(-1).astype(np.float64)
    return wide[~np.isnan(wide)]


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
    """Return one line: the name, the dtype and shape, the minimum and maximum, the first values."""
    if not isinstance(result, np.ndarray):
        return f"{name}  {type_}  {str(result)[:200]}"
    dtype = _dtype_name(result)
    shape = ", ".join(map(str, result.shape))
    values = result.reshape(-1)
    first_values = " ".join(_text(v) for v in values[:_MAX_VALUES]) + (" ..." if values.size > _MAX_VALUES else "")
    line = f"{name}  {dtype}[{shape}]"
    if (numbers := _numbers(result)) is not None:
        if numbers.size:
            line += f"  min {_text(numbers.min())}  max {_text(numbers.max())}"
        if numbers.size < values.size:
            line += f"  NaN x{values.size - numbers.size}"
    return f"{line}  [{first_values}]"


def _text(value: Any) -> str:
    if isinstance(value, (str, bytes)):
        return repr(value)
    if isinstance(value, (bool, np.bool_, np.integer)):
        return str(value)
    if isinstance(value, (complex, np.complexfloating)):
        return f"{complex(value):.6g}"
    return f"{float(value):.6g}"


def _is_ml_dtype(dtype: np.dtype[Any]) -> bool:
    """Return True if the dtype is from ml_dtypes."""
    return dtype.type.__module__.partition(".")[0] != "numpy"


def _is_integer(dtype: np.dtype[Any]) -> bool:
    return dtype.name.startswith(("int", "uint"))


# Names of members of archives: none leads out of the folder into which an archive is unpacked.


def member_name(name: str) -> str:
    """Return the name of an archive member, with everything percent-encoded that could lead out of a folder.

    That is: segments of only dots and blanks, empty segments, backslashes, drives, unprintable characters, and `%`, so
    that `value_name` is the inverse. Other names do not change.
    """
    encoded = "".join(c if c.isprintable() and c not in "%\\" else _encoded(c) for c in name)
    if encoded[1:2] == ":":
        encoded = f"{encoded[0]}%3A{encoded[2:]}"
    first, *others = encoded.split("/")
    result = _segment(first)
    for before, segment in zip([first, *others], others, strict=False):
        slash = "/" if before and segment else "%2F"
        result += f"{slash}{_segment(segment)}"
    return result


def value_name(member: str) -> str:
    """Return the name of a value from its `member_name`."""
    return unquote(member, errors="surrogatepass")


def _segment(text: str) -> str:
    return text if text.strip(". ") else text.replace(".", "%2E").replace(" ", "%20")


def _encoded(character: str) -> str:
    return quote(character.encode("utf-8", "surrogatepass"), safe="")
