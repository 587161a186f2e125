"""The notation of promotion tables in this folder: rows of short names, to compare with the publications."""

from __future__ import annotations

from collections.abc import Sequence

from graphcore.types.dtypes import DType as D

SHORT: dict[str, D] = {
    "b1": D.bool,
    "i8": D.int8,
    "i16": D.int16,
    "i32": D.int32,
    "i64": D.int64,
    "u8": D.uint8,
    "u16": D.uint16,
    "u32": D.uint32,
    "u64": D.uint64,
    "idx": D.index,
    "adr": D.address,
    "f16": D.float16,
    "bf16": D.bfloat16,
    "f32": D.float32,
    "tf32": D.tensor_float32,
    "f64": D.float64,
    "c64": D.complex64,
    "c128": D.complex128,
}
"""The short names; the digits are bits."""


def read_table(table: str, columns: Sequence[str]) -> dict[tuple[str, str], str]:
    """The cells of a table whose lines are `row : cell cell ...`, one cell for each of `columns`."""
    cells = {}
    for line in table.strip().splitlines():
        row, _, written = line.partition(":")
        for column, cell in zip(columns, written.split(), strict=True):
            cells[row.strip(), column] = cell
    return cells


def dtypes_of(cells: dict[tuple[str, str], str]) -> dict[tuple[D, D], D]:
    """The same by dtype, for a table of short names alone."""
    return {(SHORT[row], SHORT[column]): SHORT[cell] for (row, column), cell in cells.items()}
