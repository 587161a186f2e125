"""The table of ONNX's operators and dtypes, docs/operators.md: `make_tables.py` writes it."""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from graphcore import DType
from graphcore.onnx.schemas.catalogue import entry
from tests.support.operators.cases import DTYPES, FURTHER, MAPS, Place, every
from tests.support.operators.cells import DRAWN, NEAR, NOT_LOWERED, NOT_RUN, OF_SIZES, lowered

INTRODUCTION = """\
# ONNX's operators and dtypes

Every operator of ONNX and of ai.onnx.ml that onnx 1.23 defines, called as `ops.onnx.<Operator>` and
`ops.onnx.ml.<Operator>` on operands of each dtype: built and typed, lowered for the CPU provider, and run.
`tests/ops/test_operator_table.py` builds and lowers every cell anew, runs every one that is said to run, and compares
with ONNX's own evaluator, or with a formula where that has none: {run} of {built} cells that are built are run, all
that are not have their reason below. This page is made by `python docs/make_tables.py`.

The dtype of a cell is that of the operands or results by which an operator's kernel is chosen, in lists and optionals
that of their elements. The column *built / lowered / run* counts the dtypes for which each is so, the last column has
those that models may have and the library's ops have not ({further}).

- *native*: run by the operator itself, in its own dtype.
- a dtype: the same operator computed in that dtype, between casts or on the same bits.
- *expanded*: other operators, because there is no kernel or its values are others. *itself*: nothing is computed.
- *built*, *lowered*: it ends there, for the reason below.
- `-`: ONNX's operator takes and gives no such tensors, and the call is a `DTypeError` that says which it takes.

`index` and `address` are uint64 in a file and `tensor_float32` is float32: an operator takes them where it takes those,
and results that are tensors have the dtype of the operands of their type variable, and are rounded to it. Attributes
that name a dtype cannot name these.

The column *result* says what the numbers are held to: *exact* is bit for bit, *near* is as
[numbers.md](numbers.md) has it, *drawn* are random ones, of the right dtype and shape.
"""

_FAMILIES = {
    "controlflow": "Control flow", "generator": "Constants and random numbers", "image": "Images", "logical": "Logic",
    "math": "Mathematics", "nn": "Networks", "object_detection": "Detection", "optional": "Optionals",
    "quantization": "Quantisation", "reduction": "Reductions", "rnn": "Recurrent networks", "sequence": "Lists",
    "tensor": "Tensors", "text": "Text", "traditionalml": "ai.onnx.ml",
}  # fmt: skip


def operators_page() -> str:
    """Return docs/operators.md: the state of each operator in each dtype."""
    families: dict[str, list[str]] = {}
    total = [0, 0, 0]
    for domain, name in every():
        counts, row = _row(domain, name)
        total = [t + c for t, c in zip(total, counts, strict=True)]
        families.setdefault(_family(domain, name), []).append(row)
    head = "| operator | result | built / lowered / run | " + " | ".join(f"`{d}`" for d in DTYPES) + " | further |"
    listed = ", ".join(f"`{d}`" for d in FURTHER)
    lines = [INTRODUCTION.rstrip().format(built=f"{total[0]:,}", run=f"{total[2]:,}", further=listed)]
    for family, rows in sorted(families.items()):
        lines += ["", f"## {family}", "", head, "|---" * (len(DTYPES) + 4) + "|", *rows]
    return "\n".join([*lines, "", *_reasons()]) + "\n"


def state(domain: str, name: str, dtype: DType) -> tuple[str, str]:
    """Return the state of a cell, of "-", "built", "lowered" and "run", and its text."""
    cell = lowered(Place(domain, name, dtype))
    if cell.state != "lowered":
        return cell.state, cell.state
    return ("lowered", "lowered") if (name, dtype) in NOT_RUN else ("run", cell.how)


def _row(domain: str, name: str) -> tuple[list[int], str]:
    results = {dtype: state(domain, name, dtype) for dtype in (*DTYPES, *FURTHER)}
    stages = ("built", "lowered", "run")
    counts = [sum(s in stages[i:] for s, _ in results.values()) for i in range(len(stages))]
    cells = [results[dtype][1] for dtype in DTYPES]
    ran = [f"`{dtype}`" for dtype in FURTHER if results[dtype][0] == "run"]
    further = "all" if len(ran) == len(FURTHER) else ", ".join(ran) or "-"
    result = "drawn" if name in DRAWN else "near" if name in NEAR else "exact"
    label = f"`ml.{name}`" if domain else f"`{name}`"
    shown = [label, result, " / ".join(map(str, counts)), *cells, further]
    if name in MAPS:
        shown = [label, "-", "0 / 0 / 0", *["map"] * len(DTYPES), "map"]
    return counts, f"| {' | '.join(shown)} |"


def _family(domain: str, name: str) -> str:
    schema = onnx.defs.get_schema(name, entry(name, domain).version, domain)
    return _FAMILIES[schema.file.replace("\\", "/").split("/")[-2]]


def _reasons() -> list[str]:
    """Return the cells that are built and not run, or not run in every graph, by reason."""
    maps = ", ".join(f"`ml.{name}`" for name in sorted(MAPS))
    taken = "It takes a map and no tensor: models that others wrote may have such inputs, which are handed on."
    return [
        "## Operators without a runtime kernel",
        "",
        "| operator | dtypes | why |",
        "|---|---|---|",
        *_listed({**NOT_LOWERED, **NOT_RUN}),
        f"| {maps} | map | {taken} |",
        "",
        "## Operators that need static sizes",
        "",
        "All other cells are run on operands whose dims have names alone as well.",
        "",
        "| operator | dtypes | why |",
        "|---|---|---|",
        *_listed(OF_SIZES),
    ]


def _listed(reasons: Mapping[tuple[str, DType], str]) -> list[str]:
    """Return rows of cells that have the same reason."""
    results: dict[tuple[str, str], list[DType]] = {}
    for (name, dtype), reason in reasons.items():
        results.setdefault((name, reason), []).append(dtype)
    return [f"| `{name}` | {', '.join(f'`{d}`' for d in dtypes)} | {why} |" for (name, why), dtypes in results.items()]


__all__ = ["operators_page", "state"]
