"""ONNX's Attention, read from models: every form in every dtype, against its definition key by key in float64."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import graphcore as gc
from graphcore import DType, Graph, TensorType
from graphcore.errors import GraphError, ModelError
from graphcore.ir.transform.walk import walk
from graphcore.runtime.lowering import lower
from graphcore.runtime.lowering.expansion import composed
from graphcore.runtime.lowering.targets.traps import in_force
from graphcore.runtime.ort.release import runtime
from tests.support.graphs import Array

pytestmark = pytest.mark.releases

FLOATS: list[Any] = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]
NUMBER = {
    np.float32: TensorProto.FLOAT, np.float64: TensorProto.DOUBLE,
    np.float16: TensorProto.FLOAT16, ml_dtypes.bfloat16: TensorProto.BFLOAT16,
}  # fmt: skip
EPSILON: dict[Any, float] = {np.float16: 2.0**-10, ml_dtypes.bfloat16: 2.0**-7}
BATCH, HEADS, QUERIES, KEYS, SIZE, V_SIZE = 2, 4, 3, 5, 8, 6
NAMES = ("q", "k", "v", "mask", "past_key", "past_value", "lengths")
RESULTS = {"y": "y", "k": "present_key", "v": "present_value", "s": "scores"}


@dataclass(frozen=True)
class Form:
    """One way to write the node.

    mask: its kind and which axes of [batch, heads, queries, keys] it has, 1 for 1. results: which of the four.
    """

    mask: str = ""
    past: int | None = None
    lengths: tuple[int, ...] | None = None
    flat: bool = False
    kv_heads: int = 2
    results: str = "y"
    attributes: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        shown = {"mask": self.mask, "past": self.past, "lengths": self.lengths, "flat": self.flat, **self.attributes}
        results = [f"{name}={value}" for name, value in shown.items() if value not in ("", None, False)]
        return "-".join([*results, f"kv={self.kv_heads}", self.results]).replace(" ", "")


MASKS = [
    f"{kind} {axes}"
    for kind in ("bool", "float")
    for axes in (
        "k",
        "qk",
        "1k",
        "hqk",
        "1qk",
        "bhqk",
        "b1qk",
        "1hqk",
        "11qk",
        "b11k",
        "bh1k",
        "qs",
        "bhqs",
        "s",
        "k-dead",
    )
]  # "s": fewer keys than there are; "-dead": hides all keys from the second query


def forms() -> Iterator[Form]:
    for kv_heads in (4, 2, 1):
        for flat in (False, True):
            yield Form(kv_heads=kv_heads, flat=flat)
            yield Form(kv_heads=kv_heads, flat=flat, past=2, results="ykv", attributes={"is_causal": 1})
    for mask in MASKS:
        yield Form(mask)
        yield Form(mask, attributes={"is_causal": 1}, flat=True)
        yield Form(mask, past=2, results="ykv")
        yield Form(mask, lengths=(2, 4), attributes={"is_causal": 1})
    for kind in ("int8", "int64", "uint8", "float64", "float16"):
        yield Form(f"{kind} qk")
    for lengths in ((1, 2), (0, 5), (5, 3)):
        for causal in (0, 1):
            yield Form(lengths=lengths, results="ys", attributes={"is_causal": causal, "qk_matmul_output_mode": 3})
    for mode in range(4):
        for mask in ("", "bool bhqk", "float hqk", "bool qs"):
            yield Form(mask, results="ykvs", attributes={"softcap": 2.0, "qk_matmul_output_mode": mode})
            yield Form(mask, results="ykvs", past=2, attributes={"is_causal": 1, "qk_matmul_output_mode": mode})
    for left, right in ((2, 0), (2, 1), (0, -1), (-1, 1), (1, 1), (-1, -1), (2**63 - 1, 2**63 - 1)):
        windows = {"left_window_size": left, "right_window_size": right}
        yield Form(attributes=windows)
        yield Form("bool b1qk", attributes={**windows, "is_causal": 1}, flat=True)
        yield Form(past=2, results="ykvs", attributes={**windows, "qk_matmul_output_mode": 2})
        yield Form("float hqs", lengths=(3, 5), attributes=windows)
    for scale in (0.0, -0.5, 0.125, 3.0):
        yield Form(attributes={"scale": scale})
    yield Form(attributes={"softcap": -1.0})
    options = {"softmax_precision": TensorProto.DOUBLE, "qk_matmul_output_mode": 3}
    yield Form("float qk", results="ykvs", attributes=options)
    for past in (0, 2):
        for flat in (False, True):
            yield Form(past=past, flat=flat)
            yield Form("bool bhqk", past=past, flat=flat, results="ys")
    yield Form(results="ykv")
    yield Form(flat=True, results="ykvs")


FORMS = list(forms())


def operands(form: Form, dtype: Any) -> list[Array | None]:
    rng = np.random.default_rng(len(str(form)))

    def normal(*shape: int) -> Array:
        return rng.standard_normal(shape).astype(dtype)

    value: list[Array | None] = [None] * 7
    kv = form.kv_heads
    q, k, v = normal(BATCH, HEADS, QUERIES, SIZE), normal(BATCH, kv, KEYS, SIZE), normal(BATCH, kv, KEYS, V_SIZE)
    value[:3] = [x.transpose(0, 2, 1, 3).reshape(BATCH, x.shape[2], -1) if form.flat else x for x in (q, k, v)]
    total = KEYS + (form.past or 0)
    if form.past is not None:
        value[4:6] = normal(BATCH, kv, form.past, SIZE), normal(BATCH, kv, form.past, V_SIZE)
    if form.lengths is not None:
        value[6] = np.array(form.lengths)
    if not form.mask:
        return value
    kind, axes = form.mask.split()
    sizes = {"b": BATCH, "h": HEADS, "q": QUERIES, "k": total, "s": total - 1, "1": 1}
    is_dead = axes.endswith("-dead")
    shape = (QUERIES, total) if is_dead else tuple(sizes[axis] for axis in axes)
    if kind == "bool":
        mask: Array = np.asarray(rng.random(shape) < 0.6)
    else:
        mask = np.asarray(3 * rng.random(shape), dtype if kind == "float" else kind)
    if is_dead:
        mask[1] = False if kind == "bool" else -np.inf
    value[3] = mask
    return value


def attended(form: Form, value: list[Array | None]) -> list[Array]:
    """The results, key by key."""
    by_name = {"scale": None, "softcap": 0.0, "left_window_size": -1, "right_window_size": -1, **form.attributes}
    q, k, v, mask, past_key, past_value, lengths = value
    assert q is not None
    assert k is not None
    assert v is not None
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    if form.flat:
        q, k, v = (
            x.reshape(BATCH, -1, n, x.shape[2] // n).transpose(0, 2, 1, 3)
            for x, n in ((q, HEADS), (k, form.kv_heads), (v, form.kv_heads))
        )
    before = 0
    if past_key is not None and past_value is not None:
        before = past_key.shape[2]
        k = np.concatenate([past_key.astype(np.float64), k], 2)
        v = np.concatenate([past_value.astype(np.float64), v], 2)
    total = k.shape[2]
    if mask is not None:
        lacking = np.zeros((*mask.shape[:-1], total - mask.shape[-1]), mask.dtype)
        if mask.dtype != bool and lacking.size:
            lacking[...] = -np.inf
        mask = np.broadcast_to(np.concatenate([mask, lacking], -1), (BATCH, HEADS, QUERIES, total))
    factor = 1 / math.sqrt(SIZE) if by_name["scale"] is None else by_name["scale"]
    array: Array = np.zeros((BATCH, HEADS, QUERIES, V_SIZE))
    stages = np.full((4, BATCH, HEADS, QUERIES, total), -np.inf)
    stages[3] = 0
    for b, h, i in np.ndindex(BATCH, HEADS, QUERIES):
        shared = h // (HEADS // form.kv_heads)
        place = i + (before if lengths is None else int(lengths[b]) - QUERIES)
        seen = []
        for j in range(total):
            score = factor * float(np.dot(q[b, h, i], k[b, shared, j]))
            stages[0, b, h, i, j] = score
            if by_name["softcap"] > 0:
                score = by_name["softcap"] * math.tanh(score / by_name["softcap"])
            stages[1, b, h, i, j] = score
            visible = bool(lengths is None or j < lengths[b])
            visible &= not (by_name.get("is_causal") and j > place)
            visible &= not 0 <= by_name["left_window_size"] < place - j
            visible &= not 0 <= by_name["right_window_size"] < j - place
            if mask is not None and mask.dtype == bool:
                visible &= bool(mask[b, h, i, j])
            elif mask is not None:
                score += float(mask[b, h, i, j])
            if visible and score > -math.inf:
                stages[2, b, h, i, j] = score
                seen.append(j)
        if seen:
            parts = np.exp(stages[2, b, h, i, seen] - stages[2, b, h, i, seen].max())
            stages[3, b, h, i, seen] = parts / parts.sum()
            array[b, h, i] = stages[3, b, h, i] @ v[b, shared]
    if form.flat:
        array = array.transpose(0, 2, 1, 3).reshape(BATCH, QUERIES, -1)
    results = {"y": array, "k": k, "v": v, "s": stages[form.attributes.get("qk_matmul_output_mode", 0)]}
    return [results[name] for name in form.results]


AXES = {
    "q": "bhsd", "k": "bgtd", "v": "bgte", "past_key": "bgpd", "past_value": "bgpe", "lengths": "b",
}  # fmt: skip


def shape_of(name: str, array: Array, dims: str) -> list[Any] | None:
    """named: what is equal has one name, and heads of no number too. none: not even the rank is said."""
    if dims == "none":
        return None
    if dims != "named":
        return list(array.shape) if dims == "static" else [None] * array.ndim
    if name in AXES and len(AXES[name]) == array.ndim:
        return list(AXES[name])
    if name == "mask":
        return [f"m{axis}" if size != 1 else 1 for axis, size in enumerate(array.shape)]
    return ["b", "s" if name == "q" else "t", int(array.shape[2])]


def model_of(form: Form, value: list[Array | None], dims: str = "named", opset: int = 25) -> onnx.ModelProto:
    attributes = dict(form.attributes)
    if form.flat:
        attributes |= {"q_num_heads": HEADS, "kv_num_heads": form.kv_heads}
    names = [name if array is not None else "" for name, array in zip(NAMES, value, strict=True)]
    while not names[-1]:
        names.pop()
    results = [name if letter in form.results else "" for letter, name in RESULTS.items()]
    while not results[-1]:
        results.pop()
    node = helper.make_node("Attention", names, results, **attributes)
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), shape_of(name, array, dims))
        for name, array in zip(NAMES, value, strict=True)
        if array is not None
    ]
    assert value[0] is not None
    assert value[2] is not None
    own, values = (helper.np_dtype_to_tensor_dtype(value[i].dtype) for i in (0, 2))  # type: ignore[union-attr]
    outputs = [
        helper.make_tensor_value_info(RESULTS[letter], values if letter == "v" else own, None)
        for letter in form.results
    ]
    graph = helper.make_graph([node], "attention", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=11)


def run(form: Form, values: list[Array | None], dims: str = "named", opset: int = 25) -> list[Array]:
    model = gc.InferenceSession().load(model_of(form, values, dims, opset).SerializeToString())
    return list(model(*[array for array in values if array is not None]))


def assert_near(got: list[Array], want: list[Array], dtype: Any, error: float | None = None) -> None:
    for mine, exact in zip(got, want, strict=True):
        assert mine.shape == exact.shape
        wide = mine.astype(np.float64)
        finite = np.isfinite(exact)
        assert (wide[~finite] == exact[~finite]).all()
        wide, exact = wide[finite], exact[finite]
        least = error or {np.float64: 1e-12}.get(dtype, 3e-6)
        assert (np.abs(wide - exact) <= least + np.abs(exact) * EPSILON.get(dtype, 0.0) * 0.502).all()


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.__name__)
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_attention_is_its_definition_in_every_form(form: Form, dtype: Any) -> None:
    value = operands(form, dtype)
    got = run(form, value)
    assert all(array.dtype == dtype for array in got)
    assert_near(got, attended(form, value), dtype)


@pytest.mark.numbers
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_kernel_and_expansion_agree_in_every_form(form: Form, monkeypatch: pytest.MonkeyPatch) -> None:
    value = operands(form, np.float32)
    outputs = run(form, value, "static")
    monkeypatch.setattr(composed, "is_native", lambda _: False)
    monkeypatch.setattr(composed, "build_kernel", lambda *_: None)
    result = run(form, value, "static")
    assert_near(outputs, attended(form, value), np.float32)
    assert_near(result, attended(form, value), np.float32)
    assert "Attention" not in operators(form, value)


@pytest.mark.numbers
@pytest.mark.parametrize("dims", ["static", "unknown", "none"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("form", FORMS[::3], ids=str)
def test_attention_is_its_definition_whatever_is_known_of_dims(form: Form, dtype: Any, dims: str) -> None:
    value = operands(form, dtype)
    assert_near(run(form, value, dims), attended(form, value), dtype)


@pytest.mark.numbers
@pytest.mark.parametrize("opset", [23, 24, 25, 26])
def test_attention_is_its_definition_in_every_version(opset: int) -> None:
    form = Form("bool b1qk", past=2, results="ykvs", attributes={"is_causal": 1, "softcap": 2.0})
    value = operands(form, np.float32)
    assert_near(run(form, value, opset=opset), attended(form, value), np.float32)


def operators(form: Form, value: list[Array | None], dims: str = "named") -> list[str]:
    """Those of a session, in bodies too."""
    graph = Graph.load(model_of(form, value, dims).SerializeToString())
    return [node.op_type for node in walk(lower(graph, "cpu", runtime=runtime()))]


NATIVE = [
    Form(),
    Form(flat=True, kv_heads=4),
    Form(attributes={"is_causal": 1, "softcap": 2.0, "scale": 0.25}),
    Form(lengths=(2, 5), attributes={"is_causal": 1}),
    Form(past=2, results="ykv", attributes={"is_causal": 1}),
    Form("bool bhqk"),
    Form("bool 11qk", past=2, results="ykv"),
    Form(results="ykvs", attributes={"qk_matmul_output_mode": 3}),
]


HAS_KERNEL = pytest.mark.skipif(
    in_force("Attention float32", runtime()), reason="the kernel of this release is wrong, and not used"
)


@HAS_KERNEL
@pytest.mark.parametrize("form", NATIVE, ids=str)
def test_attention_is_one_node_when_the_kernel_computes_its_form(form: Form) -> None:
    assert operators(form, operands(form, np.float32), "static") == ["Attention"]


@HAS_KERNEL
@pytest.mark.parametrize("mask", MASKS)
def test_attention_stays_the_kernel_when_only_its_mask_does_not_fit(mask: str) -> None:
    form = Form(mask)
    assert operators(form, operands(form, np.float32)).count("Attention") == 1


@HAS_KERNEL
def test_windows_that_hide_nothing_do_not_keep_the_kernel_away() -> None:
    form = Form(attributes={"left_window_size": -1, "right_window_size": -1})
    assert operators(form, operands(form, np.float32), "static") == ["Attention"]


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.__name__)
def test_least_number_in_a_mask_is_not_an_infinity(dtype: Any) -> None:
    form = Form("float qk", attributes={"is_causal": 1})
    value = operands(form, dtype)
    least = DType.of(dtype).min
    value[3] = np.full((QUERIES, KEYS), least, dtype)
    # That of float16 leaves a score in float32 some of its bits.
    assert_near(run(form, value), attended(form, value), dtype, 4e-3 if dtype is np.float16 else None)


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.__name__)
def test_hidden_keys_do_not_count_when_they_are_not_numbers(dtype: Any) -> None:
    form = Form("bool k", attributes={"left_window_size": 9})
    value = operands(form, dtype)
    value[3] = np.arange(KEYS) < KEYS - 1
    want = attended(form, value)
    assert value[1] is not None
    value[1][:, :, -1] = np.nan
    assert_near(run(form, value), want, dtype)


PRECISIONS = [
    (np.float32, np.float16),
    (np.float32, ml_dtypes.bfloat16),
    (np.float64, np.float32),
    (np.float16, np.float32),
]


@pytest.mark.numbers
@pytest.mark.parametrize(("dtype", "precision"), PRECISIONS)
def test_softmax_is_as_precise_as_the_model_says(dtype: Any, precision: Any) -> None:
    options = {"softmax_precision": NUMBER[precision], "qk_matmul_output_mode": 3}
    form = Form("float qk", results="ykvs", attributes=options)
    value = operands(form, dtype)
    *_, weights = run(form, value)
    assert (weights == weights.astype(precision).astype(dtype)).all()
    epsilon = EPSILON.get(precision, 2.0**-23)
    assert_near([weights], attended(form, value)[-1:], dtype, 4 * epsilon)


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.__name__)
@pytest.mark.parametrize("other", FLOATS, ids=lambda d: d.__name__)
def test_values_may_be_of_another_dtype(dtype: Any, other: Any) -> None:
    form = Form("bool qk", past=2, results="ykv")
    argument = operands(form, dtype)
    for position in (2, 5):
        array = argument[position]
        assert array is not None
        argument[position] = array.astype(other)
    y, key, value = run(form, argument)
    assert (y.dtype, key.dtype, value.dtype) == (dtype, dtype, other)
    want = attended(form, argument)
    assert_near([y, key], want[:2], dtype, 3e-6)
    assert_near([value], want[2:], other)


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: d.__name__)
@pytest.mark.parametrize("empty", ["b", "s", "t"])
def test_attention_gives_nothing_or_0_when_a_sequence_is_empty(empty: str, dtype: Any) -> None:
    sizes = {"b": 2, "s": 3, "t": 5, empty: 0}
    shapes = [(sizes["b"], 4, sizes["s"], 8), (sizes["b"], 2, sizes["t"], 8), (sizes["b"], 2, sizes["t"], 6)]
    results: list[Array | None] = [*(np.ones(shape, dtype) for shape in shapes), None, None, None, None]
    (y,) = run(Form(), results, "static")
    assert y.shape == (sizes["b"], 4, sizes["s"], 6)
    assert not y.any()


@pytest.mark.numbers
@pytest.mark.parametrize("heads", [(0, 0), (4, 4), (4, 2)])
@pytest.mark.parametrize("declared", ["qk", "qv", "q", "kv", "v", ""])
def test_attention_where_only_some_heads_are_known(heads: tuple[int, int], declared: str) -> None:
    shapes = [(1, heads[0], 3, 4), (1, heads[1], 5, 4), (1, heads[1], 5, 6)]
    rng = np.random.default_rng(0)
    arrays: list[Array] = [rng.standard_normal(shape) for shape in shapes]
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.DOUBLE, shape if name in declared else [None] * 4)
        for name, shape in zip("qkv", shapes, strict=True)
    ]
    output = helper.make_tensor_value_info("y", TensorProto.DOUBLE, None)
    graph = helper.make_graph([helper.make_node("Attention", list("qkv"), ["y"])], "g", inputs, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=12)
    if declared in ("kv", "v") and not heads[1]:
        with pytest.raises(ModelError, match="give one head for each head of the queries"):
            gc.InferenceSession().load(model)
        return
    (y,) = gc.InferenceSession().load(model)(*arrays)
    q, k, v = arrays if heads[0] == heads[1] else (arrays[0], *(np.repeat(x, 2, 1) for x in arrays[1:]))
    scores = np.exp(q @ k.swapaxes(-1, -2) / 2)
    np.testing.assert_allclose(y, scores / scores.sum(-1, keepdims=True) @ v, rtol=1e-12)


@pytest.mark.parametrize(
    "attributes", [{"left_window_size": -2}, {"right_window_size": -5}, {"qk_matmul_output_mode": 4}], ids=str
)
def test_load_refuses_when_an_attribute_has_no_meaning(attributes: dict[str, int]) -> None:
    form = Form(attributes=attributes)
    with pytest.raises(ModelError, match=next(iter(attributes))):
        run(form, operands(form, np.float32))


def test_attention_refuses_when_half_a_past_is_given() -> None:
    form = Form(past=2)
    value = operands(form, np.float32)
    value[5] = None
    with pytest.raises(ModelError, match="past_key and past_value must be provided together"):
        run(form, value)
    kinds = {name: TensorType(DType.float32, [1, 2, 3, 4]) for name in ("q", "k", "past")}
    graph = Graph("g", kinds)
    q, k, past = graph.inputs
    graph.output(graph.op("Attention", [q, k, k, None, past], None, [q.type]))
    with pytest.raises(GraphError, match="past_key and past_value must be given together, and one is missing"):
        graph.to_onnx(target="cpu")


def test_attention_of_another_domain_is_left_alone() -> None:
    kind = TensorType(DType.float64, [1, 2, 3, 4])
    graph = Graph("g", {"x": kind})
    x = graph["x"]
    graph.output(graph.op("Attention", [x, x, x], None, [kind], domain="com.example"))
    assert [n.op_type for n in graph.to_onnx(target="cpu").graph.node] == ["Attention"]


@pytest.mark.numbers
def test_attention_may_differ_from_the_kernel_in_every_way_at_once() -> None:
    options = {"left_window_size": 3, "scale": -0.25, "softcap": 1.5, "softmax_precision": 11, "is_causal": 1}
    form = replace(Form("float bhqs", past=2, flat=True, results="ykvs", attributes=options), kv_heads=1)
    for dtype in FLOATS:
        value = operands(form, dtype)
        assert_near(run(form, value, "unknown"), attended(form, value), dtype)
