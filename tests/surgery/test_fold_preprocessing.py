"""Preprocessing folded into the weights of the first products: the same numbers up to rounding, with fewer nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType, ops
from graphcore.errors import GraphError
from tests.sampling import drawn
from tests.support.trained import TRAINED

F32, U8 = DType.float32, DType.uint8
NOUGHT = np.array([0, 1, 1], np.float32)
MEAN = np.array([0.485, 0.456, 0.406], np.float32)
STD = np.array([0.229, 0.224, 0.225], np.float32)
FLIP, TURN = np.array([2, 1, 0]), np.array([2, 0, 1])
ARITHMETIC = ("Add", "Div", "Mul", "Neg", "Sub")


def random(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(len(shape) + sum(shape)).standard_normal(shape).astype(np.float32)


def channels(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return values by channels as they broadcast to [n, c, h, w]."""
    return values.reshape(-1, 1, 1)


def conv(x: Symbol, outputs: int = 4, groups: int = 1, bias: bool = True, **attributes: Any) -> Symbol:
    """Return a convolution with named weights. x: [n, c, h, w]."""
    size = int(x.shape[1]) // groups
    weights = [x.graph.weight("w", random(outputs, size, 3, 3))]
    weights += [x.graph.weight("b", random(outputs))] if bias else []
    shape = TensorType(F32, ["n", outputs, "?", "?"])
    return x.graph.op("Conv", [x, *weights], {"group": groups, **attributes}, [shape])[0]


def image(dtype: DType = U8, layout: str = "NHWC") -> Graph:
    shape: list[Any] = ["n", 7, 6, 3] if layout == "NHWC" else ["n", 3, 7, 6]
    return Graph("image", {"x": TensorType(dtype, shape)})


def feed(graph: Graph) -> np.ndarray[Any, Any]:
    sizes = [2 if not d.is_static else int(d) for d in graph[0].shape]
    values = np.random.default_rng(0).integers(0, 256, sizes)
    return values.astype(graph[0].dtype.numpy)


def ran(graph: Graph, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    (result,) = gc.InferenceSession(intra_op_num_threads=1).load(graph)(x)
    return np.asarray(result)


def counted(graph: Graph) -> Counter[str]:
    return Counter(node.op_type for node in graph.nodes)


def assert_folded(graph: Graph, remaining: int = 0) -> Graph:
    """Fold, and check that the numbers are the same and that so much arithmetic is left."""
    before = str(graph)
    changed = graph.fold_preprocessing()
    assert str(graph) == before, "the old graph stays"
    assert sum(counted(changed)[name] for name in ARITHMETIC) == remaining, counted(changed)
    wanted = ran(graph, feed(graph))
    assert [str(t) for t in changed.output_types.values()] == [str(t) for t in graph.output_types.values()]
    assert [*changed.output_types] == [*graph.output_types]
    np.testing.assert_allclose(ran(changed, feed(graph)), wanted, rtol=2e-4, atol=2e-5 * np.abs(wanted).max())
    changed.to_onnx()
    return changed


@dataclass(frozen=True)
class Form:
    """A way to prepare an image for a convolution. steps: the arithmetic that folding cannot remove."""

    label: str
    build: Callable[[Symbol], Symbol]
    dtype: DType = U8
    layout: str = "NHWC"
    steps: int = 0


def nchw(x: Symbol) -> Symbol:
    return x.permute(0, 3, 1, 2)


def bgr_by_split(x: Symbol) -> Symbol:
    a, b, c = ops.split(x, [1, 1, 1], axis=1)
    return ops.concat([c, b, a], axis=1)


def typed(x: Symbol, op_type: str, *inputs: Any, **attributes: Any) -> Symbol:
    return x.graph.op(op_type, [x, *inputs], attributes)[0]


FORMS = (
    Form("a scalar, then the layout", lambda x: conv(nchw(x.cast(F32) / 255))),
    Form("the layout, then a scalar", lambda x: conv(nchw(x).cast(F32) * (1 / 255))),
    Form("mean and std in NHWC", lambda x: conv(nchw((x.cast(F32) / 255 - MEAN) / STD))),
    Form("mean and std in NCHW", lambda x: conv((nchw(x).cast(F32) / 255 - channels(MEAN)) / channels(STD))),
    Form("in both layouts", lambda x: conv(nchw(x.cast(F32) / 255 - MEAN) / channels(STD))),
    Form("NCHW from the start", lambda x: conv((x.cast(F32) - 127.5) / 127.5), layout="NCHW"),
    Form("float32 from the start", lambda x: conv((x - channels(MEAN)) * channels(STD)), F32, "NCHW"),
    Form("constants on the left", lambda x: conv(1.5 - nchw(x.cast(F32)))),
    Form("negated and turned", lambda x: conv(-ops.sub(channels(MEAN), 2.0 * nchw(x.cast(F32))))),
    Form("no bias", lambda x: conv(nchw((x.cast(F32) - MEAN) / STD), bias=False)),
    Form("groups", lambda x: conv(nchw((x.cast(F32) - MEAN) / STD), 6, 3)),
    Form("pads: the shift stays", lambda x: conv(nchw((x.cast(F32) / 255 - MEAN) / STD), pads=[1, 1, 1, 1]), steps=1),
    Form("padding of one side", lambda x: conv(nchw((x.cast(F32) - MEAN) / STD), pads=[0, 0, 0, 2]), steps=1),
    Form("padding: a scale alone", lambda x: conv(nchw(x.cast(F32) / 255 / STD), pads=[1, 1, 1, 1])),
    Form("SAME", lambda x: conv(nchw((x.cast(F32) / 255 - MEAN) / STD), auto_pad="SAME_UPPER"), steps=1),
    Form("VALID", lambda x: conv(nchw((x.cast(F32) / 255 - MEAN) / STD), auto_pad="VALID")),
    Form("flipped by a slice", lambda x: conv(nchw((x[..., ::-1].cast(F32) / 255 - MEAN) / STD))),
    Form("flipped by indices", lambda x: conv((ops.gather(nchw(x), TURN, 1).cast(F32) - channels(MEAN)) / 9)),
    Form("flipped after the steps", lambda x: conv(ops.gather(nchw((x.cast(F32) - MEAN) / STD), TURN, 1))),
    Form("flipped between the steps", lambda x: conv(bgr_by_split(nchw(x.cast(F32) - MEAN)) / channels(STD))),
    Form("flipped, with padding", lambda x: conv(bgr_by_split(nchw(x.cast(F32) - MEAN)) / 3, pads=[1] * 4), steps=1),
    Form("flipped alone", lambda x: conv(nchw(x[..., ::-1]).cast(F32))),
    Form("a crop between", lambda x: conv(nchw((x.cast(F32) - MEAN)[:, 1:, ::2] / STD))),
    Form("a Resize between", lambda x: conv(ops.resize(nchw(x.cast(F32) / 255 - MEAN), ["n", 3, 9, 5]) / 3)),
    Form("a batch axis that is added", lambda x: conv(ops.unsqueeze((x[0].cast(F32) - MEAN).permute(2, 0, 1), 0))),
    Form(
        "a Reshape to channels", lambda x: conv(ops.reshape((x.cast(F32) - channels(MEAN)), ["n", 3, 6, 7])),
        layout="NCHW",
    ),
    Form("BatchNormalization", lambda x: conv(normalised(nchw(x.cast(F32) / 255)))),
    Form("Identity", lambda x: conv(typed(nchw(x.cast(F32) - MEAN), "Identity"))),
    Form("a shape that is read too", lambda x: conv(sized(nchw(x.cast(F32) / 255 - MEAN)))),
)  # fmt: skip


def normalised(x: Symbol) -> Symbol:
    statistics = [STD, MEAN, MEAN * 2, STD**2]
    return x.graph.op("BatchNormalization", [x, *statistics], {"epsilon": 1e-3}, [x.type])[0]


def sized(x: Symbol) -> Symbol:
    """Return the same, through a Reshape to its own shape."""
    shape = x.graph.op("Shape", [x], {})[0]
    return x.graph.op("Reshape", [x, shape], {}, [x.type])[0]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.label)
def test_steps_become_a_part_of_a_convolution(form: Form) -> None:
    graph = image(form.dtype, form.layout)
    graph.output(y=form.build(graph[0]))
    result = assert_folded(graph, form.steps)
    assert len(result.nodes) < len(graph.nodes)
    if "flipped" in form.label:
        assert not any(name in counted(result) for name in ("Concat", "Gather", "Slice", "Split"))


PRODUCTS: tuple[tuple[str, list[Any], Callable[[Symbol], Symbol], int], ...] = (
    ("MatMul", ["n", 5], lambda x: (x / 7) @ random(5, 3), 0),
    ("MatMul with a bias after it", ["n", 5], lambda x: ((x - random(5)) / 7) @ random(5, 3) + random(3), 1),
    ("MatMul with a scalar after it", ["n", 5], lambda x: (x - random(5)) @ random(5, 3) + 2.0, 1),
    ("MatMul without a bias", ["n", 5], lambda x: ((x - random(5)) / 7) @ random(5, 3), 1),
    ("MatMul of a vector", [5], lambda x: ((x - random(5)) / 7) @ random(5, 3), 1),
    ("MatMul with a vector", ["n", 5], lambda x: ((x - random(5)) / 7) @ random(5), 1),
    ("MatMul of many", ["n", 4, 5], lambda x: ((x - random(5)) / 7) @ random(4, 5, 3).reshape(4, 5, 3)[:1], 1),
    ("MatMul by many", [2, 4, 5], lambda x: ((x - random(5)) / 7) @ random(2, 5, 3), 1),
    ("MatMul from the left", ["n", 5, 2], lambda x: x.graph.constant(random(3, 5)) @ ((x - random(5, 1)) / 7), 1),
    ("many from the left", [2, 5, 4], lambda x: x.graph.constant(random(2, 3, 5)) @ ((x - random(5, 1)) / 7), 1),
    ("Gemm", ["n", 5], lambda x: typed((x - random(5)) / 7, "Gemm", random(5, 3), random(3)), 0),
    ("Gemm transB", ["n", 5], lambda x: typed((x - random(5)) / 7, "Gemm", random(3, 5), random(3), transB=1), 0),
    ("Gemm transA", [5, 4], lambda x: typed((x - random(5, 1)) / 7, "Gemm", random(5, 3), random(3), transA=1), 0),
    (
        "Gemm with alpha and beta", ["n", 5],
        lambda x: typed((x - random(5)) / 7, "Gemm", random(5, 3), random(1, 3), alpha=0.5, beta=3.0), 0,
    ),
    ("Gemm without a bias", ["n", 5], lambda x: typed((x - random(5)) / 7, "Gemm", random(5, 3), alpha=0.5), 0),
    ("an image, flattened", ["n", 2, 3, 4], lambda x: flat((x - random(2, 1, 1)) / random(2, 3, 4)) @ random(24, 3), 1),
    ("an image as rows", ["n", 2, 3, 4], lambda x: (ops.reshape(x, ["n", 6, 4]) / random(4)) @ random(4, 3), 0),
    ("ConvTranspose", ["n", 2, 5], lambda x: typed(x / random(2, 1), "ConvTranspose", random(2, 3, 3)), 0),
    ("ConvTranspose, shifted", ["n", 2, 5], lambda x: typed(x / 3 - random(2, 1), "ConvTranspose", random(2, 3, 3)), 1),
    (
        "as many images as channels", [3, 3, 2, 5],
        lambda x: typed(ops.reshape(x / random(3, 1, 1), [3, 3, 10]), "Conv", random(2, 3, 4)), 0,
    ),
    ("Conv of one axis", ["n", 2, 9], lambda x: typed(x / 3 - random(2, 1), "Conv", random(3, 2, 4), random(3)), 0),
)  # fmt: skip


def flat(x: Symbol) -> Symbol:
    return typed(x, "Flatten", axis=1)


@pytest.mark.parametrize(
    ("shape", "build", "remaining"), [row[1:] for row in PRODUCTS], ids=[row[0] for row in PRODUCTS]
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_steps_become_a_part_of_a_product(
    shape: list[Any], build: Callable[[Symbol], Symbol], remaining: int, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if dtype == "float64":
        own = globals()["random"]
        monkeypatch.setitem(globals(), "random", lambda *sizes: own(*sizes).astype(np.float64))
    graph = Graph("product", {"x": TensorType(DType.of(dtype), shape)})
    graph.output(y=build(graph[0]))
    assert_folded(graph, remaining)


def refused() -> dict[str, tuple[Callable[[Graph], Any], str]]:
    def two_readers(g: Graph) -> Any:
        x = nchw(g[0].cast(F32) / 255)
        return conv(x), x

    def noisy(g: Graph) -> Any:
        return conv(nchw(g[0].cast(F32)) * ops.mean(nchw(g[0].cast(F32))))

    return {
        "nothing before it": (lambda g: conv(nchw(g[0]).cast(F32)), "it reads an input of the graph directly"),
        "another reader": (two_readers, "is used elsewhere too"),
        "no constant": (noisy, "has no constant operand"),
        "not by channels": (lambda g: conv(nchw(g[0].cast(F32) / random(6, 1))), "is not one value for each channel"),
        "integers": (lambda g: conv(nchw(g[0] * 2).cast(F32)), "comes before a Cast from uint8"),
        "rounded on the way": (
            lambda g: conv(nchw(g[0].cast(F32) / 255).cast(U8).cast(F32)), "comes before a Cast from uint8",
        ),
        "padded shift": (lambda g: conv(nchw(g[0].cast(F32) - MEAN), pads=[1] * 4), "it pads with zeros"),
        "padded and times 0": (
            lambda g: conv(nchw((g[0].cast(F32) - MEAN) * NOUGHT) - 1.0, pads=[1] * 4),
            "a channel is multiplied by 0",
        ),
        "divided by 0": (lambda g: conv(nchw(g[0].cast(F32) / NOUGHT)), "gives a factor that is not finite"),
        "too large": (lambda g: conv(nchw(g[0].cast(F32) * 3e38) * 3e38), "cannot represent its folded weights"),
        "statistics of an input": (
            lambda g: conv(
                g.op(
                    "BatchNormalization",
                    [nchw(g[0].cast(F32)), STD, MEAN, ops.mean(g[0].cast(F32), axis=(0, 1, 2)), STD], {},
                    [TensorType(F32, ["n", 3, 7, 6])],
                )[0]
            ),
            "has no constant statistics",
        ),
        "one channel becomes three": (
            lambda g: conv(nchw(g[0][..., :1]).cast(F32) - channels(MEAN)), "is not one value for each channel",
        ),
        "channels that do not exist": (
            lambda g: conv(nchw(g.op("Gather", [g[0], np.array([0, 1, 7])], {"axis": 3}, [g[0].type])[0].cast(F32))),
            "selects channels that do not exist",
        ),
        "a flip and a crop in one": (
            lambda g: conv(nchw(typed(g[0], "Slice", *map(np.array, ([1, -1], [6, -9], [1, 3], [1, -1]))).cast(F32))),
            "selects a part of other axes",
        ),
        "a nonlinear step": (lambda g: conv(ops.sqrt(nchw(g[0].cast(F32) / 255))), "Sqrt .* cannot be folded"),
        "weights that are not constant": (
            lambda g: (g[0].cast(F32) / 255) @ ops.permute(g[0].cast(F32), [0, 1, 3, 2]), "weights are not constant",
        ),
        "half precision": (
            lambda g: typed(nchw(g[0].cast(DType.float16) / 255), "Conv", random(2, 3, 1, 1).astype(np.float16)),
            "computes in float16",
        ),
        "flipped across groups": (lambda g: conv(nchw(g[0][..., ::-1].cast(F32)), 3, 3), "several groups of channels"),
        "no product": (lambda g: g[0].cast(F32) / 255, "no Conv, ConvTranspose, Gemm, MatMul comes after an input"),
        "a shift alone without a bias": (
            lambda g: (g[0].cast(F32) - MEAN) @ random(3, 2), "no bias for the shift",
        ),
    }  # fmt: skip


@pytest.mark.parametrize("label", [*refused()])
def test_an_error_says_why_where_nothing_is_folded(label: str) -> None:
    build, why = refused()[label]
    graph = image()
    result = build(graph)
    graph.output(*(result if isinstance(result, tuple) else (result,)))
    with pytest.raises(GraphError, match=f"fold_preprocessing: nothing is folded: .*{why}"):
        graph.fold_preprocessing()


def test_only_the_first_products_are_folded_into_and_other_weights_are_the_same_arrays() -> None:
    graph = image(layout="NCHW")
    hidden = conv(graph[0].cast(F32) / 255)
    second = graph.weight("second", random(2, 4, 3, 3))
    graph.output(y=graph.op("Conv", [hidden * 3.0, second], {}, [TensorType(F32, ["n", 2, "?", "?"])])[0])
    result = assert_folded(graph, 1)
    assert [*result.weights] == ["w", "b", "second"]
    assert result["second"].producer.array is second.producer.array  # type: ignore[union-attr]
    assert result["b"].producer.array is graph["b"].producer.array  # type: ignore[union-attr]
    assert result["w"].producer.array is not graph["w"].producer.array  # type: ignore[union-attr]


def test_weights_that_another_product_reads_stay_for_it() -> None:
    graph = Graph("shared", {"x": TensorType(F32, ["n", 4]), "y": TensorType(F32, ["n", 4])})
    w = graph.weight("w", random(4, 4))
    graph.output(a=(graph["x"] / 3) @ w, b=graph["y"] @ w)
    changed = graph.fold_preprocessing()
    assert {*changed.weights} == {"w", "w_folded"}
    x = random(2, 4)
    result, wanted = (gc.InferenceSession().load(g)(x, x) for g in (changed, graph))
    for a, b in zip(result, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_weights_of_steps_go_and_a_weight_that_is_the_bias_too_is_folded_once() -> None:
    graph = Graph("named", {"x": TensorType(F32, ["n", 4])})
    mean, w = graph.weight("mean", random(4)), graph.weight("w", random(4, 4))
    graph.output(y=graph.op("Gemm", [(graph["x"] * 2) * mean, w, w], {}, [TensorType(F32, [4, 4])])[0])
    changed = graph.fold_preprocessing()
    assert [*changed.weights] == ["w_folded", "w"]
    x = random(4, 4)
    np.testing.assert_allclose(ran(changed, x), ran(graph, x), rtol=1e-4, atol=1e-5)


def test_a_bias_that_is_not_a_constant_gets_the_shift_after_it() -> None:
    graph = Graph("biased", {"x": TensorType(F32, ["n", 3, 5, 5]), "bias": TensorType(F32, [4])})
    x = (graph["x"] - channels(MEAN)) / channels(STD)
    graph.output(y=graph.op("Conv", [x, random(4, 3, 3, 3), graph["bias"]], {}, [TensorType(F32, ["n", 4, 3, 3])])[0])
    changed = graph.fold_preprocessing()
    assert counted(changed) == {"Conv": 1, "Add": 1}
    feeds = random(2, 3, 5, 5), random(4)
    result, wanted = (gc.InferenceSession().load(g)(*feeds)[0] for g in (changed, graph))
    np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("place", ["output", "watched", "body"])
def test_a_value_that_something_else_sees_stays(place: str) -> None:
    graph = image(layout="NCHW")
    first = graph[0].cast(F32) - channels(MEAN)
    x = first / channels(STD)
    y = conv(x)
    if place == "output":
        graph.output(y=y, seen=first)
    elif place == "watched":
        first.print("seen")
        graph.output(y=y)
    else:
        other = ops.cond(ops.sum(y) > 0, lambda: first * 2, lambda: first * 3)
        graph.output(y=y, other=other)
    changed = graph.fold_preprocessing()
    assert counted(changed)["Sub"] == 1
    assert counted(changed)["Div"] == 0
    sessions = [gc.InferenceSession().load(g) for g in (changed, graph)]
    for a, b in zip(*(session(feed(graph)) for session in sessions), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-2)


STEPS: tuple[tuple[str, Callable[[Symbol, np.ndarray[Any, Any]], Symbol]], ...] = (
    ("add", lambda x, c: x + c),
    ("subtract", lambda x, c: x - c),
    ("subtract from", lambda x, c: ops.sub(c, x)),
    ("multiply", lambda x, c: x * c),
    ("divide", lambda x, c: x / c),
    ("negate", lambda x, c: -x),
    ("flip", lambda x, c: ops.gather(x, FLIP, x.rank - 1)),
    ("rotate", lambda x, c: ops.gather(x, TURN, x.rank - 1)),
)


@settings(max_examples=drawn(40), deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, len(STEPS) - 1), st.booleans(), st.tuples(*[st.integers(1, 8)] * 3)),
        min_size=2, max_size=6,
    ),
    st.sampled_from(["conv", "padded", "matmul"]),
)  # fmt: skip
def test_any_chain_of_steps_gives_the_same_numbers(
    steps: list[tuple[int, bool, tuple[int, int, int]]], product: str
) -> None:
    graph = image()
    x = graph[0].cast(F32)
    for number, is_scalar, values in steps:
        x = STEPS[number][1](x, np.array(values[0] if is_scalar else values, np.float32) / np.float32(4))
    if product == "matmul":
        graph.output(y=x @ random(3, 4) + random(4))
    else:
        graph.output(y=conv(nchw(x), pads=[1, 0, 0, 1] if product == "padded" else [0] * 4))
    changed = graph.fold_preprocessing()
    wanted = ran(graph, feed(graph)).astype(np.float64)
    np.testing.assert_allclose(ran(changed, feed(graph)), wanted, rtol=1e-3, atol=1e-4 * (1 + np.abs(wanted).max()))
    assert len(changed.nodes) <= len(graph.nodes) - len(steps) + 1


KINDS = ("affine", "affine", "transpose", "reshape", "flip", "crop", "unsqueeze", "resize")


@st.composite
def layouts(draw: st.DrawFn) -> Graph:
    """Draw a graph whose steps come between changes of layout, up to a product that knows nothing of them."""
    graph = Graph("layouts", {"x": TensorType(F32, [2, 3, 4, 5])})
    x = graph[0]
    for _ in range(draw(st.integers(2, 7))):
        kind = draw(
            st.sampled_from(["affine", "affine", "transpose", "reshape", "flip", "crop", "unsqueeze", "resize"])
        )
        sizes = [int(d) for d in x.shape]
        axis = draw(st.integers(0, x.rank - 1))
        if kind == "affine":
            ones = draw(st.lists(st.booleans(), min_size=x.rank, max_size=x.rank))
            shape = [1 if one else size for one, size in zip(ones, sizes, strict=True)]
            array = 1 + np.arange(np.prod(shape), dtype=np.float32).reshape(shape) / 8
            x = draw(st.sampled_from([lambda v, c: v + c, lambda v, c: v * c, lambda v, c: ops.sub(c, v)]))(x, array)
        elif kind == "transpose":
            x = x.permute(*draw(st.permutations(range(x.rank))))
        elif kind == "reshape" and axis + 1 < x.rank:
            x = ops.reshape(x, [*sizes[:axis], sizes[axis] * sizes[axis + 1], *sizes[axis + 2 :]])
        elif kind == "reshape" and not sizes[axis] % 2:
            x = ops.reshape(x, [*sizes[:axis], 2, sizes[axis] // 2, *sizes[axis + 1 :]])
        elif kind == "flip":
            x = ops.gather(x, np.arange(sizes[axis])[::-1].copy(), axis)
        elif kind == "crop" and sizes[axis] > 2:
            x = x[(*[slice(None)] * axis, slice(1, None))]
        elif kind == "unsqueeze":
            x = ops.unsqueeze(x, axis)
        elif kind == "resize" and x.rank == 4 and sizes[3] > 1:
            x = ops.resize(x, [*sizes[:2], sizes[2] + 1, sizes[3] - 1])
    last = int(x.shape[-1])
    if draw(st.booleans()):
        sizes = [int(d) for d in x.shape]
        x, last = ops.reshape(x, [sizes[0], int(np.prod(sizes[1:]))]), int(np.prod(sizes[1:]))
    if x.rank > 2 and draw(st.booleans()):
        filters = random(2, int(x.shape[1]), *[1] * (x.rank - 2))
        graph.output(y=typed(x, "Conv", filters))
    else:
        graph.output(y=x @ random(last, 3) + random(3))
    return graph


@settings(max_examples=drawn(150), deadline=None)
@given(layouts())
def test_steps_between_changes_of_layout_give_the_same_numbers_or_stay(graph: Graph) -> None:
    try:
        changed = graph.fold_preprocessing()
    except GraphError:
        return
    wanted = ran(graph, feed(graph)).astype(np.float64)
    np.testing.assert_allclose(ran(changed, feed(graph)), wanted, rtol=1e-3, atol=1e-4 * (1 + np.abs(wanted).max()))
    assert len(changed.nodes) < len(graph.nodes)


@pytest.mark.parametrize("trained", [t for t in TRAINED if t.label in ("nudenet", "rapidocr-rec")], ids=str)
def test_preprocessing_of_models_that_others_trained_is_folded(trained: Any) -> None:
    model, feeds = trained.graph(), trained.feeds()
    (name,) = feeds
    _, c, height, width = feeds[name].shape
    before = Graph("before", {"image": TensorType(U8, ["batch", height, width, c])})
    before.output(pixels=((before[0].cast(F32) / 255 - MEAN) / STD).permute(0, 3, 1, 2))
    whole = gc.compose(before, model, {"pixels": name})
    graph = whole.fold_preprocessing()
    assert len(graph.nodes) == len(whole.nodes) - 2
    x = np.random.default_rng(0).integers(0, 256, (1, height, width, c)).astype(np.uint8)
    np.testing.assert_allclose(ran(graph, x), ran(whole, x), rtol=1e-3, atol=2e-2)
