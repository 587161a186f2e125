"""Feeds that are not NumPy arrays: lists, numbers, arrays of other libraries, one dict, and onnxruntime's call."""

from __future__ import annotations

import math
import sys
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import graphcore as gc
from graphcore import Buffer, DType, Graph, Model, SequenceType, TensorType, ops
from graphcore.errors import DTypeError, FeedError

Array = np.ndarray[Any, Any]
X = np.arange(6, dtype=np.float32).reshape(2, 3)
Y = np.array([4, 5], np.int64)


def identity(*types: TensorType) -> Model:
    graph = Graph("fed", {f"x{i}": type_ for i, type_ in enumerate(types)})
    graph.output(**{f"y{i}": symbol for i, symbol in enumerate(graph.inputs)})
    return gc.InferenceSession().load(graph)


@pytest.fixture(scope="module")
def model() -> Model:
    graph = Graph("fed", {"x": TensorType(DType.float32, ["n", 3]), "y": TensorType(DType.int64, ["n"])})
    graph.output(double=graph["x"] * 2, next=graph["y"] + 1)
    return gc.InferenceSession().load(graph)


def is_right(results: list[Any]) -> bool:
    return bool(np.array_equal(results[0], X * 2) and np.array_equal(results[1], Y + 1))


class Named:
    """An array of another library, which gives it through `__array__` alone."""

    def __init__(self, array: Array) -> None:
        self.array = array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return self.array


class Exchanged(Named):
    """One that gives it through DLPack, too, and counts how often."""

    taken = 0

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        raise AssertionError("DLPack comes first")

    def __dlpack__(self, **options: Any) -> Any:
        type(self).taken += 1
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[Any, int]:
        return self.array.__dlpack_device__()


class Unexchanged(Named):
    """One whose dtype DLPack has no number for."""

    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("no such dtype")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


class Distant:
    """One on a device whose memory this process does not read."""

    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("on cuda:0")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        raise TypeError("cannot convert cuda:0 tensor to numpy\nuse Tensor.cpu()")


# Lists and numbers


def test_nested_lists_and_tuples_are_taken_in_the_dtype_of_the_input(model: Model) -> None:
    assert is_right(model(X.tolist(), Y.tolist()))
    assert is_right(model(tuple(map(tuple, X.astype(int).tolist())), (4, 5)))
    assert is_right(model(list(X), [np.int64(4), np.int64(5)]))


@pytest.mark.parametrize("value", [2, 2.0, True, -1.5])
def test_python_number_is_taken_for_a_scalar(value: float) -> None:
    (got,) = identity(TensorType(DType.float16))(value)
    assert got.dtype == np.float16
    assert got.shape == ()
    assert got == value


NUMBERS = st.one_of(
    st.booleans(),
    st.integers(-(1 << 70), 1 << 70),
    st.floats(),
    st.sampled_from([255, 256, -128, 1 << 24, (1 << 24) + 1, 65504, 65505.0, 65520.0, 448.0]),
)
KINDS = [DType.bool, DType.uint8, DType.int32, DType.int64, DType.uint64, DType.float16, DType.bfloat16, DType.float64]
MODELS = {dtype: identity(TensorType(dtype, ["n"])) for dtype in KINDS}


@given(value=NUMBERS, dtype=st.sampled_from(KINDS))
def test_list_is_taken_exactly_where_a_constant_is(value: float, dtype: DType) -> None:
    graph = Graph("g")
    try:
        stored = graph.constant([value], dtype).producer.array  # type: ignore[union-attr]
    except DTypeError:
        with pytest.raises(FeedError):
            MODELS[dtype]([value])
        return
    (got,) = MODELS[dtype]([value])
    assert got.dtype == stored.dtype
    assert got.tobytes() == stored.tobytes() or math.isnan(value)


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ([[1, 2, (1 << 24) + 1]] * 2, Y, "fed: input 'x': 16777217 cannot be held in float32, the dtype of the input"),
        (X, [1, 2.5], "fed: input 'y': .* cannot be held in int64"),
        (X, [1 << 63, 1], "fed: input 'y': 9223372036854775808 cannot be held in int64"),
        ([[1, 2, 1e39]] * 2, Y, "fed: input 'x': 1e\\+39 cannot be held in float32"),
        ([[1, 2, 3], [4]], Y, r"fed: input 'x' must be an array, got \[\[1, 2, 3\], \[4\]\] \(list\)"),
        ([["a", "b", "c"]] * 2, Y, "fed: input 'x' must be float32, got list of string"),
        ([1, 2, 3], Y, r"fed: input 'x' must have rank 2, got float32\[3\]"),
        ([[1, 2]] * 2, Y, r"fed: axis 1 of input 'x' must be 3, got float32\[2, 2\]"),
        (X, [1, 2, 3], "fed: axis 0 of input 'y' must be n, which is 2 in input 'x'"),
        (list(X.astype(np.float64)), Y, r"fed: input 'x' must be float32, got float64\[2, 3\]"),
        ([np.ma.masked_array([1.0, 2.0, 3.0], [False, True, False])] * 2, Y, "fed: input 'x' contains a masked array"),
        ([object()], Y, "fed: input 'x' "),
        ({1.0}, Y, "fed: input 'x' must be an array, got set"),
        (b"abc", Y, "fed: input 'x' must be an array, got bytes"),
    ],
)
def test_list_is_refused_when_the_input_does_not_hold_it(model: Model, x: Any, y: Any, message: str) -> None:
    with pytest.raises(FeedError, match=message):
        model(x, y)


def test_integers_from_2_to_the_63_are_exact_beside_smaller_ones() -> None:
    values = [(1 << 64) - 1, 1, (1 << 63) + 1]
    assert identity(TensorType(DType.uint64, ["n"]))(values)[0].tolist() == values
    assert Graph("g").constant(values, DType.uint64).producer.array.tolist() == values  # type: ignore[union-attr]
    with pytest.raises(FeedError, match="cannot be held in float64"):
        identity(TensorType(DType.float64, ["n"]))(values)


def test_list_that_contains_itself_is_refused(model: Model) -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(FeedError):
        model(endless, Y)


def test_symbol_is_refused_for_it_has_no_value(model: Model) -> None:
    x = Graph("other", {"x": TensorType(DType.float32, [2, 3])})["x"]
    with pytest.raises(
        FeedError, match=r"fed: input 'x' is a Symbol, which has no value\n    given  x   float32\[2, 3\]"
    ):
        model(x, Y)
    with pytest.raises(FeedError, match="fed: input 'x' must be an array, got"):
        model([x], Y)


def test_text_is_taken_for_strings() -> None:
    model = identity(TensorType(DType.string, ["n"]))
    assert model(["a", "bc"])[0].tolist() == ["a", "bc"]
    with pytest.raises(FeedError, match="must be string, got list of int64"):
        model([1, 2])


def test_integers_beyond_64_bits_are_taken_as_lists() -> None:
    model = identity(TensorType(DType.uint(100), ["n"]))
    assert model.execute([1, 1 << 99], wide="object")[0].tolist() == [1, 1 << 99]
    with pytest.raises(FeedError, match=f"cannot hold {1 << 100}"):
        model([1 << 100])
    with pytest.raises(FeedError, match="must be uint100"):
        model([1.5])


def test_elements_of_a_list_input_may_be_lists() -> None:
    graph = Graph("g", {"s": SequenceType(TensorType(DType.float32, ["n"]))})
    graph.output(graph["s"])
    (got,) = gc.InferenceSession().load(graph)([[1, 2], np.ones(3, np.float32), Exchanged(X[0])])
    assert [a.tolist() for a in got] == [[1, 2], [1, 1, 1], [0, 1, 2]]


# Arrays of other libraries


def test_object_with_array_is_taken(model: Model) -> None:
    assert is_right(model(Named(X), Named(Y)))
    assert is_right(model(Unexchanged(X), Y))
    with pytest.raises(FeedError, match=r"input 'x' must be float32, got float64\[2, 3\]"):
        model(Named(X.astype(np.float64)), Y)


def test_dlpack_is_read_where_it_lies(model: Model) -> None:
    before = Exchanged.taken
    assert is_right(model(Exchanged(X), Y))
    assert Exchanged.taken == before + 1
    feed = model._feeds.take([Exchanged(X), Y], {})
    assert np.shares_memory(feed["x"], X)


def test_type_without_dlpack_comes_through_array() -> None:
    values = np.array([1, 2.5], ml_dtypes.bfloat16)
    (got,) = identity(TensorType(DType.bfloat16, ["n"]))(Unexchanged(values))
    assert got.tobytes() == values.tobytes()


def test_array_of_a_device_is_refused_with_the_reason(model: Model) -> None:
    with pytest.raises(
        FeedError, match="input 'x': a Distant cannot be converted to an array: TypeError: cannot convert cuda:0"
    ):
        model(Distant(), Y)


def test_eager_arrays_are_taken(model: Model) -> None:
    from graphcore import array_api as xp

    assert is_right(model(xp.asarray(X), xp.asarray(Y)))


def test_tensors_of_torch_are_taken(model: Model) -> None:
    torch = pytest.importorskip("torch")
    x, y = torch.from_numpy(X), torch.from_numpy(Y)
    assert is_right(model(x, y))
    assert np.shares_memory(model._feeds.take([x, y], {})["x"], X)
    assert is_right(model({"x": x.t().contiguous().t(), "y": y}))
    assert is_right(model(x.clone().requires_grad_(), y))
    for name in ("bfloat16", "float8_e4m3fn", "float16", "bool"):
        dtype = getattr(torch, name)
        values = torch.tensor([1.0, 0.0, 0.5]).to(dtype)
        (got,) = identity(TensorType(dtype, ["n"]))(values)
        assert got.dtype == DType.of(name).numpy
        assert got.astype(np.float32).tolist() == values.to(torch.float32).tolist()
        graph = Graph("g", {"x": TensorType(dtype, [3])})
        weight, constant = graph.weight("w", values), graph.constant(values)
        assert weight.dtype is constant.dtype is gc.tensor(values).dtype is DType.of(dtype)
        assert (graph["x"] == values).dtype is DType.bool


class Half:
    """A tensor of a stand-in for PyTorch, of a dtype that NumPy's DLPack lacks."""

    def __init__(self, array: Array) -> None:
        self.array = array
        self.dtype = type("dtype", (), {"__module__": "torch", "__str__": lambda self: "torch.bfloat16"})()

    def detach(self) -> Half:
        return self

    def view(self, dtype: Any) -> Array:
        return self.array.view(dtype)

    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("NumPy has no bfloat16")

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise TypeError("Got unsupported ScalarType BFloat16")


def test_floats_that_dlpack_of_numpy_lacks_are_read_by_their_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = SimpleNamespace(Tensor=Half, int16=np.int16, uint8=np.uint8)
    monkeypatch.setitem(sys.modules, "torch", torch)
    values = np.array([1, 2.5], ml_dtypes.bfloat16)
    tensor: Any = Half(values)
    (got,) = identity(TensorType(tensor.dtype, ["n"]))(tensor)
    assert got.tobytes() == values.tobytes()
    graph = Graph("g", {"x": TensorType("float32", [2])})
    weight = graph.weight("w", tensor)
    assert str(weight.type) == "bfloat16[2]"
    assert np.shares_memory(weight.producer.array, values)  # type: ignore[union-attr]
    graph.output(y=graph["x"] + tensor)
    assert gc.InferenceSession().load(graph)(np.ones(2, np.float32))[0].tolist() == [2, 3.5]


class Places(Exchanged):
    """A tensor that is an index if it has one element, of any rank, as those of PyTorch are."""

    def __index__(self) -> int:
        return int(self.array.item())


@pytest.mark.parametrize("places", [[0, 2], [2], 2, [True, False, True]])
def test_tensors_of_other_libraries_are_indices_as_arrays_are(places: Any) -> None:
    x = Graph("g", {"x": TensorType("float32", [3])})["x"]
    array = np.asarray(places)
    tensor: Any = Places(array)
    assert x[tensor].type == x[array].type
    x.graph.output(y=x[tensor])
    values = np.array([1, 2, 3], np.float32)
    np.testing.assert_array_equal(gc.InferenceSession().load(x.graph)(values)[0], values[array])


def test_tensors_without_a_dtype_of_numpy_are_taken_in_lists_and_as_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(Tensor=Half, int16=np.int16, uint8=np.uint8))
    values = np.array([1, 2.5], ml_dtypes.bfloat16)
    tensor: Any = Half(values)
    graph = Graph("g", {"x": TensorType("bfloat16", ["n"])})
    assert str(graph.constant([tensor, tensor]).type) == "bfloat16[2, 2]"
    assert str(graph.constant([[tensor], [tensor]]).type) == "bfloat16[2, 1, 2]"
    scalar: Any = Half(np.asarray(values[0]))
    with graph:
        assert str(ops.full([3], scalar).type) == "bfloat16[3]"
    graph.output(y=graph["x"] + graph["x"])
    model = gc.InferenceSession().load(graph)
    assert model.bind(tensor)()[0].tolist() == [2, 5]
    with pytest.raises(DTypeError, match=r"cannot be converted to a tensor"):
        graph.constant([object()])


def test_cast_of_a_tensor_of_torch_is_written_as_in_torch(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(Tensor=Half, int16=np.int16, uint8=np.uint8))
    monkeypatch.setattr(Half, "__module__", "torch")
    with pytest.raises(FeedError, match=r"help: cast it: tensor.to\(torch.float32\)"):
        model(Half(X.astype(ml_dtypes.bfloat16)), Y)


def test_tensor_that_cannot_be_read_is_refused_as_an_operand() -> None:
    graph = Graph("g", {"x": TensorType("float32", [2])})
    with pytest.raises(DTypeError, match="a Distant cannot be converted to an array: TypeError: cannot convert cuda:0"):
        ops.add(graph["x"], Distant())  # type: ignore[arg-type]


def test_arrays_of_jax_are_taken(model: Model) -> None:
    jax = pytest.importorskip("jax")
    numpy = pytest.importorskip("jax.numpy")
    jax.config.update("jax_enable_x64", True)
    assert is_right(model(numpy.asarray(X), numpy.asarray(Y)))
    values = np.array([1, 2.5], ml_dtypes.bfloat16)
    (got,) = identity(TensorType(DType.bfloat16, ["n"]))(numpy.asarray(values))
    assert got.tobytes() == values.tobytes()


# One dict, and onnxruntime's call


def test_one_dict_is_all_feeds(model: Model) -> None:
    assert is_right(model({"x": X, "y": Y}))
    assert is_right(model({"y": Y.tolist(), "x": Named(X)}))
    assert is_right(model({"x": X}, y=Y))
    assert is_right(model.execute({"x": X, "y": Y}))
    assert is_right(model.run_async({"x": X, "y": Y}).result())
    (got,) = identity(TensorType(DType.float32, ["n", 3]))({"x0": X})
    assert np.array_equal(got, X)


@pytest.mark.parametrize(
    ("feed", "named", "message"),
    [
        ({"x": X}, {}, "no array is given for y"),
        ({}, {}, "no array is given for x, y"),
        ({"x": X, "y": Y}, {"y": Y}, "input 'y' is given twice"),
        ({"x": X, "z": Y}, {}, "there is no input 'z'"),
        ({"x": X, 3: Y}, {}, "there is no input 3"),
    ],
)
def test_dict_is_refused_when_names_are_wrong(model: Model, feed: Any, named: Any, message: str) -> None:
    with pytest.raises(FeedError, match=message):
        model(feed, **named)


def test_dict_for_a_model_of_one_input_is_refused_when_names_are_wrong() -> None:
    with pytest.raises(FeedError, match="there is no input 'x'"):
        identity(TensorType(DType.float32, ["n", 3]))({"x": X})


def test_dict_is_taken_by_a_model_with_buffers() -> None:
    graph = Graph("g", {"x": TensorType(DType.float32, [2]), "total": Buffer(DType.float32, [2])})
    graph["total"] += graph["x"]
    graph.output(now=graph["total"] + 0)
    model = gc.InferenceSession().load(graph)
    model({"x": [1, 2]})
    assert model.run(None, {"x": [1, 2]})[0].tolist() == [2, 4]
    model.buffers["total"] = [0, 1]
    assert model.buffers["total"].tolist() == [0, 1]


def test_input_that_is_misspelled_is_asked_for() -> None:
    graph = Graph("g", {"tokens": TensorType(DType.int64, ["n"]), "mask": TensorType(DType.int64, ["n"])})
    graph.output(y=graph["tokens"] * graph["mask"])
    model = gc.InferenceSession().load(graph)
    text = r"there is no input 'tokenz'\n  help: did you mean tokens\? the inputs: tokens"
    with pytest.raises(FeedError, match=text):
        model(tokenz=Y, mask=Y)
    with pytest.raises(FeedError, match=text):
        model({"tokenz": Y, "mask": Y})


def test_run_is_called_as_in_onnxruntime(model: Model) -> None:
    feed = {"x": X, "y": Y}
    assert is_right(model.run(None, feed))
    for names in (["next"], ["next", "double"], ("double",), ["next", "next"], []):
        got = model.run(names, feed)
        wanted = model.session.run(list(names), feed) if names else []
        assert [a.tolist() for a in got] == [a.tolist() for a in wanted]


@pytest.mark.parametrize(
    ("names", "feed", "options", "message"),
    [
        (
            ["nxt"],
            {"x": X, "y": Y},
            None,
            "there is no output 'nxt'\n  help: did you mean next\\? the outputs: double, next",
        ),
        ("next", {"x": X, "y": Y}, None, "'next' is not a list of outputs"),
        (3, {"x": X, "y": Y}, None, "3 is not a list of outputs"),
        (None, [X, Y], None, r"the feed must be a dict of arrays by name, got \[array"),
        (None, {1: X}, None, "the feed must be a dict of arrays by name, got {1: array"),
        (None, {"x": X}, None, "no array is given for y"),
        (None, {"x": X, "y": Y}, object(), "run_options must be None"),
    ],
)
def test_run_is_refused_when_wrong(model: Model, names: Any, feed: Any, options: Any, message: str) -> None:
    with pytest.raises(FeedError, match=message):
        model.run(names, feed, options)
