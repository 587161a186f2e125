"""The report of a quantisation: a row for each layer that could be quantised."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from graphcore.support.escaping import escaped, size_text
from graphcore.support.markup import table


@dataclass(frozen=True, slots=True)
class Row:
    """A node with a constant weight.

    layer: the path of the layer that it is in, "" outside of any. name: of its result. operator: ONNX's. weight: the
    name of the weight. shape: of the weight, as it is stored. scheme: of the quantised weight, "" if it was not
    quantised. reason: why it was not quantised, or "". before, after: the bytes of its weight. If several nodes share
    a weight, both are 0 in all rows but the first. error: the length of the change of the weight over the length of
    the weight; 0.0 if it was not quantised. block_size: for int4, how many numbers have one scale.
    """

    layer: str
    name: str
    operator: str
    weight: str
    shape: tuple[int, ...]
    scheme: str
    reason: str
    before: int
    after: int
    error: float
    block_size: int | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """A row for each layer, in the order of the nodes. Printed, it is a table.

    scheme: the argument of `quantize`. rows: one for each node with a constant weight of floats.
    """

    scheme: str
    rows: tuple[Row, ...]

    @property
    def quantized(self) -> tuple[Row, ...]:
        """The rows of quantised layers."""
        return tuple(row for row in self.rows if row.scheme)

    @property
    def left(self) -> tuple[Row, ...]:
        """The rows of layers that were not quantised, each with its reason."""
        return tuple(row for row in self.rows if not row.scheme)

    @property
    def before(self) -> int:
        """The bytes of the weights of all rows in the original graph."""
        return sum(row.before for row in self.rows)

    @property
    def after(self) -> int:
        """The bytes of the same weights in the quantised graph."""
        return sum(row.after for row in self.rows)

    def as_dicts(self) -> list[dict[str, Any]]:
        """Return the rows as dicts of plain values, for `json.dumps` or a data frame."""
        return [{**asdict(row), "shape": list(row.shape)} for row in self.rows]

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __str__(self) -> str:
        if not self.rows:
            return self._total()
        return "\n".join([*_table([_HEAD, *(_cells(row) for row in self.rows)]), self._total()])

    def _repr_html_(self) -> str:
        return table(_HEAD, [_cells(row) for row in self.rows], self._total())

    def _total(self) -> str:
        done = self.quantized
        total = f"{len(done)} of {len(self.rows)} layers quantised to {self.scheme}"
        if not self.rows:
            return f"{total}: no operator has a constant weight of floats"
        worst = max((row.error for row in done), default=0.0)
        sizes = f"{size_text(self.before)} to {size_text(self.after)}"
        return f"{total}, their weights from {sizes}" + (f", error up to {worst:.2%}" if done else "")


_HEAD = ("layer", "operator", "weight", "shape", "scheme", "before", "after", "error")
_NUMBERS = frozenset({"before", "after", "error"})


def _cells(row: Row) -> tuple[str, ...]:
    shape = "x".join(map(str, row.shape))
    place = row.layer or row.name
    first = (escaped(place), escaped(row.operator), escaped(row.weight), shape)
    if not row.scheme:
        return (*first, escaped(f"- {row.reason}"))
    scheme = row.scheme if row.block_size is None else f"{row.scheme} by {row.block_size}"
    if not row.before and not row.after:
        return (*first, scheme, "shared", "", f"{row.error:.2%}")
    return (*first, scheme, size_text(row.before), size_text(row.after), f"{row.error:.2%}")


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    """Return lines of columns; the last cell of a short row takes the rest of its line."""
    widths = [
        max(len(row[i]) for row in rows if i < len(row) and (i < len(row) - 1 or len(row) == len(_HEAD)))
        for i in range(len(_HEAD))
    ]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if title in _NUMBERS else cell.ljust(width)
            for cell, width, title in zip(row, widths, _HEAD, strict=False)
        ]
        lines.append("  ".join(cells).rstrip())
    return lines
