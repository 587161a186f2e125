"""Flips, rolls, and moves between channels and places, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphcore as gc
from graphcore import DType, Graph, TensorType, ops
from graphcore.errors import DTypeError, GraphError, ShapeError
from tests.sampling import drawn
from tests.support.graphs import Array, graph_of, run1

pytestmark = pytest.mark.releases

NO_COUNT: Any = 2.0
X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2), ()])
def test_flip_reverses_axes(axis: Any) -> None:
    for dims in ([2, 3, 4], ["a", "b", "c"], ["?", "?", "?"]):
        np.testing.assert_array_equal(run1(lambda x: ops.flip(x, axis), X, dims=[dims]), np.flip(X, axis))


def test_flip_keeps_the_type() -> None:
    graph = Graph("flip", {"x": TensorType(DType.int4, ["a", 3])})
    assert ops.flip(graph["x"]).type is graph["x"].type


def test_strings_are_flipped_and_rolled() -> None:
    words = np.array(["a", "b", "c"], object)
    graph = Graph("words", {"x": TensorType(DType.string, ["n"])})
    graph.output(ops.flip(graph["x"]), ops.roll(graph["x"], 1))
    flipped, rolled = gc.InferenceSession().load(graph)(words)
    assert list(flipped) == ["c", "b", "a"]
    assert list(rolled) == ["c", "a", "b"]


CASES = [(1, None), (-5, None), (1, 0), (7, 1), (-3, -1), ((1, 2), (0, 2)), (2, (1, 2)), ((1, 1), (2, 2)), (0, 1)]


@pytest.mark.parametrize(("shift", "axis"), CASES)
def test_roll_moves_elements_around(shift: Any, axis: Any) -> None:
    for dims in ([2, 3, 4], ["a", "b", "c"], ["?", 3, "?"]):
        np.testing.assert_array_equal(run1(lambda x: ops.roll(x, shift, axis), X, dims=[dims]), np.roll(X, shift, axis))


@settings(max_examples=drawn(30), deadline=None)
@given(size=st.integers(0, 5), shift=st.integers(-12, 12))
def test_roll_takes_any_size_and_shift(size: int, shift: int) -> None:
    x = np.arange(size, dtype=np.int32)
    np.testing.assert_array_equal(ROLL(x, np.array(shift, np.int16))[0], np.roll(x, shift))


def _roll() -> gc.Model:
    graph = Graph("roll", {"x": TensorType(DType.int32, ["n"]), "shift": TensorType(DType.int16, [])})
    graph.output(ops.roll(graph["x"], graph["shift"]))
    return gc.InferenceSession().load(graph)


ROLL = _roll()


@pytest.mark.parametrize("dims", [[2, 3, 4], [2, "b", 4], ["?", 3, 4]])
@pytest.mark.parametrize("axis", [None, 0, 1, (0, 1, 2)])
def test_roll_keeps_the_type(dims: list[Any], axis: Any) -> None:
    graph = Graph("roll", {"x": TensorType(DType.float32, dims)})
    assert ops.roll(graph["x"], 1, axis).type == graph["x"].type


def test_roll_of_known_sizes_makes_no_indices() -> None:
    graph = graph_of(lambda x: ops.roll(x, 1, 1), X, dims=[["n", 3, 4]])
    assert {node.op_type for node in graph.nodes} == {"Slice", "Concat"}


@pytest.mark.parametrize(
    ("shift", "axis", "error", "words"),
    [
        ((1, 2), None, ShapeError, "several shifts need axes"),
        ((1, 2), 0, ShapeError, "2 shifts for 1 axes"),
        (1, 3, ShapeError, "there is no axis 3 of a tensor of rank 3"),
        (1.5, 0, DTypeError, "shift=1.5 is not an int"),
        (True, 0, DTypeError, "shift=True is not an int"),
    ],
)
def test_roll_says_what_is_wrong(shift: Any, axis: Any, error: type[Exception], words: str) -> None:
    graph = Graph("roll", {"x": TensorType(DType.float32, [2, 3, 4])})
    with pytest.raises(error, match=words):
        ops.roll(graph["x"], shift, axis)


def test_roll_refuses_shifts_that_are_not_integer_scalars() -> None:
    graph = Graph("roll", {"x": TensorType(DType.float32, [2]), "v": TensorType(DType.int64, [1])})
    with pytest.raises(ShapeError, match=r"shift must be a scalar, got shape \[1\]"):
        ops.roll(graph["x"], graph["v"])
    with pytest.raises(DTypeError, match="shift must have an integer dtype, got float32"):
        ops.roll(graph["x"], graph["x"][0])


# Between channels and places


def spread(x: Array, size: int, mode: str) -> Array:
    """By loops over the places of the result, of x: [N, C, H, W]."""
    batch, channels, height, width = x.shape
    fewer = channels // size**2
    array = np.empty((batch, fewer, height * size, width * size), x.dtype)
    for c, row, column in np.ndindex(*array.shape[1:]):
        block = row % size * size + column % size
        source = block * fewer + c if mode == "DCR" else c * size**2 + block
        array[:, c, row, column] = x[:, source, row // size, column // size]
    return array


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_, np.float16])
def test_channels_become_places_and_again_channels(mode: str, size: int, layout: str, dtype: Any) -> None:
    x = np.random.default_rng(size).integers(0, 99, (2, 2 * size**2, 3, 5)).astype(dtype)
    want = spread(x, size, mode)
    if layout == "NHWC":
        x, want = np.moveaxis(x, 1, -1), np.moveaxis(want, 1, -1)
    for dims in (
        list(x.shape),
        ["n", "h", "w", x.shape[3]] if layout == "NHWC" else ["n", x.shape[1], "h", "w"],
        ["?"] * 4,
    ):
        result = run1(lambda x: ops.depth_to_space(x, size, mode, layout), x, dims=[dims])
        np.testing.assert_array_equal(result, want)
        dims = [d if d in ("n", "?") or not isinstance(d, str) else f"{d}2" for d in dims]
        dims = [w if isinstance(d, int) else d for d, w in zip(dims, want.shape, strict=True)]
        back = run1(lambda x: ops.space_to_depth(x, size, mode, layout), want, dims=[dims])
        np.testing.assert_array_equal(back, x)


def test_sizes_of_blocks_are_known_when_dims_are_named() -> None:
    graph = Graph("blocks", {"x": TensorType(DType.float32, ["n", "h", "w", 12])})
    wide = ops.depth_to_space(graph["x"], 2)
    assert wide.shape == ["n", graph["x"].shape[1] * 2, graph["x"].shape[2] * 2, 3]
    for mode in ("DCR", "CRD"):
        assert ops.space_to_depth(wide, 2, mode).shape == ["n", "h", "w", 12]


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_images_without_elements_have_none(mode: str) -> None:
    x = np.zeros((0, 4, 6, 4), np.float32)
    assert run1(lambda x: ops.depth_to_space(x, 2, mode), x, dims=[["n", "h", "w", 4]]).shape == (0, 8, 12, 1)
    assert run1(lambda x: ops.space_to_depth(x, 2, mode), x, dims=[["n", "h", "w", 4]]).shape == (0, 2, 3, 16)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda x: ops.depth_to_space(x, 2), ShapeError, "3 channels cannot be split into blocks of 2 x 2"),
        (lambda x: ops.depth_to_space(x, 0), ShapeError, "block_size=0 is below 1"),
        (lambda x: ops.depth_to_space(x, NO_COUNT), DTypeError, "block_size=2.0 is not an int"),
        (lambda x: ops.depth_to_space(x, 2, "RCD"), GraphError, "mode='RCD' is not known"),
        (lambda x: ops.depth_to_space(x[0], 2), ShapeError, r"x has rank 3, not 4[\s\S]*axes must be NHWC"),
        (lambda x: ops.space_to_depth(x[0], 2, input_layout="NCHW"), ShapeError, "axes must be NCHW"),
        (lambda x: ops.space_to_depth(x, 2), ShapeError, "the width 5 cannot be split into blocks of 2"),
        (lambda x: ops.space_to_depth(x, 2, input_layout="HWC"), ShapeError, "input_layout='HWC' is not a layout"),
    ],
)
def test_blocks_say_what_is_wrong(call: Any, error: type[Exception], words: str) -> None:
    graph = Graph("blocks", {"x": TensorType(DType.float32, ["n", 4, 5, 3])})
    with pytest.raises(error, match=words):
        call(graph["x"])
