"""The whole text of errors (operands with types and lines, reason, help) and their classes."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable

import numpy as np
import pytest

from graphcore import Dim, DType, Graph, TensorType, errors, ops
from graphcore.errors import (
    DTypeError,
    ExportError,
    FeedError,
    GraphcoreError,
    GraphError,
    ImmutableError,
    LossyCastWarning,
    MissingExtraError,
    ModelError,
    PromotionError,
    ResourceLimitError,
    RunError,
    ShapeError,
    SymbolError,
    UnsafePathError,
)
from graphcore.models import encoder, llama

D = DType


def text_of(kind: type[GraphcoreError], mistake: Callable[[], object]) -> str:
    with pytest.raises(kind) as raised:
        mistake()
    assert type(raised.value) is kind
    return str(raised.value)


def line_of(mistake: Callable[[], object]) -> int:
    """The line on which a function of one line stands."""
    return inspect.getsourcelines(mistake)[1] + 1


# The look


def test_mismatched_shapes_show_both_operands_and_the_line() -> None:
    graph = Graph("g", {"hidden": TensorType(D.float32, ["batch", 768]), "w": TensorType(D.int8, [512])})
    hidden, w = graph.inputs

    def mistake() -> object:
        return hidden + w

    result = line_of(test_mismatched_shapes_show_both_operands_and_the_line)
    assert text_of(ShapeError, mistake) == (
        "add: shapes do not broadcast: 768 and 512 at axis -1\n"
        f"    lhs  hidden   float32[batch, 768]   test_errors.py:{result}\n"
        f"    rhs  w        int8[512]             test_errors.py:{result}\n"
        "  help: make the dims equal or 1; if they always agree, say so with ops.rebind or give them one name\n"
        f"  at test_errors.py:{line_of(mistake)}   return hidden + w"
    )


def test_dims_of_two_names_are_not_taken_for_equal() -> None:
    graph = Graph("g", {"a": TensorType(D.float32, ["n"]), "b": TensorType(D.float32, ["m"])})
    a, b = graph.inputs
    result = line_of(test_dims_of_two_names_are_not_taken_for_equal)

    def mistake() -> object:
        return a * (b + 1.0)

    assert text_of(ShapeError, mistake) == (
        "mul: shapes do not broadcast: n and m at axis -1\n"
        f"    lhs  a       float32[n]   test_errors.py:{result}\n"
        f"    rhs  add_3   float32[m]   test_errors.py:{line_of(mistake)}\n"
        "  help: make the dims equal or 1; if they always agree, say so with ops.rebind or give them one name\n"
        f"  at test_errors.py:{line_of(mistake)}   return a * (b + 1.0)"
    )


def test_dtypes_that_do_not_meet_name_system_and_fix() -> None:
    graph = Graph("g", {"a": TensorType(D.float8_e4m3fn, ["n"]), "b": TensorType(D.bfloat16, ["n"])})
    a, b = graph.inputs
    result = line_of(test_dtypes_that_do_not_meet_name_system_and_fix)

    def mistake() -> object:
        return a * b

    assert text_of(PromotionError, mistake) == (
        "mul: float8_e4m3fn and bfloat16 have no common dtype in max: float8_e4m3fn only goes with itself\n"
        f"    lhs  a   float8_e4m3fn[n]   test_errors.py:{result}\n"
        f"    rhs  b   bfloat16[n]        test_errors.py:{result}\n"
        "  help: cast one of them: .cast(DType.bfloat16) or .cast(DType.float8_e4m3fn)\n"
        f"  at test_errors.py:{line_of(mistake)}   return a * b"
    )


def test_value_that_is_not_representable_shows_the_literal() -> None:
    graph = Graph("g", {"tokens": TensorType(D.int8, ["n"])})
    tokens = graph["tokens"]
    result = line_of(test_value_that_is_not_representable_shows_the_literal)

    def mistake() -> object:
        return 300 + tokens

    assert text_of(DTypeError, mistake) == (
        "add: 300 cannot be held in int8\n"
        "    lhs           300\n"
        f"    rhs  tokens   int8[n]   test_errors.py:{result}\n"
        "  help: int8 holds -128 to 127; cast the Symbol to a wider dtype first\n"
        f"  at test_errors.py:{line_of(mistake)}   return 300 + tokens"
    )


def test_wrong_axis_says_which_there_are() -> None:
    graph = Graph("g", {"x": TensorType(D.float32, ["n", 4]), "s": TensorType(D.float32)})
    x, scalar = graph.inputs
    result = line_of(test_wrong_axis_says_which_there_are)

    def mistake() -> object:
        return ops.unsqueeze(ops.squeeze(x, 5), 0)

    text = text_of(ShapeError, mistake)
    assert text == (
        "squeeze: there is no axis 5 of a tensor of rank 2\n"
        f"    x  x   float32[n, 4]   test_errors.py:{result}\n"
        "  help: axis must be one of -2 to 1\n"
        f"  at test_errors.py:{line_of(mistake)}   return ops.unsqueeze(ops.squeeze(x, 5), 0)"
    )
    with pytest.raises(ShapeError, match="there is no axis 0 of a tensor of rank 0") as raised:
        ops.squeeze(scalar, 0)
    assert raised.value.help == "axis must be empty: a scalar has no axes"


def test_duplicate_names_show_who_has_it() -> None:
    graph = Graph("g", {"x": TensorType(D.float32, ["n"])})
    result = line_of(test_duplicate_names_show_who_has_it)

    def mistake() -> object:
        return graph.weight("x", np.zeros(2, np.float32))

    assert text_of(GraphError, mistake) == (
        "weight: the name 'x' is taken\n"
        f"    taken by  x   float32[n]   test_errors.py:{result}\n"
        "  help: choose another name\n"
        f'  at test_errors.py:{line_of(mistake)}   return graph.weight("x", np.zeros(2, np.float32))'
    )


def test_symbols_of_another_graph_are_named_with_their_graph() -> None:
    x = Graph("encoder", {"x": TensorType(D.float32, ["n"])})["x"]
    y = Graph("decoder", {"y": TensorType(D.float32, ["n"])})["y"]
    result = line_of(test_symbols_of_another_graph_are_named_with_their_graph)

    def mistake() -> object:
        return x + y

    assert text_of(GraphError, mistake) == (
        "add: an operand belongs to graph 'decoder', not to 'encoder'\n"
        f"    an operand  y   float32[n]   test_errors.py:{result + 1}\n"
        "  help: Symbols of two graphs never mix: make it an input of this graph\n"
        f"  at test_errors.py:{line_of(mistake)}   return x + y"
    )


def test_missing_outputs_are_asked_for() -> None:
    graph = Graph("empty", {"x": TensorType(D.float32, ["n"])})

    def mistake() -> object:
        return graph.to_onnx()

    assert text_of(GraphError, mistake) == (
        "graph 'empty' has no outputs\n"
        "  help: set them: graph.output(y)\n"
        f"  at test_errors.py:{line_of(mistake)}   return graph.to_onnx()"
    )


def test_unknown_target_lists_those_there_are() -> None:
    graph = Graph("g", {"x": TensorType(D.float32, ["n"])})
    graph.output(graph["x"] + 1)
    with pytest.raises(GraphError, match="no target is called 'tpu'") as raised:
        graph.to_onnx(target="tpu")  # type: ignore[arg-type]
    assert raised.value.help == "use one of onnx, cpu, cuda, openvino, wasm, webgpu"


def test_unknown_dtype_lists_those_there_are() -> None:
    def mistake() -> object:
        return TensorType("flaot32", [1])

    assert text_of(DTypeError, mistake) == (
        "no dtype is called 'flaot32'\n"
        "  help: did you mean float32? "
        "use one of bool, int4, uint4, int8, int16, int32, int64, uint8, uint16, uint32, uint64, "
        "float8_e4m3fn, float8_e5m2, float16, bfloat16, float32, float64, string, int2, uint2, float4_e2m1, "
        "float8_e4m3fnuz, float8_e5m2fnuz, float8_e8m0, float6_e2m3fn, "
        "float6_e3m2fn, index, address, tensor_float32, complex64, complex128, "
        "or DType.int(n) / DType.uint(n)\n"
        f'  at test_errors.py:{line_of(mistake)}   return TensorType("flaot32", [1])'
    )


def test_operand_that_is_not_a_tensor_says_what_to_give() -> None:
    graph = Graph("g", {"x": TensorType(D.float32, ["n"])})
    x = graph["x"]
    with pytest.raises(DTypeError) as raised:
        x + [1, 2]  # type: ignore[operator]  # noqa: RUF005 - the operator is what is tested
    assert raised.value.summary == "add: rhs has unsupported type list"
    assert raised.value.help == "make it an array: np.asarray(value), or a constant: graph.constant(value, dtype)"
    with pytest.raises(DTypeError) as raised:
        x * "2"
    assert raised.value.summary == "mul: rhs has unsupported type str"
    assert raised.value.help == "pass a Symbol, a NumPy array or a Python number"
    with pytest.raises(DTypeError, match=r"add: rhs is an array of unsupported dtype datetime64\[D\]"):
        x + np.zeros(2, "M8[D]")
    with pytest.raises(DTypeError, match="add: lhs has unsupported type NoneType"):
        ops.add(None, x)  # type: ignore[arg-type]


# What a Symbol cannot be


def _symbol() -> tuple[Graph, object]:
    graph = Graph("g", {"x": TensorType(D.float32, ["n", 4])})
    return graph, graph["x"]


def test_truth_value_of_a_symbol_says_what_to_use() -> None:
    graph, x = _symbol()
    result = line_of(_symbol)

    def mistake() -> object:
        return 1 if x else 2

    assert text_of(SymbolError, mistake) == (
        "bool: a Symbol has no truth value while the graph is being built\n"
        f"    value  x   float32[n, 4]   test_errors.py:{result}\n"
        "  help: use ops.where(condition, a, b), or ops.cond(condition, then_fn, else_fn) for branches, & | ~ for and, "
        "or, not, and `is` to compare Symbols themselves\n"
        f"  at test_errors.py:{line_of(mistake)}   return 1 if x else 2"
    )
    assert not graph.nodes


@pytest.mark.parametrize(
    ("use", "summary"),
    [
        (lambda x: 1 in x, "in: the elements of a Symbol are not known while the graph is being built"),
        (lambda x: x in [x + 1], "bool: a Symbol has no truth value while the graph is being built"),
        (lambda x: 0 < x < 1, "bool: a Symbol has no truth value while the graph is being built"),
        (lambda x: not x, "bool: a Symbol has no truth value while the graph is being built"),
        (iter, "iter: the length of the first axis, n, is not known while the graph is being built"),
        (lambda x: [*x], "iter: the length of the first axis, n, is not known while the graph is being built"),
        (lambda x: iter(ops.reshape(x[0, 0], [])), "iter: cannot iterate over a scalar, which has no axes"),
        (len, "len: the length of the first axis is not known while the graph is being built"),
        (int, "int: a Symbol has no value while the graph is being built"),
        (float, "float: a Symbol has no value while the graph is being built"),
        (complex, "complex: a Symbol has no value while the graph is being built"),
        (lambda x: [1, 2][x], "index: a Symbol has no value while the graph is being built"),
        (range, "index: a Symbol has no value while the graph is being built"),
        (np.asarray, "array: a Symbol has no value while the graph is being built"),
        (lambda x: np.array([x, x]), "array: a Symbol has no value while the graph is being built"),
    ],
)
def test_symbol_has_no_value_when_python_asks_for_one(use: Callable[[object], object], summary: str) -> None:
    _, x = _symbol()
    with pytest.raises(SymbolError) as raised:
        use(x)
    assert raised.value.summary == summary
    assert "\n  at test_errors.py:" in str(raised.value)


def test_numpy_functions_that_build_no_op_do_not_take_symbols() -> None:
    _, x = _symbol()
    with pytest.raises(TypeError, match=r"np.gcd: NumPy computes with values, but a Symbol has none"):
        np.gcd(x, 2)  # type: ignore[call-overload]


# What errors are


@pytest.mark.parametrize(
    ("kind", "parents"),
    [
        (DTypeError, [TypeError]),
        (ShapeError, [ValueError]),
        (PromotionError, [TypeError]),
        (GraphError, [ValueError]),
        (SymbolError, [GraphError, TypeError, ValueError]),
        (ImmutableError, [GraphError, AttributeError, TypeError]),
        (ModelError, [ValueError]),
        (FeedError, [TypeError, ValueError]),
        (RunError, [RuntimeError]),
        (ExportError, [OSError]),
        (MissingExtraError, [ImportError]),
        (UnsafePathError, [OSError]),
        (ResourceLimitError, [MemoryError]),
    ],
)
def test_error_is_the_builtin_that_python_users_catch(kind: type[GraphcoreError], parents: list[type]) -> None:
    assert issubclass(kind, GraphcoreError)
    for parent in parents:
        assert issubclass(kind, parent)
        with pytest.raises(parent):
            raise kind("no")


def test_every_error_is_covered_by_these_tests() -> None:
    named = {n for n, c in vars(errors).items() if isinstance(c, type) and issubclass(c, GraphcoreError)}
    assert named == {
        "GraphcoreError", "DTypeError", "ShapeError", "PromotionError", "GraphError", "SymbolError", "ImmutableError",
        "ModelError", "FeedError", "RunError", "ExportError", "MissingExtraError", "UnsafePathError",
        "ResourceLimitError", "RunTimeoutError", "RunCancelledError", "BusyError",
    }  # fmt: skip
    assert issubclass(LossyCastWarning, UserWarning)


KINDS = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, GraphcoreError)]


@pytest.mark.parametrize("kind", KINDS)
def test_errors_pickle_and_copy(kind: type[GraphcoreError]) -> None:
    _, x = _symbol()
    try:
        raise kind("what: why not", operands={"x": x}, help="do this")
    except GraphcoreError as raised:
        error = raised
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(other) is kind
        assert str(other) == str(error)
        assert (other.summary, other.help, other.line) == ("what: why not", "do this", error.line)
        assert other.line is not None


def test_error_is_only_its_summary_when_there_is_no_more_to_say() -> None:
    error = GraphcoreError("no")
    assert str(error).split("\n")[0] == "no"
    assert len(str(error).split("\n")) == 2


def test_columns_line_up_when_operands_are_of_different_lengths() -> None:
    graph = Graph("g", {"a": TensorType(D.bool, []), "a_long_name": TensorType(D.float32, [Dim("n") * 2, 3])})
    rows = str(GraphError("x", operands={"lhs": graph[0], "condition": graph[1], "literal": 1.5})).split("\n")[1:4]
    starts = {row.index(part) for row, part in zip(rows, ("bool[]", "float32[", "1.5"), strict=True)}
    assert len(starts) == 1
    assert {row.index("test_errors.py") for row in rows[:2]} == {rows[0].index("test_errors.py")}


def test_operand_is_shown_as_written_when_promotion_cast_it() -> None:
    graph = Graph("shown", {"x": TensorType(DType.float32, ["b", 3]), "i": TensorType(DType.int32, ["b"])})
    with pytest.raises(ShapeError) as caught:
        ops.concat([graph["x"], graph["i"]])
    assert "value 1  i   int32[b]" in str(caught.value)


def test_operand_is_shown_as_written_when_an_earlier_op_cast_it() -> None:
    graph = Graph("shown", {"x": TensorType(DType.float32, ["b", 3]), "i": TensorType(DType.int32, [3])})
    graph["x"] * graph["i"]
    with pytest.raises(ShapeError) as caught:
        ops.concat([graph["x"], graph["i"]])
    assert "value 1  i   int32[3]" in str(caught.value)


def test_error_of_a_model_shows_the_line_that_asked_for_it() -> None:
    for ask in (
        lambda: llama.Config(heads=3, kv_heads=2),
        lambda: llama.Config.read({}),
        lambda: llama.build(llama.Config(), {}),
        lambda: llama.build(llama.Config(), cache=0),
    ):
        with pytest.raises(GraphcoreError) as caught:
            ask()
        assert caught.value.line is not None
        assert caught.value.line.path == __file__
    x = Graph("g", {"x": TensorType("float32", [3])})[0]
    with pytest.raises(ShapeError) as of_an_op:
        encoder._pool(x, x, "mean", True)
    assert of_an_op.value.line is not None
    assert of_an_op.value.line.path.endswith("encoder.py")
