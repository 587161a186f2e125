"""The table of docs/custom_ops.md: onnxruntime's own operators, as declared."""

from __future__ import annotations

from pathlib import Path

from graphcore.ops import microsoft  # declares them
from graphcore.ops.microsoft._declare import ROWS, ContribRow

_PAGE = Path(__file__).parent / "custom_ops.md"


def table() -> str:
    """Return the table, one row per operator."""
    lines = ["| operator | what it gives | body | the CPU's kernel is used for | |", "|---|---|---|---|---|"]
    return "\n".join([*lines, *(_row(name, ROWS[name]) for name in microsoft.__all__)])


def _row(name: str, row: ContribRow) -> str:
    summary = (row.op.__doc__ or "").strip().split("\n")[0].split(". ")[0].rstrip(".").replace("|", "\\|")
    kernels = " ".join(f"`{dtype}`" for dtype in row.kernels.split()) or "nothing"
    return f"| `{name}` | {summary} | {'yes' if row.op.has_body else '**no**'} | {kernels} | {row.note} |"


def custom_page() -> str:
    """Return docs/custom_ops.md with its table updated."""
    before, begin, rest = _PAGE.read_text().partition("<!-- microsoft -->\n")
    _, end, after = rest.partition("<!-- end microsoft -->")
    return f"{before}{begin}{table()}\n{end}{after}"
