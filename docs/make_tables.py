"""Writes docs/ops.md and the tables of docs/promotion.md from the code. Run it after declaring an op."""

from __future__ import annotations

from pathlib import Path

from graphcore import ops
from graphcore.declare import MEANINGS, REGISTRY
from graphcore.promotion.max import DTYPES, max_published, max_system
from graphcore.promotion.system import PromotionSystem

HERE = Path(__file__).parent


def ops_page() -> str:
    """The table of ops, by family."""
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


def promotion_table(system: PromotionSystem) -> str:
    """The table of a system over the lattice's dtypes."""
    head = "| | " + " | ".join(str(d) for d in DTYPES) + " |"
    rows = [f"| **{a}** | " + " | ".join(str(system.meet(a, b)) for b in DTYPES) + " |" for a in DTYPES]
    return "\n".join([head, "|---" * (len(DTYPES) + 1) + "|", *rows])


def promotion_page() -> str:
    """docs/promotion.md with its tables made anew."""
    text = (HERE / "promotion.md").read_text()
    for system in (max_system, max_published):
        begin, end = f"<!-- {system.name} -->\n", f"\n<!-- end {system.name} -->"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = before + begin + promotion_table(system) + end + after
    return text


def main() -> None:
    (HERE / "ops.md").write_text(ops_page())
    (HERE / "promotion.md").write_text(promotion_page())
    print(f"{len(ops.__all__)} ops")


if __name__ == "__main__":
    main()
