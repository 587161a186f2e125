"""The table of docs/custom_ops.md: onnxruntime's own operators, as declared."""

from __future__ import annotations

import textwrap
from pathlib import Path

from graphcore.onnx.schemas.schemas import recorded
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


def schemas() -> str:
    """Return the operators that are made from schemas, with the releases that have a kernel."""
    listed = [
        f"`{name}`" + ("" if row["releases"] == "1.24.4-" else f" {row['releases']}")
        for name, row in recorded().items()
    ]
    return textwrap.fill(", ".join(listed) + ".", 120, break_on_hyphens=False)


def custom_page() -> str:
    """Return docs/custom_ops.md with its tables updated."""
    text = _PAGE.read_text()
    for name, content in (("microsoft", table()), ("schemas", schemas())):
        before, begin, rest = text.partition(f"<!-- {name} -->\n")
        _, end, after = rest.partition(f"<!-- end {name} -->")
        text = f"{before}{begin}{content}\n{end}{after}"
    return text
