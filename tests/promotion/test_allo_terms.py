"""Expressions of Allo's style hls: their terms, their ends, numbers and floats in them, their trees."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import pytest

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType, ops
from graphcore.build.elementwise import MAX_TERMS
from graphcore.errors import DTypeError, GraphError, PromotionError
from graphcore.ir.symbol import Node
from graphcore.promotion import Key, Operand, Term, system
from graphcore.runtime.lowering import lower
from tests.promotion.test_allo import computed, dtype_of, graph_of


def terms_of(symbol: Symbol) -> list[str]:
    """The terms that the node of a Symbol has, with a sign each for sums."""
    node = symbol.producer
    assert isinstance(node, Node)
    signs = node.attributes.get("negated", [0] * len(node.inputs))
    return [("-" if minus else "") + str(s.name) for s, minus in zip(node.inputs, signs, strict=True) if s is not None]


@pytest.mark.parametrize(
    ("expression", "terms"),
    [
        ("a + b + c", "a b c"),
        ("a + (b + c)", "a b c"),
        ("a - (b - c)", "a -b c"),
        ("a - (b - (c - d))", "a -b c -d"),
        ("(a - b) - (c + d)", "a -b -c -d"),
        ("(a + b) - (a + b)", "a b -a -b"),
        ("a + a - a", "a a -a"),
        ("+(a + b) + c", "a b c"),
        ("a * b * (c * d)", "a b c d"),
        ("a * a * a", "a a a"),
    ],
)
def test_nested_operators_are_one_node_with_all_terms(expression: str, terms: str) -> None:
    graph = graph_of("i8 u8 i23 u1")
    result = eval(expression, {s.name: s for s in graph.inputs})
    assert terms_of(result) == terms.split()


def test_products_are_terms_of_a_sum_and_sums_factors_of_a_product() -> None:
    graph = graph_of("i8 u8 i23 u1")
    a, b, c, d = graph.inputs
    total = a * b + c * d * a
    assert [s.rpartition("_")[0] for s in terms_of(total)] == ["product_of_terms"] * 2
    assert total.dtype is dtype_of("i33")  # 16 and 32 bits, and one more
    product = (a + b) * (c - d) * a
    assert [s.rpartition("_")[0] for s in terms_of(product)][:2] == ["sum_of_terms"] * 2
    assert product.dtype is dtype_of(f"i{10 + 24 + 8}")


ENDS: list[tuple[str, Callable[[Symbol], Any]]] = [
    ("a cast to its own dtype", lambda s: s.cast(s.dtype)),
    ("a cast", lambda s: s.cast(DType.int64)),
    ("another operator", lambda s: ops.maximum(s, s)),
    ("the other kind of expression", lambda s: s * s),
    ("an index", lambda s: s[0]),
    ("an output", lambda s: s.graph.output(s)),
    ("a name", lambda s: setattr(s, "name", "total")),
]


@pytest.mark.parametrize(("what", "use"), ENDS)
def test_expression_ends_where_it_is_used_otherwise(what: str, use: Callable[[Symbol], Any]) -> None:
    graph = graph_of("i8 i8 i8")
    a, b, c = graph.inputs
    total = a + b
    assert terms_of(total + c) == ["a", "b", "c"]
    use(total)
    assert terms_of(total + c) == [total.name, "c"]
    assert (total + c).dtype is DType.int(10)
    assert terms_of((total + c) + c) == [total.name, "c", "c"]


def test_sum_that_others_go_on_with_is_flat_in_each_of_them() -> None:
    graph = graph_of("i8 i8 i8")
    a, b, c = graph.inputs
    total = a + b
    more, less = total + c, total - c
    assert terms_of(more) == ["a", "b", "c"]
    assert terms_of(less) == ["a", "b", "-c"]
    assert more.dtype is less.dtype is DType.int(10)
    graph.output(total, more, less)
    arrays = [np.array(v, np.int8) for v in ([-128, 127], [-128, 127], [-128, 1])]
    results = gc.InferenceSession().load(graph)(*arrays)
    assert [r.tolist() for r in results] == [[-256, 254], [-384, 255], [-128, 253]]


def test_expressions_that_nothing_uses_are_left_out_with_what_they_alone_use() -> None:
    graph = graph_of("i8 i8 i8")
    a, b, c = graph.inputs
    a * b + c - (a * c + b)
    graph.output(-a)
    assert [n.op_type for n in lower(graph, "onnx").nodes if n.op_type in ("Add", "Mul", "Sub")] == []
    assert gc.InferenceSession().load(graph)(*[np.array([-128], np.int8)] * 3)[0].tolist() == [128]


def test_expression_may_be_gone_on_with_in_a_copy() -> None:
    graph = graph_of("i8 u8 i8")
    a, b, c = graph.inputs
    total, product = 3 + a - b, a * b
    for other in (graph.copy(), copy.deepcopy(graph), pickle.loads(pickle.dumps(graph))):
        again, twice = other.symbols[total.id], other.symbols[product.id]
        assert (again + other["c"]).dtype is (total + c).dtype is DType.int(11)
        assert (other["c"] - again).dtype is (c - total).dtype
        assert terms_of(again + other["c"])[1:] == ["a", "-b", "c"]
        assert terms_of(twice * other["c"]) == ["a", "b", "c"]
        assert str(other) == str(other.copy())


def test_text_shows_whole_expressions_only() -> None:
    graph = graph_of("i8 u8 i23 u1")
    a, b, c, d = graph.inputs
    graph.output(a - (b - 3 * c) + d)
    lines = [line.split("  #")[0].split(" = ")[-1].strip() for line in str(graph).splitlines() if " = " in line]
    assert lines[0] == "ProductOfTerms(int46(3), c)"
    assert lines[1].startswith("SumOfTerms(a, b, product_of_terms_")
    assert lines[1].endswith(", d, negated=[0, 1, 0, 0])")
    assert len(lines) == 2


def test_long_expressions_are_refused_before_they_grow_without_bounds() -> None:
    x = graph_of("i8")["a"]
    for _ in range(int(math.log2(MAX_TERMS))):
        x = x + x
    assert x.dtype is DType.int(8 + 12)
    with pytest.raises(GraphError, match=f"an expression of {2 * MAX_TERMS} terms") as raised:
        x + x
    assert "split it by naming a part" in raised.value.help
    x.name = "total"
    assert (x + x).dtype is DType.int(21)


def test_widths_without_bounds_are_refused() -> None:
    x = graph_of("i64")["a"]
    for _ in range(10):
        x = x * x
    x = x.cast(x.dtype)
    assert x.dtype is DType.int(1 << 16)
    with pytest.raises(DTypeError, match="the result would have 131072 bits; integers have 65536 bits at most"):
        x * x


# Numbers in expressions


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("a + 3", "i33"),
        ("3 + a", "i33"),
        ("3 - b", "i10"),
        ("b + 3 + a", "i34"),  # 33 bits for b, as unsigned terms have one more, and two for three terms
        ("b + 3 + 200", "u10"),
        ("(3 + b) + a", "i34"),
        ("a + (3 + b)", "i34"),
        ("b * 2 * 3", "u24"),
        ("2 * b * a", "i48"),
        ("a + True", "i33"),
    ],
)
def test_number_takes_the_dtype_of_the_first_typed_term(expression: str, expected: str) -> None:
    graph = graph_of("i32 u8")
    result = eval(expression, {s.name: s for s in graph.inputs})
    assert result.dtype is dtype_of(expected)
    rows = [(-(2**31), 0), (2**31 - 1, 255), (-1, 7)]
    wanted = [eval(expression, dict(zip("ab", row, strict=True))) for row in rows]
    assert computed(graph, result, list(zip(*rows, strict=True))) == wanted


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("b + 300", "300 cannot be held in uint8"),
        ("b - -1", "-1 cannot be held in uint8"),
        ("a + 2.5", "2.5 cannot be held in int32"),
        ("d - (c + 300)", "300 cannot be held in bool"),
        ("d * (200 * b)", "200 cannot be held in bool"),
    ],
)
def test_number_that_the_first_typed_term_cannot_hold_is_refused(expression: str, message: str) -> None:
    graph = graph_of("i32 u8 i10 u1")
    with pytest.raises(DTypeError) as raised:
        eval(expression, {s.name: s for s in graph.inputs})
    assert message in raised.value.summary
    assert "a number takes the dtype of the first operand that has one" in raised.value.help
    assert "graph.constant(" in raised.value.help


# Floats


def test_floats_keep_the_written_tree_and_its_pairs() -> None:
    graph = graph_of("i8 i7 f16 f32")
    a, b, c, d = graph.inputs
    total = (a + b) + c + d
    assert [n.op_type for n in graph.nodes] == ["SumOfTerms", "Cast", "Add", "Cast", "Add"]
    assert total.dtype is DType.float32
    assert computed(graph, total, [[127, -128], [63, -64], [1, 2], [3, 4]]) == [194, -186]


def test_fast_math_makes_balanced_trees_of_floats() -> None:
    rng = np.random.default_rng(3)
    arrays = [rng.standard_normal(50).astype(np.float32) * np.float32(10.0 ** (i % 4)) for i in range(5)]
    for fast in (False, True):
        graph = graph_of("f32 " * 5, fast_math=fast)
        a, b, c, d, e = graph.inputs
        graph.output(a + b - c + d + e, a * b * c * d)
        (total, product) = gc.InferenceSession().load(graph)(*arrays)
        v, w, x, y, z = arrays
        assert np.array_equal(total, ((v + w) + (-x + y)) + z if fast else (((v + w) - x) + y) + z)
        assert np.array_equal(product, (v * w) * (x * y) if fast else ((v * w) * x) * y)


def test_fast_math_casts_all_terms_to_the_final_type() -> None:
    graph = graph_of("i8 f32 f64 i8", fast_math=True)
    a, b, c, d = graph.inputs
    total = a + b + c - d
    assert terms_of(total) == ["a", "b", "c", "-d"]
    assert total.dtype is DType.float64
    assert (a + b).dtype is DType.float32
    assert (b * 2.5).dtype is DType.float32
    assert computed(graph, total, [[1], [2], [3], [4]]) == [2.0]


def test_index_goes_with_integers_pair_by_pair_and_not_with_floats() -> None:
    for fast in (False, True):
        graph = graph_of("index i8 f32", fast_math=fast)
        a, b, c = graph.inputs
        assert (a + 1).dtype is (a * a).dtype is (b.cast(DType.uint8) + a).dtype is DType.index
        with pytest.raises(PromotionError, match="operator 'add' with operand types index, float32"):
            a + c
        with pytest.raises(PromotionError, match="operator 'sub' with operand types index, float32"):
            (a + 1) - c


# The tree


def pairs(terms: Sequence[Any]) -> Any:
    """Neighbours pair up, the last of an odd number moves up."""
    level = list(terms)
    while len(level) > 1:
        level = [tuple(level[i : i + 2]) if i + 1 < len(level) else level[i] for i in range(0, len(level), 2)]
    return level[0]


def tree_of(model: onnx.ModelProto, operator: str) -> Any:
    results = {output: node for node in model.graph.node for output in node.output}

    def below(name: str) -> Any:
        node = results.get(name)
        if node is None:
            return name
        if node.op_type == operator:
            return tuple(map(below, node.input))
        # What else there is extends signs: a value and constants.
        return ("-", below(node.input[0])) if node.op_type == "Neg" else below(node.input[0])

    return below(model.graph.output[0].name)


def depth(tree: Any) -> int:
    return 1 + max(map(depth, tree)) if isinstance(tree, tuple) and tree[0] != "-" else 0


@pytest.mark.parametrize("count", [2, 3, 4, 5, 6, 7, 8, 9, 13, 64])
@pytest.mark.parametrize(("operator", "bits"), [("Add", 32), ("Mul", 1)])
def test_exported_tree_is_balanced(count: int, operator: str, bits: int) -> None:
    graph = graph_of([f"i{bits}" if operator == "Add" else "i1"] * count)
    total = graph.inputs[0]
    for i, x in enumerate(graph.inputs[1:]):
        total = total * x if operator == "Mul" else total - x if i % 3 == 1 else total + x
    graph.output(total)
    negated = [i % 3 == 2 and operator == "Add" for i in range(count)]
    names = [("-", s.name) if minus else s.name for s, minus in zip(graph.inputs, negated, strict=True)]
    tree = tree_of(graph.to_onnx(target="onnx"), operator)
    assert tree == pairs(names)
    assert depth(tree) == math.ceil(math.log2(count))


@pytest.mark.parametrize("count", [64, 128])
def test_sum_of_odd_widths_lowers_to_a_number_of_nodes_that_is_linear(count: int) -> None:
    graph = graph_of(["i23"] * count)
    total = graph.inputs[0]
    for x in graph.inputs[1:]:
        total = total + x
    graph.output(total)
    lowered = lower(graph, "cpu")
    kinds = [n.op_type for n in lowered.nodes]
    assert kinds.count("Add") == count - 1
    # The sign of each input is extended, which is three operators; nothing after that is ever wrapped.
    assert len(kinds) == 4 * count - 1


def test_sum_of_many_runs() -> None:
    graph = graph_of(["i23", "u17"] * 32)
    total = graph.inputs[0]
    for x in graph.inputs[1:]:
        total = total - x
    assert total.dtype is DType.int(23 + 6)
    rows = [[int(s.dtype.min) for s in graph.inputs], [int(s.dtype.max) for s in graph.inputs]]
    assert computed(graph, total, list(zip(*rows, strict=True))) == [row[0] - sum(row[1:]) for row in rows]


def test_terms_broadcast_as_operands_do() -> None:
    graph = Graph(
        "shapes",
        {"a": TensorType(DType.int8, ["n", 1]), "b": TensorType(DType.int8, [3]), "c": TensorType(DType.int8, [])},
        promotion="allo_hls",
    )
    a, b, c = graph.inputs
    total, product = c - b + a, c * b * a
    assert total.shape == product.shape == (a + b).shape
    graph.output(total, product)
    x, y, z = np.array([[1], [-128]], np.int8), np.array([-128, 0, 127], np.int8), np.array(-128, np.int8)
    results = gc.InferenceSession().load(graph)(x, y, z)
    wide_x, wide_y, wide_z = (v.astype(np.int64) for v in (x, y, z))
    assert np.array_equal(results[0], wide_z - wide_y + wide_x)
    assert np.array_equal(results[1], wide_z * wide_y * wide_x)


def test_system_answers_for_all_terms_of_an_expression() -> None:
    eight, nine = Operand(DType.uint8), Operand(DType.int(9))
    inner = Operand(DType.int(10), terms=(Term(nine), Term(eight, negated=True), Term(Operand(None, 5))))
    path = system("allo_hls").resolve(Key("sub", "subtract"), [eight, inner])
    assert path.expression
    assert path.operands == (DType.int(11),) * 4
    assert path.result is DType.int(11)
    assert system("allo_cpp").flattens("add") == frozenset()
    assert not system("allo_cpp").resolve(Key("add", "arithmetic"), [eight, eight]).expression
