"""Write the tables of the documents from the code: run it after declaring ops or an update of onnx."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

from graphcore import DType, ops
from graphcore.build.declare import MEANINGS, REGISTRY
from graphcore.onnx.versions.table import CHANGES

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))  # for the cases of tests/, and the other modules of this script

DTYPES_INTRODUCTION = """\
# Ops and dtypes

What lowering makes of every op in every dtype on the CPU provider, in a file for every supported release of
onnxruntime, read off the graph it makes of one op; a session on a newer release keeps more of its kernels. Every cell
that is not *refused* is run by `tests/ops/test_every_op.py` and gives what [numbers.md](numbers.md) promises: the
column *result* says whether that is bit for bit, or near (4 units in the last place of float32 or 1e-6, then rounded
on to narrower floats; 1e-12 in float64). The column `int96` stands for all integers of more than 64 bits, which
`tests/lowering/test_wide_*.py` run: see [wide integers](numbers.md#integers-of-more-than-64-bits). This page is made by
`python docs/make_tables.py`.

- *native*: the operators the op is written in, as they are, in its own dtype (integers may become floats before).
- a dtype: the same operators computed in that dtype, between casts or on the same bits.
- *expanded*: other operators, because there is no kernel or its values are others.
- *itself*: nothing is computed, the operand is the result.
- *refused*: a `DTypeError` when the op is called, because it has no meaning there; of integers of more than 64 bits
  also when the graph is lowered, because nothing computes it.
- *parts*, of complex64 and complex128: computed on the real and imaginary parts, under "array_api" and
  `promotion.system("max", complex=True)`.
"""


def ops_page() -> str:
    """Return docs/ops.md: the table of ops, by family."""
    families: dict[str, list[str]] = {}
    for name, op in sorted(REGISTRY.items()):
        python = f" `{op.operator.replace('|', chr(92) + '|')}`" if op.operator else ""
        row = f"| `{name}`{python} | {op.summary} | {op.onnx} | {op.rule} |"
        families.setdefault(op.family, []).append(row)
    lines = [
        "# The ops",
        "",
        f"{len(REGISTRY)} ops, each `graphcore.ops.<name>`; `help(ops.<name>)` has its whole contract. This page",
        "is made by `python docs/make_tables.py`.",
        "",
        "The last column is how operands promote:",
        "",
        *(f"- `{rule}`: {meaning}" for rule, meaning in MEANINGS.items()),
    ]
    for family, rows in sorted(families.items()):
        lines += ["", f"## {family}", "", "| op | what it gives | ONNX | promotion |", "|---|---|---|---|", *rows]
    return "\n".join(lines) + "\n"


def dtypes_page() -> str:
    """Return docs/dtypes.md: for every op and dtype the result of lowering for the CPU."""
    from tests.support.every.case import ALL
    from tests.support.every_op import CASES, complex_state, state

    columns = (*ALL, DType.int(96))
    head = "| op | result | " + " | ".join(f"`{d}`" for d in columns) + " | complex |"
    families: dict[str, list[str]] = {}
    for name, op in sorted(REGISTRY.items()):
        cells = [*(state(name, dtype) for dtype in columns), complex_state(name)]
        result = "near" if CASES[name].near else "exact"
        families.setdefault(op.family, []).append(f"| `{name}` | {result} | {' | '.join(cells)} |")
    lines = [DTYPES_INTRODUCTION.rstrip()]
    for family, rows in sorted(families.items()):
        lines += ["", f"## {family}", "", head, "|---" * (len(columns) + 3) + "|", *rows]
    return "\n".join(lines) + "\n"


def onnx_page() -> str:
    """Return docs/onnx.md with its tables updated."""
    from tests.support.backend import KNOWN

    changed = {f"{domain}:{op}" if domain else op: rows for domain, ops in CHANGES.items() for op, rows in ops.items()}
    converted = [f"`{op}` {', '.join(map(str, sorted(rows)))}" for op, rows in sorted(changed.items())]
    reasons: dict[str, list[str]] = {}
    for name, reason in sorted(KNOWN.items()):
        reasons.setdefault(reason, []).append(f"`{name}`")
    results = ["| tests | why |", "|---|---|", *(f"| {', '.join(names)} | {why} |" for why, names in reasons.items())]
    listed = textwrap.fill("; ".join(converted) + ".", 120, break_on_hyphens=False)
    text = _filled((HERE / "onnx.md").read_text(), "converted", listed)
    return _filled(text, "known", "\n".join(results))


def _filled(text: str, name: str, content: str) -> str:
    """Return the text with the part between two marks replaced."""
    before, begin, rest = text.partition(f"<!-- {name} -->\n")
    _, end, after = rest.partition(f"<!-- end {name} -->")
    return f"{before}{begin}{content}\n{end}{after}"


def promotion_pages() -> dict[str, str]:
    """Return docs/promotion.md and a page for each system, by path, with their tables updated."""
    from docs.promotion_tables import PAGES

    results = {}
    for path, tables in PAGES.items():
        text = (HERE / path).read_text()
        for name, table in tables.items():
            text = _filled(text, name, table())
        results[path] = text
    return results


def max_page() -> str:
    """Return docs/max.md: the names of the MAX Graph API and their counterparts here."""
    from docs.max_tables import page

    return page()


def custom_page() -> str:
    """Return docs/custom_ops.md: onnxruntime's own operators."""
    from docs.custom_tables import custom_page

    return custom_page()


def main() -> None:
    (HERE / "ops.md").write_text(ops_page())
    (HERE / "dtypes.md").write_text(dtypes_page())
    for path, text in promotion_pages().items():
        (HERE / path).write_text(text)
    (HERE / "onnx.md").write_text(onnx_page())
    (HERE / "max.md").write_text(max_page())
    (HERE / "custom_ops.md").write_text(custom_page())
    from docs.operator_tables import operators_page

    (HERE / "operators.md").write_text(operators_page())
    print(f"{len(ops.__all__)} ops")


if __name__ == "__main__":
    main()
