"""Feeds are checked before a kernel reads them, and converted where possible."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import graphcore as gc
from graphcore import DType, Graph, Model, TensorType, ops
from graphcore.errors import FeedError, GraphcoreError
from graphcore.quantization import encode
from graphcore.types.tensor_types import SequenceType

Array = np.ndarray[Any, Any]
X = np.arange(6, dtype=np.float32).reshape(2, 3)
Y = np.ones((2, 5), np.int64)


@pytest.fixture(scope="module")
def model() -> Model:
    graph = Graph(
        "fed",
        {
            "x": TensorType(DType.float32, ["batch", 3]),
            "y": TensorType(DType.int64, ["batch", "n"]),
            "z": TensorType(DType.bfloat16, ["n * 2"]),
        },
    )
    x, y, z = graph.inputs
    graph.output(x + 1, y, z)
    return gc.InferenceSession().load(graph)


Z = np.zeros(10, ml_dtypes.bfloat16)


def test_arrays_are_taken_by_position_and_by_name(model: Model) -> None:
    for results in (model(X, Y, Z), model(X, y=Y, z=Z), model(z=Z, y=Y, x=X), model.execute(X, Y, Z)):
        assert np.array_equal(results[0], X + 1)
        assert np.array_equal(results[1], Y)


@pytest.mark.parametrize(
    "x",
    [X.astype(">f4"), np.asfortranarray(X), np.repeat(X, 2, axis=1)[:, ::2], X[::-1][::-1]],
    ids=["big-endian", "fortran", "strided", "negative strides"],
)
def test_array_is_made_right_when_only_its_memory_is_unusual(model: Model, x: Array) -> None:
    (got, *_) = model(x, Y, Z)
    assert np.array_equal(got, X + 1)


@pytest.mark.parametrize(
    ("arrays", "named", "message"),
    [
        ((X, Y), {}, r"fed: no array is given for z\n  help: the inputs: x float32\[batch, 3\], y int64\[batch, n\]"),
        ((), {}, "fed: no array is given for x, y, z"),
        ((X, Y, Z, Z), {}, "fed: 4 arrays given for 3 inputs"),
        ((X, Y, Z), {"w": Y}, "fed: there is no input 'w'"),
        ((X, Y, Z), {"x": X}, "fed: input 'x' is given twice"),
        ((None, Y, Z), {}, "fed: input 'x' must be an array, got NoneType"),
        ((1.0, Y, Z), {}, r"fed: input 'x' must have rank 2, got float32\[\]"),
        ((X.astype(np.float64), Y, Z), {}, r"fed: input 'x' must be float32, got float64\[2, 3\]"),
        ((X, Y.astype(object), Z), {}, "fed: input 'y' must be int64, got"),
        ((X, Y, Z.astype(np.float16)), {}, r"fed: input 'z' must be bfloat16, got float16\[10\]"),
        ((X[0], Y, Z), {}, r"fed: input 'x' must have rank 2, got float32\[3\]"),
        ((X[:, :2], Y, Z), {}, r"fed: axis 1 of input 'x' must be 3, got float32\[2, 2\]"),
        ((X, Y[:1], Z), {}, r"fed: axis 0 of input 'y' must be batch, which is 2 in input 'x', got int64\[1, 5\]"),
        ((X, Y, Z[:7]), {}, r"fed: axis 0 of input 'z' must be 2 \* n = 10, got bfloat16\[7\]"),
    ],
)
def test_feed_is_refused_when_wrong(model: Model, arrays: Any, named: Any, message: str) -> None:
    with pytest.raises(FeedError, match=message):
        model(*arrays, **named)


def test_error_shows_what_is_taken_and_what_is_given(model: Model) -> None:
    with pytest.raises(FeedError) as caught:
        model(X[:, :2], Y, Z)
    lines = str(caught.value).splitlines()
    assert lines[1:4] == [
        "    takes  float32[batch, 3]",
        "    given  float32[2, 2]",
        "  help: give an array whose axis 1 has that size, not 2",
    ]


def test_feed_error_is_what_python_raises_for_wrong_arguments(model: Model) -> None:
    with pytest.raises(TypeError):
        model(1, 2, 3)
    with pytest.raises(ValueError, match="axis 1"):
        model(X[:, :2], Y, Z)


def test_empty_batch_runs(model: Model) -> None:
    got, *_ = model(X[:0], Y[:0], Z)
    assert got.shape == (0, 3)


@pytest.fixture(scope="module")
def plain() -> Model:
    graph = Graph("plain", {"x": TensorType(DType.float32, ["n", "m"]), "y": TensorType(DType.float32, ["n", "m"])})
    graph.output(graph["x"] - graph["y"])
    return gc.InferenceSession().load(graph)


class Kept(np.ndarray[Any, Any]):
    """A subclass such as a memory map is."""


def unaligned(array: Array) -> Array:
    return np.frombuffer(b"\0" + array.tobytes(), array.dtype, offset=1).reshape(array.shape)


def read_only(array: Array) -> Array:
    result = array.copy()
    result.flags.writeable = False
    return result


@pytest.mark.parametrize(
    "x",
    [X.astype(">f4"), np.asfortranarray(X), X[::-1][::-1], X.view(Kept), unaligned(X), read_only(X)],
    ids=["big-endian", "fortran", "negative strides", "subclass", "unaligned", "read-only"],
)
def test_memory_is_made_right_before_and_after_usual_arrays(plain: Model, x: Array) -> None:
    for _ in range(2):
        assert np.array_equal(plain(x, np.zeros_like(X))[0], X)
        assert np.array_equal(plain(X, X)[0], np.zeros_like(X))


def test_feed_is_checked_again_when_shapes_change(plain: Model) -> None:
    for n in (1, 2, 1):
        assert plain(X[:n], X[:n])[0].shape == (n, 3)
        with pytest.raises(FeedError, match=f"axis 0 of input 'y' must be n, which is {n} in input 'x'"):
            plain(X[:n], X[:0])
        with pytest.raises(FeedError, match="input 'y' must be float32, got float64"):
            plain(X[:n], X[:n].astype(np.float64))
        with pytest.raises(FeedError, match="input 'x' must be an array, got set"):
            plain({1.0}, X[:n])


def test_names_decide_and_not_their_order(plain: Model) -> None:
    assert np.array_equal(plain(y=np.zeros_like(X), x=X)[0], X)
    assert np.array_equal(plain(X, y=np.zeros_like(X))[0], X)


def test_masked_arrays_are_refused(plain: Model) -> None:
    with pytest.raises(FeedError, match="input 'x' is a masked array"):
        plain(np.ma.array(X, mask=X > 1), X)


def test_help_names_the_cast(plain: Model) -> None:
    with pytest.raises(FeedError, match=r"help: cast it: array.astype\('float32'\)"):
        plain(X.astype(np.float64), X)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (np.array(["a", None], object), "input 'x' is string, but has the element None of type NoneType"),
        (np.array(["a", 1], object), "input 'x' is string, but has the element 1 of type int"),
        (np.array([b"a"]), r"input 'x' must be string, got bytes\[1\](.|\n)*np.char.decode"),
        (np.array([1]), r"input 'x' must be string, got int64\[1\]"),
        (np.array("a"), r"input 'x' must have rank 1, got string\[\]"),
    ],
)
def test_strings_are_str_and_nothing_else(text: Array, message: str) -> None:
    graph = Graph("text", {"x": TensorType(DType.string, ["n"])})
    graph.output(graph["x"])
    model = gc.InferenceSession().load(graph)
    model(np.array(["a", "b"], object))
    with pytest.raises(FeedError, match=message):
        model(text)


@pytest.fixture(scope="module")
def echo() -> Model:
    graph = Graph("echo", {"x": TensorType(DType.string, ["n"])})
    graph.output(ops.onnx.StringConcat(graph["x"], graph.constant(np.array(["!"], object))))
    return gc.InferenceSession().load(graph)


@pytest.mark.parametrize("count", [1, 3, 99, 100, 300])
@pytest.mark.parametrize("end", ["", "\0b", "é", "😀", "\ud7ff", "\uffff"])
def test_strings_are_whole_in_every_form(echo: Model, count: int, end: str) -> None:
    words = [f"word{i}" for i in range(count)]
    words[-1] += end
    array = np.array(words)
    for x in (np.array(words, object), array, array.astype(">U9"), np.repeat(array, 2)[::2], words):
        for _ in range(2):
            results = [str(w) for w in x]  # NumPy's own strings have no NULs at their end
            assert echo(x)[0].tolist() == [w + "!" for w in results]


@pytest.mark.parametrize("count", [2, 200])
@pytest.mark.parametrize("point", [0xFFFFFFFF, 0x110000])
def test_what_is_not_a_text_is_refused(echo: Model, count: int, point: int) -> None:
    x = np.array(["word"] * count)
    echo(x)
    x.view(np.uint32)[1] = point
    with pytest.raises(FeedError, match="input 'x' has elements that are not valid text"):
        echo(x)
    assert echo(np.array(["word"] * count))[0].size == count


def test_strings_are_looked_at_in_every_call(echo: Model) -> None:
    x = np.array(["a", "b"], object)
    assert echo(x)[0].tolist() == ["a!", "b!"]
    x[1] = 3
    with pytest.raises(FeedError, match="input 'x' is string, but has the element 3 of type int"):
        echo(x)


@pytest.fixture(scope="module")
def listed() -> Model:
    each = TensorType(DType.float32, ["m", 2])
    graph = Graph("listed", {"x": SequenceType(each), "by": TensorType(DType.float32, [])})
    graph.output(graph["x"], graph["by"] * 2)
    return gc.InferenceSession().load(graph)


E = np.arange(4, dtype=np.float32).reshape(2, 2)


@pytest.mark.parametrize(
    "element",
    [E, E.T, np.asfortranarray(E), E[::-1], unaligned(E), read_only(E), E.astype(">f4"), E[:1], E[:0], E.tolist()],
    ids=["usual", "turned", "fortran", "reversed", "unaligned", "read-only", "big-endian", "short", "empty", "numbers"],
)
def test_elements_of_lists_are_made_right(listed: Model, element: Any) -> None:
    for x in ([E, element], [element], (E, element), [E, E, element], []):
        for by in (np.float32(1), np.array(1, np.float32)):
            result, twice = listed(x, by)
            assert len(result) == len(x)
            for one, wanted in zip(result, x, strict=True):
                assert np.array_equal(one, np.asarray(wanted, np.float32))
            assert twice == 2


@pytest.mark.parametrize(
    ("element", "message"),
    [
        (E.astype(np.float64), "element 1 of input 'x' must be float32, got float64"),
        (E[0], "element 1 of input 'x' must have rank 2"),
        (np.zeros((2, 3), np.float32), "axis 1 of element 1 of input 'x' must be 2"),
        (None, "element 1 of input 'x' must be an array, got NoneType"),
        (np.ma.array(E, mask=E > 1), "element 1 of input 'x' is a masked array"),
    ],
)
def test_element_that_does_not_fit_is_refused_after_those_that_do(listed: Model, element: Any, message: str) -> None:
    by = np.array(1, np.float32)
    listed([E, E], by)
    x = [E, element]
    arrays: Any
    for arrays, named in (((x, by), {}), ((), {"by": by, "x": x}), (({"x": x, "by": by},), {})):
        with pytest.raises(FeedError, match=message):
            listed(*arrays, **named)
    with pytest.raises(FeedError, match="input 'x' must be a list, got ndarray"):
        listed(E, by)
    with pytest.raises(FeedError, match="no array is given for x"):
        listed(by=by)
    with pytest.raises(FeedError, match="there is no input 'y'"):
        listed(y=[E, E], by=by)


def test_masked_arrays_are_refused_wherever_arrays_are_given(tmp_path: Path) -> None:
    masked = np.ma.masked_array(np.ones((8, 8), np.float32), True)
    graph = Graph("g", {"x": TensorType(DType.float32, ["n", 8])})
    graph.output(y=graph["x"] @ graph.weight("w", np.ones((8, 8), np.float32)))
    model = gc.InferenceSession().load(graph)
    for give in (
        lambda: graph.weight("v", masked),
        lambda: graph.constant(masked),
        lambda: graph["x"] @ masked,
        lambda: encode(masked, "int8"),
        lambda: gc.save_tensors(tmp_path / "w.safetensors", {"a": masked}),
        lambda: gc.InferenceSession().load(graph, weights={"w": masked}),
        lambda: model(masked),
        lambda: model.bind(masked),
        lambda: model.bind(n=8)(masked),
        lambda: model.execute(masked, micro_batch=2),
    ):
        with pytest.raises(GraphcoreError, match=r"masked array|MaskedArray"):
            give()
    assert not list(tmp_path.iterdir())
