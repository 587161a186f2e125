"""One home for a fact: what is a property of an operator is asked of `graphcore.operators`, not written down again."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache

from docs.imports import ROOT, modules
from graphcore.operators import ONNX, ROWS, Trait, having

TABLES = {
    "registry: the key is an operator, the value code": """
        graphcore/analysis/flop_rules.py _BY_DOMAIN
        graphcore/conformance/cells.py ONNX_OPERATORS
        graphcore/arrays/evaluate.py _FOLDS
        graphcore/ir/transform/ranges.py RULES
        graphcore/ir/transform/shape_values.py VALUES
        graphcore/onnx/schemas/other_domains.py RULES
        graphcore/onnx/versions/downgrade.py ROWS
        graphcore/onnx/versions/older.py MOVED
        graphcore/onnx/versions/table.py CHANGES
        graphcore/passes/folding.py _FOLDS FOLDS
        graphcore/passes/shapes.py SHAPES
        graphcore/passes/simplify.py IDENTITIES
        runtime/sessions/direct/operators.py _FIRST_DTYPE ROWS _OPERANDS_AND_RESULTS
        runtime/fusions/__init__.py FUSIONS
        runtime/inspection/placement.py _CONDITIONS
        runtime/lowering/decompositions/cuda/__init__.py ROWS
        runtime/lowering/decompositions/recurrent.py ENDS
        runtime/lowering/decompositions/float64_functions.py FUNCTIONS WITH_KERNELS
        runtime/lowering/decompositions/bits.py LATE
        runtime/lowering/decompositions/openvino.py _OPPOSITES
        runtime/lowering/decompositions/rows.py NEEDED _MOVED_AS_NUMBERS
        runtime/lowering/decompositions/shape_arithmetic.py _NUMPY
        runtime/lowering/dtypes/complex_numbers/arithmetic.py RULES
        runtime/lowering/dtypes/complex_numbers/exponentials.py RULES
        runtime/lowering/dtypes/complex_numbers/layers.py _RULES
        runtime/lowering/dtypes/complex_numbers/trigonometry.py RULES
        runtime/lowering/dtypes/integers/intervals.py RULES
        runtime/lowering/dtypes/integers/wide/arithmetic.py RULES
        runtime/lowering/dtypes/integers/wide/arithmetic.py RULES
        runtime/lowering/dtypes/integers/wide/sorting.py RULES
        runtime/lowering/dtypes/integers/wide/arithmetic.py RULES
        runtime/lowering/dtypes/integers/wide/running.py RULES
        runtime/lowering/dtypes/integers/wide/sorting.py RULES
        runtime/ort/openvino/support.py _RULES
        runtime/quantizer/weights.py _COMPUTED
    """,
    "keys of registries of the lowering, which is not imported there": """
        graphcore/promotion/allo.py OPERATORS
        graphcore/promotion/complex_operators.py OPERATORS
    """,
    "operators of Python": """
        graphcore/decompile/templates.py _SIGNS
    """,
    "format: attributes, operands and versions that ONNX defines": """
        graphcore/onnx/proto/limits.py _WINDOWED RANGES AXES AXES_OF CHOICES _WITH_OPERANDS
        graphcore/onnx/proto/ranges.py OPERANDS INDEXED POSITIONS
        graphcore/surgery/roles.py _EXACT _LIKE
        graphcore/surgery/result_types.py _REAL
        graphcore/surgery/sizes.py _STATES
        runtime/lowering/decompositions/recurrent.py _GATES _ACTIVATIONS _PLAIN
        runtime/lowering/workarounds/empty.py _POOLS _PRODUCTS
        runtime/lowering/workarounds/sizes.py _FILTERS
        runtime/lowering/targets/legality.py BY_RESULT
        runtime/ort/release.py PARAMETER
    """,
    "kernel: what onnxruntime's kernels do, measured": """
        runtime/buffers/state.py _WRITERS
        runtime/lowering/decompositions/rows.py AS_WRITTEN _WINDOWS
        runtime/lowering/decompositions/cuda/__init__.py STAY AS_DOUBLE
        runtime/lowering/decompositions/cuda/networks.py _ACTIVATIONS
        runtime/lowering/file_versions.py RECENT
        runtime/lowering/targets/__init__.py _KERNELS_OF_FNUZ
        runtime/lowering/targets/compute_dtypes.py LOW_BITS VIEWED
        runtime/lowering/targets/compute_dtypes.py UNROUNDED CUDA_ONCE CPU CUDA OPENVINO
        runtime/ort/memory.py PACKED
        runtime/ort/release.py WITHOUT_KERNELS
        runtime/ort/options.py PLAIN PRODUCTS
        runtime/ort/sessions.py _READ_LATE
    """,
    "other program: what onnxruntime's optimisers, ONNX's inference, OpenVINO or JAX match or do": """
        graphcore/promotion/packages/jax.py _REDUCTIONS
        runtime/sessions/direct/start.py _FUSED
        runtime/sessions/direct/operators.py LOWERED_ALONE
        runtime/lowering/workarounds/moves.py _REMOVABLE
        runtime/lowering/workarounds/empty.py _FILTERS
        runtime/lowering/workarounds/sizes.py MIN_AXES OLDER
        runtime/lowering/workarounds/dequantized.py NEUTRAL _QUANTIZED_MOVES _FUSED _MOVED_SCALES
        runtime/lowering/workarounds/arithmetic.py _WEIGHTS _MOVES
        runtime/ort/openvino/support.py _EXACT _SMALL _INDICES _COUNTED _COSTLY
        runtime/ort/optimisers.py RISKY_PATTERNS _CONVOLUTIONS _POOLS _PRODUCTS _GELUS _MOVES _MATCHED EXPANDED
    """,
    "algorithm: steps that one rule looks for, beside that rule": """
        graphcore/analysis/flop_rules.py _ELEMENTWISE _REDUCTIONS
        graphcore/ir/state/settings.py OPERATORS
        graphcore/onnx/read/statements.py _SPECIAL
        graphcore/passes/simplify.py _NEUTRAL _ONE_SIDED
        graphcore/promotion/anvil.py _OF_LISTS _LISTS
        graphcore/promotion/complex_operators.py ORDERED _HELP
        graphcore/surgery/chain.py _ARITHMETIC
        graphcore/surgery/products.py FOLDED_INTO
        runtime/sessions/direct/known_operators.py _STEPS _BY_NUMBERS STARTS_MARK TRACES
        runtime/sessions/direct/known_operators.py SIZED _DECOMPOSED _ROWS_STAY _INSPECTED
        runtime/sessions/direct/known_operators.py _SAME_ELEMENTS _ALL_ELEMENTS
        runtime/fusions/rotary.py _ELEMENTWISE
        runtime/lowering/decompositions/shape_arithmetic.py _TESTS
        runtime/lowering/dtypes/complex_numbers/layers.py SUMS
        runtime/lowering/dtypes/sequences.py _RETURNS_TENSOR _TAKES_TENSORS
        runtime/lowering/expansion/row_switch.py _OWN_WIDTH
        runtime/lowering/report.py _ORDINARY
        runtime/precision_search/ranges.py _SUMS
        runtime/quantizer/weights.py _ARITHMETIC
    """,
}
"""The tables that are not a set of one property, by the reason, file by file."""

_NAMES = re.compile(r"\s*[A-Z]\w*(\s+[A-Z]\w*)*\s*")
_BODIES = re.compile(r"^(@|def |class |async def ).*\n([ \t)\]}].*\n|\n)*", re.MULTILINE)
_WORDS = re.compile(r"\b[A-Z]\w+")
_MIN_NAMES = 3


def tables(text: str) -> Iterator[tuple[str, ast.expr, set[str]]]:
    """Yield the literals at the top of a module with three or more operators, but for differences from traits."""
    rest = _BODIES.sub("", text)  # parsing all of it takes five times as long
    for statement in ast.parse(rest).body if len(ROWS.keys() & _WORDS.findall(rest)) >= _MIN_NAMES else ():
        if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign) and statement.value is not None:
            target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
            nodes = [*ast.walk(statement.value)]
            texts = [n.value for n in nodes if isinstance(n, ast.Constant) and type(n.value) is str]
            result = {name for text in texts if _NAMES.fullmatch(text) for name in text.split()} & ROWS.keys()
            if len(result) >= _MIN_NAMES and not _is_expression(nodes):
                yield ast.unparse(target), statement.value, result


def _is_expression(nodes: Iterable[ast.AST]) -> bool:
    """Return True if a set is written as the difference from those of traits."""
    has_traits = any(isinstance(n, ast.Call) and ast.unparse(n.func) == "having" for n in nodes)
    return has_traits and not any(isinstance(n, ast.Dict) for n in nodes)


@cache
def all_tables() -> dict[tuple[str, str], tuple[ast.expr, set[str]]]:
    """Return every such literal by file and name. `ops/` is left out: what an op is made of is its declaration."""
    results = {}
    for module, path in modules().items():
        if module.split(".")[0] not in ("operators", "ops"):
            shown, text = path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")
            results.update({(shown, name): (value, names) for name, value, names in tables(text)})
    return results


def test_tables_of_operators_are_traits_or_say_why_not() -> None:
    lines = [line.split() for text in TABLES.values() for line in text.strip().splitlines()]
    results = {(path, name) for path, *names in lines for name in names}
    assert all_tables().keys() - results == set(), "write it as an expression of traits, or list it with its reason"
    assert results - all_tables().keys() == set(), "these are not tables any more"


def test_no_literal_is_what_a_trait_says() -> None:
    sets = {names for trait in Trait for names in (having(trait), having(trait) & ONNX)}
    assert not {
        place
        for place, (value, names) in all_tables().items()
        if not any(isinstance(n, ast.Dict) for n in ast.walk(value)) and names in sets
    }


def test_tables_are_found() -> None:
    source = '_A = frozenset("Reshape Slice Tile".split())\nB: X = {"Reshape": 1, ("", "Slice"): 2, "Tile": 3}\n'
    others = (
        'C = having(Trait.MOVES) - {"Reshape", "Slice", "Tile"}\nD = "Reshape, Slice and Tile"\nE = ("Reshape", "Tile")'
    )
    assert [(name, item) for name, _, item in tables(source + others)] == [
        ("_A", {"Reshape", "Slice", "Tile"}),
        ("B", {"Reshape", "Slice", "Tile"}),
    ]
