"""The tables of docs/promotion.md and of the pages of its systems; `make_tables.py` writes them."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence

from graphcore import ops
from graphcore.build.declare import REGISTRY
from graphcore.errors import GraphcoreError
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol
from graphcore.promotion import Key, NoPromotion, Operand, PromotionSystem, explain, system
from graphcore.promotion.anvil import common_dtype
from graphcore.promotion.kernel_float import COLUMNS as KERNEL_FLOAT
from graphcore.promotion.max import DTYPES
from graphcore.promotion.packages import numpy, torch
from graphcore.promotion.system import SHORT
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType

INTEGERS = (
    DType.bool, DType.int8, DType.int16, DType.int32, DType.int64, DType.uint8, DType.uint16, DType.uint32, DType.uint64
)  # fmt: skip
SHARED = (*INTEGERS, DType.float32, DType.float64)
"""The dtypes that all published systems have."""
FLOAT8 = (DType.float8_e4m3fn, DType.float8_e5m2)
FLOATS = (DType.float16, DType.bfloat16, DType.float32, DType.float64)
COMPLEX = (DType.complex64, DType.complex128)


def rows_of(head: Sequence[object], rows: Sequence[Sequence[object]]) -> str:
    """Return a table in Markdown."""
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in (head, *rows)]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]])


def pairs(dtypes: Sequence[DType], cell: Callable[[DType, DType], str]) -> str:
    """Return a table of all pairs: rows are left operands, columns right ones."""
    return rows_of(["", *dtypes], [[f"**{a}**", *(cell(a, b) for b in dtypes)] for a in dtypes])


def met(rules: PromotionSystem | str) -> Callable[[DType, DType], str]:
    return lambda lhs, rhs: explain(lhs, rhs, rules).result


def common_name(rules: PromotionSystem, op: str, *dtypes: DType) -> str:
    """Return the dtype of an op's result on operands of these dtypes, `-` where it is refused."""
    try:
        return str(rules.resolve(Key(op, REGISTRY[op].rule, True), [Operand(d) for d in dtypes]).result)
    except NoPromotion:
        return "-"


# docs/promotion.md

PUBLISHED = ("max", "kernel_float", "anvil", "array_api", "allo_cpp")
PACKAGES = ("numpy", "jax", "torch")
COMPARED = (*PUBLISHED, "allo_hls", *PACKAGES)
_EXPRESSIONS: dict[str, Callable[..., Symbol]] = {
    "bool + bool": lambda g: g["bool"] + g["bool"],
    "int8 + int8": lambda g: g["int8"] + g["int8"],
    "int8 + 1": lambda g: g["int8"] + 1,
    "int8 + 300": lambda g: g["int8"] + 300,
    "int8 + 2.5": lambda g: g["int8"] + 2.5,
    "float32 + 1": lambda g: g["float32"] + 1,
    "float32 + 2.5": lambda g: g["float32"] + 2.5,
    "int8 / int8": lambda g: g["int8"] / g["int8"],
    "int8 // int8": lambda g: g["int8"] // g["int8"],
    "int8 ** 2": lambda g: g["int8"] ** 2,
    "int8 << uint8": lambda g: g["int8"] << g["uint8"],
    "-uint8": lambda g: -g["uint8"],
    "int8 < int16": lambda g: g["int8"] < g["int16"],
    "int8 & bool": lambda g: g["int8"] & g["bool"],
    "float32 & float32": lambda g: g["float32"] & g["float32"],
    "abs(int8)": lambda g: ops.abs(g["int8"]),
    "exp(int8)": lambda g: ops.exp(g["int8"]),
    "is_nan(float32)": lambda g: ops.is_nan(g["float32"]),
    "where(bool, int8, int16)": lambda g: ops.where(g["bool"], g["int8"], g["int16"]),
    "matmul(int8, int8)": lambda g: g["int8"] @ g["int8"],
    "sum(bool)": lambda g: ops.sum(g["bool"]),
    "sum(int8)": lambda g: ops.sum(g["int8"]),
    "mean(int8)": lambda g: ops.mean(g["int8"]),
    "argmax(int8)": lambda g: ops.argmax(g["int8"]),
}


OF_COMPLEX = (system("max", complex=True), *map(system, ("array_api", *PACKAGES)))
"""The systems that have complex numbers; the others refuse them."""
_OF_COMPLEX: dict[str, Callable[..., Symbol]] = {
    "complex64 + complex64": lambda g: g["complex64"] + g["complex64"],
    "complex64 / complex64": lambda g: g["complex64"] / g["complex64"],
    "complex64 ** complex64": lambda g: g["complex64"] ** g["complex64"],
    "complex64 + 1": lambda g: g["complex64"] + 1,
    "complex64 + 2.5": lambda g: g["complex64"] + 2.5,
    "complex64 + 1j": lambda g: g["complex64"] + 1j,
    "float16 + 1j": lambda g: g["float16"] + 1j,
    "bfloat16 + 1j": lambda g: g["bfloat16"] + 1j,
    "float32 + 1j": lambda g: g["float32"] + 1j,
    "float64 + 1j": lambda g: g["float64"] + 1j,
    "int8 + 1j": lambda g: g["int8"] + 1j,
    "bool + 1j": lambda g: g["bool"] + 1j,
    "abs(complex64)": lambda g: ops.abs(g["complex64"]),
    "real(complex128)": lambda g: ops.real(g["complex128"]),
    "angle(complex64)": lambda g: ops.angle(g["complex64"]),
    "var(complex64)": lambda g: ops.var(g["complex64"]),
    "sum(complex64)": lambda g: ops.sum(g["complex64"]),
    "sign(complex64)": lambda g: ops.sign(g["complex64"]),
    "complex64 == complex64": lambda g: g["complex64"] == g["complex64"],
    "complex64 < complex64": lambda g: g["complex64"] < g["complex64"],
    "max(complex64)": lambda g: ops.max(g["complex64"]),
    "floor(complex64)": lambda g: ops.floor(g["complex64"]),
}


def complex_pairs() -> str:
    """Return the dtypes in which other dtypes meet the complex ones."""
    dtypes = (*INTEGERS, *FLOATS, *COMPLEX)
    rows = [[lhs, rhs, *(met(rules)(lhs, rhs) for rules in OF_COMPLEX)] for rhs in COMPLEX for lhs in dtypes]
    return rows_of(["", "", *OF_COMPLEX], rows)


def complex_rules() -> str:
    """Return the dtypes of some expressions in the systems that have complex numbers."""
    return _made_of(_OF_COMPLEX, OF_COMPLEX, (*SHARED, *FLOATS, *COMPLEX))


def rules() -> str:
    """Return the dtypes of some expressions in every system."""
    return _made_of(_EXPRESSIONS, COMPARED, SHARED)


def _made_of(
    expressions: Mapping[str, Callable[..., Symbol]], systems: Sequence[str | PromotionSystem], dtypes: Sequence[DType]
) -> str:
    """Return the dtypes of expressions of vectors of some dtypes, by system."""
    rows = []
    for written, item in expressions.items():
        cells = []
        for name in systems:
            graph = Graph("one", {str(d): TensorType(d, ["n"]) for d in dtypes}, promotion=name)
            try:
                symbol = item(graph)
                cells.append(f"{symbol.dtype}{'?' * symbol.ambiguous}")
            except GraphcoreError:
                cells.append("-")
        rows.append([f"`{written}`", *cells])
    return rows_of(["", *systems], rows)


def verdict(cells: Sequence[str]) -> str:
    """Return True if systems agree, without those that refuse."""
    defined = {cell for cell in cells if cell != "-"}
    if len(defined) > 1:
        return "conflict"
    return "same where defined" if "-" in cells else "same"


def disagreements() -> list[tuple[str, ...]]:
    """Return, for each pair of the shared dtypes, the results of every system, and the verdict on the publications."""
    hls = system("allo_hls")
    results = []
    for lhs, rhs in itertools.combinations_with_replacement(SHARED, 2):
        cells = [explain(lhs, rhs, name).result for name in PUBLISHED]
        packages = [explain(lhs, rhs, name).result for name in PACKAGES]
        results.append((str(lhs), str(rhs), *cells, common_name(hls, "add", lhs, rhs), *packages, verdict(cells)))
    return results


def systems() -> str:
    return rows_of(("", "", *PUBLISHED, "allo_hls `x + y`", *PACKAGES, "verdict"), disagreements())


def counts() -> str:
    """Return the number of pairs of each verdict."""
    verdicts = [row[-1] for row in disagreements()]
    return rows_of(("verdict", "pairs"), [(kind, verdicts.count(kind)) for kind in sorted(set(verdicts), reverse=True)])


def agreement() -> str:
    """Return, for each two systems, the numbers of pairs on which they agree, differ, and are defined alone."""
    table = disagreements()
    rows = []
    for i, j in itertools.combinations(range(len(COMPARED)), 2):
        both = [(row[i + 2], row[j + 2]) for row in table]
        agree = sum(a == b != "-" for a, b in both)
        differ = sum(a != b and "-" not in (a, b) for a, b in both)
        first, second = sum(b == "-" != a for a, b in both), sum(a == "-" != b for a, b in both)
        rows.append((COMPARED[i], COMPARED[j], agree, differ, first, second))
    return rows_of(("", "", "agree", "differ", "only the first", "only the second"), rows)


# A page for each system


def kernel_float() -> str:
    dtypes = [d for name in KERNEL_FLOAT for d in (FLOAT8 if name == "f8" else [SHORT["b1" if name == "b" else name]])]
    return pairs(dtypes, met("kernel_float"))


def anvil(lhs_ambiguous: bool) -> str:
    def cell(lhs: DType, rhs: DType) -> str:
        dtype, ambiguous = common_dtype(lhs, rhs, lhs_ambiguous)
        return f"{dtype}{'?' * ambiguous}"

    return pairs(SHARED, cell)


def array_api(profile: str) -> str:
    rules = system("array_api", profile=profile)
    numbers = (*INTEGERS[1:], DType.float16, DType.float32, DType.float64, *COMPLEX)
    dtypes = [d for d in numbers if d in rules.dtypes]
    return pairs(dtypes, met(rules))


def allo_common() -> str:
    return pairs(
        [*INTEGERS, DType.int(23), DType.uint(17), DType.float16, DType.bfloat16, DType.float32, DType.float64,
         DType.index],
        met("allo_cpp"),
    )  # fmt: skip


def allo_latest() -> str:
    rules = system("allo_hls", revision="latest")
    signed = [d for d in INTEGERS if d.is_signed]
    unsigned = [d for d in INTEGERS if not d.is_signed]
    return rows_of(["", *unsigned], [[f"**{a}**", *(met(rules)(a, b) for b in unsigned)] for a in signed])


def allo_growth() -> str:
    rules = system("allo_hls")
    few = (DType.bool, DType.int8, DType.uint8, DType.int(23), DType.int64, DType.uint64)

    def cell(lhs: DType, rhs: DType) -> str:
        return ", ".join(common_name(rules, op, lhs, rhs) for op in ("add", "sub", "mul"))

    return pairs(few, cell)


def package(name: str) -> str:
    """Return the dtypes in which arrays meet under the system of a package."""
    dtypes = {
        "numpy": [SHORT[n] for n in numpy.COLUMNS],
        "jax": [DType.bool, DType.int4, *INTEGERS[1:5], DType.uint4, *INTEGERS[5:], *FLOAT8, *FLOATS, *COMPLEX],
        "torch": [*(SHORT[n] for n in torch.COLUMNS), *torch.LIMITED, *FLOAT8],
    }[name]
    return pairs(dtypes, met(name))


_OF_TWO = (
    "div", "floor_div", "mod", "maximum", "minimum", "pow", "equal", "less", "bitwise_and", "left_shift", "logical_and"
)  # fmt: skip
_OF_ONE = ("negate", "bitwise_not", "positive", "abs", "logical_not", "exp", "floor")


def allo_operators() -> str:
    """Return the results of operators on a few operands, in each style."""
    i23, u17, f16, index = DType.int(23), DType.uint(17), DType.float16, DType.index
    two = ((i23, u17), (i23, f16), (f16, DType.bfloat16), (index, i23), (i23, index), (index, index), (index, f16))
    one = ((i23,), (DType.uint(40),), (f16,), (index,))
    parts = []
    for names, operands in ((_OF_TWO, two), (_OF_ONE, one)):
        rows = []
        for op in names:
            cells = []
            for dtypes in operands:
                hls, cpp = (common_name(system(name), op, *dtypes) for name in ("allo_hls", "allo_cpp"))
                cells.append(hls if hls == cpp else f"{hls} / {cpp}")
            rows.append([f"`{op}`", *cells])
        parts.append(rows_of(["", *(", ".join(map(str, d)) for d in operands)], rows))
    return "\n\n".join(parts)


PAGES: dict[str, dict[str, Callable[[], str]]] = {
    "promotion.md": {
        "rules": rules,
        "complex_pairs": complex_pairs,
        "complex_rules": complex_rules,
        "systems": systems,
        "counts": counts,
        "agreement": agreement,
    },
    "promotion/max.md": {
        "max": lambda: pairs(DTYPES, met("max")),
        "max_published": lambda: pairs(DTYPES, met("max_published")),
    },
    "promotion/kernel_float.md": {"kernel_float": kernel_float},
    "promotion/anvil.md": {"known": lambda: anvil(False), "ambiguous": lambda: anvil(True)},
    "promotion/array_api.md": {"2025.12": lambda: array_api("2025.12"), "seed": lambda: array_api("seed")},
    **{f"promotion/{name}.md": {name: functools.partial(package, name)} for name in PACKAGES},
    "promotion/allo.md": {
        "common": allo_common,
        "latest": allo_latest,
        "growth": allo_growth,
        "operators": allo_operators,
    },
}
"""The tables by page, and by the marks that they stand between."""
