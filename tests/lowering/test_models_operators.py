"""Operators of loaded models, where the kernels take less than ONNX allows or compute something else."""

from __future__ import annotations

import io
import itertools
import math
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from PIL import Image

import graphcore as gc
from graphcore import DType, ops
from graphcore.conformance.runtimes import OrtModel
from graphcore.conformance.suites import node_tests
from graphcore.errors import GraphError, MissingExtraError, RunError
from graphcore.runtime.lowering.decompositions import strings
from graphcore.runtime.ort.python_ops import image_decoder

Array = np.ndarray[Any, Any]
D = DType


def infos_of(arrays: dict[str, Array], dims: dict[str, list[Any]] | None = None) -> list[onnx.ValueInfoProto]:
    return [
        helper.make_tensor_value_info(name, DType.of(x.dtype).onnx, (dims or {}).get(name, list(x.shape)))
        for name, x in arrays.items()
    ]


def run(
    op: str, *inputs: Array | None, opset: int = 26, dims: dict[str, list[Any]] | None = None, **attributes: Any
) -> Array:
    """Return the results of a model of one node."""
    results = {f"x{i}": x for i, x in enumerate(inputs) if x is not None}
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    node = helper.make_node(op, names, ["y"], **attributes)
    graph = helper.make_graph([node], "one", infos_of(results, dims), [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    return np.asarray(gc.InferenceSession().load(model)(*results.values())[0])


# Fourier transforms


def complex_of(x: Array) -> Array:
    return x[..., 0] + 1j * (x[..., 1] if x.shape[-1] == 2 else 0)


def parts(z: Array, dtype: Any) -> Array:
    return np.stack([z.real, z.imag], -1).astype(dtype)


LENGTHS = (1, 2, 3, 7, 8, 10, 16, 49, 97, 100, 128, 1000)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("inverse", [0, 1])
def test_transforms_are_right_to_the_last_place_when_of_any_length(length: int, inverse: int, dtype: Any) -> None:
    x = np.random.default_rng(length).normal(size=(2, length, 3, 2)).astype(dtype)
    wide = complex_of(x.astype(np.float64))
    wanted = np.fft.ifft(wide, axis=1) if inverse else np.fft.fft(wide, axis=1)
    limit = 1e-12 if dtype is np.float64 else 6e-8
    for axis, dims in ((np.array(1), None), (np.array(-3), None), (np.array(1), {"x0": [2, "n", 3, 2]})):
        result = run("DFT", x, None, axis, inverse=inverse, dims=dims, opset=20)
        assert result.dtype == dtype
        assert np.abs(complex_of(result.astype(np.float64)) - wanted).max() <= limit * np.abs(wanted).max()


def test_inverse_transform_of_unknown_rank_or_length_is_right_to_the_last_place() -> None:
    x = np.random.default_rng(1).normal(size=(2, 7, 2))
    wanted = np.fft.ifft(complex_of(x), axis=1)
    node = helper.make_node("DFT", ["x"], ["y"], inverse=1)
    info = helper.make_tensor_value_info("x", D.float64.onnx, None)
    graph = helper.make_graph([node], "unranked", [info], [onnx.ValueInfoProto(name="y")])
    model = gc.InferenceSession().load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]))
    assert np.abs(complex_of(model(x)[0]) - wanted).max() < 1e-14
    cut = run("DFT", x, np.array(5), inverse=1, opset=20)
    assert np.abs(complex_of(cut) - np.fft.ifft(complex_of(x), n=5, axis=1)).max() < 1e-14


@pytest.mark.parametrize("length", [3, 8, 10, 97])
def test_transforms_of_real_numbers_and_back_are_right_to_the_last_place(length: int) -> None:
    x = np.random.default_rng(length).normal(size=(2, length, 1)).astype(np.float32)
    wanted = np.fft.rfft(x[..., 0].astype(np.float64), axis=1)
    half = run("DFT", x, None, np.array(1), onesided=1, opset=20)
    np.testing.assert_allclose(half, parts(wanted, np.float32), rtol=1e-6, atol=1e-7 * np.abs(wanted).max())
    back = run("DFT", half, np.array(length), np.array(1), onesided=1, inverse=1, opset=20)
    np.testing.assert_allclose(back, x, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("length", [10, 16])
def test_short_time_transforms_are_right_to_the_last_place(length: int, onesided: int) -> None:
    x = np.random.default_rng(0).normal(size=(2, 50, 1)).astype(np.float32)
    window = np.hanning(length).astype(np.float32)
    result = run("STFT", x, np.array(4), window, np.array(length), onesided=onesided, opset=17)
    frames = np.stack([x[:, i : i + length, 0] for i in range(0, 50 - length + 1, 4)], 1) * window.astype(np.float64)
    wanted = np.fft.rfft(frames) if onesided else np.fft.fft(frames)
    np.testing.assert_allclose(result, parts(wanted, np.float32), rtol=1e-6, atol=1e-6)


# Extremes of empty tensors


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("is_constant", [False, True])
@pytest.mark.parametrize(
    "dtype",
    [D.float32, D.float64, D.float16, D.bfloat16, D.int8, D.uint8, D.int32, D.int64, D.uint32, D.uint64, D.bool],
    ids=str,
)
@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMin"])
def test_extremes_are_the_limits_of_the_dtype_when_x_is_empty(
    op: str, dtype: DType, is_constant: bool, keepdims: int
) -> None:
    ends = (-np.inf, np.inf) if dtype.is_float else (dtype.min, dtype.max)
    value = np.array(ends[op == "ReduceMin"]).astype(dtype.numpy)
    x = np.zeros((2, 0, 4), dtype.numpy)
    axes = np.array([1])
    argument = {"x": x} if is_constant else {"x": x, "axes": axes}
    stored = [onnx.numpy_helper.from_array(axes, "axes")] if is_constant else []
    node = helper.make_node(op, ["x", "axes"], ["y"], keepdims=keepdims)
    graph = helper.make_graph([node], "one", infos_of(argument), [onnx.ValueInfoProto(name="y")], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    result = gc.InferenceSession().load(model)(*argument.values())[0]
    assert result.dtype == dtype.numpy
    assert result.shape == ((2, 1, 4) if keepdims else (2, 4))
    assert (result == value).all()


def test_extremes_are_empty_when_another_axis_is_empty() -> None:
    for axis, shape in ((0, (0, 4)), (2, (2, 0))):
        result = run("ReduceMax", np.zeros((2, 0, 4), np.float32), np.array([axis]), keepdims=0, opset=20)
        assert result.shape == shape


# Powers

BASES = (D.float32, D.float64, D.float16, D.bfloat16, D.int32, D.int64)
EXPONENTS = (*BASES, D.int8, D.int16, D.uint8, D.uint16, D.uint32, D.uint64)


@pytest.mark.parametrize(("base", "exponent"), list(itertools.product(BASES, EXPONENTS)), ids=str)
def test_powers_of_two_dtypes_have_the_dtype_of_the_base(base: DType, exponent: DType) -> None:
    x = np.array([1, 2, 3, -2, 0, 5]).astype(base.numpy)
    y = np.array([4, 5, 3, 3, 2, 0]).astype(exponent.numpy)
    result = run("Pow", x, y, opset=15)
    assert result.dtype == base.numpy
    assert result.astype(np.float64).tolist() == [1, 32, 27, -8, 0, 1]


# Quantised numbers


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("channels", [None, 1, 3])
@pytest.mark.parametrize(
    "attributes",
    [{}, {"pads": [1, 0, 2, 1]}, {"auto_pad": "SAME_UPPER"}, {"strides": [2, 1], "dilations": [1, 2]}],
    ids=str,
)
def test_integer_convolution_takes_a_zero_point_for_each_filter(
    attributes: dict[str, Any], channels: int | None, dtype: Any
) -> None:
    rng = np.random.default_rng(1)
    limits = np.iinfo(dtype)
    x = rng.integers(limits.min, limits.max + 1, (2, 2, 5, 6)).astype(dtype)
    w = rng.integers(limits.min, limits.max + 1, (3, 2, 2, 3)).astype(dtype)
    zero = np.array(7, dtype)
    zeros = None if channels is None else rng.integers(1, 100, channels).astype(dtype)
    result = run("ConvInteger", x, w, zero, zeros, **attributes)
    wide = x.astype(np.float64) - 7
    filters = w.astype(np.float64) - (0 if zeros is None else zeros.astype(np.float64).reshape(-1, 1, 1, 1))
    wanted = run("Conv", wide, filters, **attributes)
    assert result.dtype == np.int32
    np.testing.assert_array_equal(result, wanted.astype(np.int32))


FLOAT8 = (D.float8_e4m3fn, D.float8_e5m2, D.float8_e4m3fnuz, D.float8_e5m2fnuz)
QUANTIZED = (
    D.int8,
    D.uint8,
    D.int16,
    D.uint16,
    D.int4,
    D.uint4,
    D.int2,
    D.uint2,
    *FLOAT8,
    D.float4_e2m1,
    D.float6_e2m3fn,
    D.float6_e3m2fn,
)
X = np.array([[0.0, 0.5, -0.75, 3.0, 100.0, 1.24, -2.5], [1e6, -1e6, 0.26, -0.1, 7.5, 600.0, -3.5]], np.float32)


def quantized(x: Array, scale: Array, zero: Array, dtype: DType) -> Array:
    """ONNX's own words, in NumPy."""
    scaled = (x.astype(np.float32) / scale.astype(np.float32)).astype(np.float32)
    if dtype.is_float:
        greatest = float(dtype.max)
        return scaled.clip(-greatest, greatest).astype(dtype.numpy)
    whole = np.rint(scaled.astype(np.float64)) + zero.astype(np.float64)
    return whole.clip(float(dtype.min), float(dtype.max)).astype(dtype.numpy)


def scales(form: str, dtype: Any) -> tuple[Array, dict[str, Any]]:
    """A scale as a model gives it, and the attributes that say what it is of."""
    if form == "one":
        return np.array(0.5, dtype), {}
    if form == "axis":
        return np.array([0.5, 2], dtype), {"axis": 0}
    return np.array([[0.5, 2, 4, 1], [1, 0.25, 8, 2]], dtype), {"axis": 1, "block_size": 2}


def beside(scale: Array, form: str) -> Array:
    if form == "axis":
        return scale.reshape(2, 1)
    return scale if form == "one" else np.repeat(scale, 2, 1)[:, :7]


@pytest.mark.parametrize("form", ["one", "axis", "block"])
@pytest.mark.parametrize("source", [D.float32, D.float16, D.bfloat16, D.int32], ids=str)
@pytest.mark.parametrize("dtype", QUANTIZED, ids=str)
def test_quantization_takes_every_dtype_of_the_schema(dtype: DType, source: DType, form: str) -> None:
    x = X.clip(-6e4, 6e4).astype(source.numpy)
    scale, attributes = scales(form, np.float32 if source is D.int32 else source.numpy)
    point = 0 if dtype.is_float else 1
    zero = np.full(scale.shape, point, np.int8).astype(dtype.numpy)
    opset = 28 if dtype.bits == 6 else 25
    result = run("QuantizeLinear", x, scale, zero, opset=opset, **attributes)
    assert result.dtype == dtype.numpy
    wanted = quantized(x, beside(scale, form), np.array(point), dtype)
    np.testing.assert_array_equal(result.astype(np.float32), wanted.astype(np.float32))
    back = run("DequantizeLinear", result, scale, zero, opset=opset, **attributes)
    assert back.dtype == scale.dtype
    plain = (result.astype(np.float32) - point) * beside(scale, form).astype(np.float32)
    np.testing.assert_array_equal(back.astype(np.float32), plain.astype(scale.dtype).astype(np.float32))


@pytest.mark.parametrize("target", [D.float32, D.float16, D.bfloat16], ids=str)
@pytest.mark.parametrize("scale", [D.float32, D.float16, D.bfloat16, D.float8_e8m0], ids=str)
@pytest.mark.parametrize("dtype", QUANTIZED, ids=str)
def test_scale_of_another_dtype_than_the_result(dtype: DType, scale: DType, target: DType) -> None:
    x = np.array([[0, 1, 1, -1 if dtype.is_signed or dtype.is_float else 1]], np.float32).astype(dtype.numpy)
    factor = np.array([[0.5, 4]], np.float32).astype(scale.numpy)
    attributes: dict[str, Any] = {"axis": 1, "block_size": 2, "output_dtype": target.onnx}
    result = run("DequantizeLinear", x, factor, opset=28 if dtype.bits == 6 else 25, **attributes)
    assert result.dtype == target.numpy
    want = x.astype(np.float32) * np.repeat(factor.astype(np.float32), 2, 1)
    np.testing.assert_array_equal(result.astype(np.float32), want)


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
@pytest.mark.parametrize("form", ["one", "rows"])
def test_products_of_quantized_float8_are_those_of_the_numbers_that_are_meant(form: str, dtype: DType) -> None:
    rng = np.random.default_rng(2)
    a = rng.normal(size=(2, 3, 4)).astype(np.float32).astype(dtype.numpy)
    b = rng.normal(size=(2, 4, 5)).astype(np.float32).astype(dtype.numpy)
    zero = np.zeros((), dtype.numpy)
    if form == "rows":
        a, b = a[0], b[0]
    rows = np.array([0.5, 1, 2], np.float32) if form == "rows" else np.float32(0.5)
    columns = np.array([1, 2, 4, 0.5, 1], np.float32) if form == "rows" else np.float32(2)
    zeros = [np.zeros(np.shape(s), dtype.numpy) for s in (rows, columns)]
    result = run(
        "QLinearMatMul",
        a,
        np.asarray(rows),
        zeros[0],
        b,
        np.asarray(columns),
        zeros[1],
        np.array(0.25, np.float32),
        zero,
        opset=21,
    )
    tall = np.asarray(rows)[:, None] if form == "rows" else rows
    exact = (a.astype(np.float64) * tall) @ (b.astype(np.float64) * columns) / 0.25
    greatest = float(dtype.max)
    wanted = exact.clip(-greatest, greatest).astype(np.float32).astype(dtype.numpy)
    np.testing.assert_array_equal(result.astype(np.float32), wanted.astype(np.float32))


# Bits

BYTES = (D.int8, D.uint8, D.bool, *FLOAT8, D.float8_e8m0)


@pytest.mark.parametrize(("source", "target"), list(itertools.product(BYTES, BYTES)), ids=str)
def test_bits_of_bytes_are_kept_but_for_the_payload_of_nan(source: DType, target: DType) -> None:
    codes = np.arange(256, dtype=np.uint8)
    if D.bool in (source, target):
        codes = codes[:2]
    x = codes.view(source.numpy)
    result = run("BitCast", x, to=target.onnx)
    assert result.dtype == target.numpy
    wanted = codes.view(target.numpy)
    lost = np.zeros(codes.shape, bool)
    for dtype in (source, target):
        if dtype.is_float:
            lost |= np.isnan(codes.view(dtype.numpy).astype(np.float32))
    assert (result.view(np.uint8) == wanted.view(np.uint8))[~lost].all()
    if target.is_float and source is D.uint8:
        assert np.isnan(result.astype(np.float32))[lost].all()


@pytest.mark.parametrize(
    ("source", "target"),
    [(D.int4, D.uint4), (D.uint4, D.int4), (D.int2, D.uint2), (D.uint2, D.int2)]
    + [pair for other in (D.int4, D.uint4) for pair in ((D.float4_e2m1, other), (other, D.float4_e2m1))],
    ids=str,
)
def test_bits_of_less_than_a_byte_are_kept(source: DType, target: DType) -> None:
    codes = np.arange(1 << source.bits, dtype=np.uint8)
    signed = np.where(codes >= 1 << (source.bits - 1), codes.astype(np.int16) - (1 << source.bits), codes)

    def in_memory(dtype: DType) -> Array:
        if dtype.is_float:
            return codes.view(dtype.numpy)
        return (signed if dtype.is_signed else codes).astype(np.int8).astype(dtype.numpy)

    result = run("BitCast", in_memory(source), to=target.onnx)
    assert result.dtype == target.numpy
    wanted = in_memory(target)
    assert result.astype(np.float32).tolist() == wanted.astype(np.float32).tolist()
    assert np.signbit(result.astype(np.float32)).tolist() == np.signbit(wanted.astype(np.float32)).tolist()


# Where the kernels compute in float32, or refuse no elements


NEAR_0 = np.concatenate([np.geomspace(1e-300, 0.9, 60), -np.geomspace(1e-300, 0.9, 60)])


@pytest.mark.parametrize(
    ("op", "true"),
    [
        ("Sinh", np.sinh),
        ("Asinh", np.arcsinh),
        ("Atanh", np.arctanh),
        ("Erf", np.vectorize(math.erf)),
        ("Softplus", lambda x: np.log1p(np.exp(x))),
    ],
)
def test_functions_of_float64_keep_their_digits_near_0(op: str, true: Any) -> None:
    x = np.linspace(-700, -30, 90) if op == "Softplus" else NEAR_0
    np.testing.assert_allclose(run(op, x), true(x), rtol=1e-14, atol=0)


@pytest.mark.parametrize("dtype", [np.int32, np.uint64, np.float64])
def test_shrink_is_computed_in_float64(dtype: Any) -> None:
    """In float32 bias is lost beside large integers, and 1e300 is infinite."""
    x = np.array([127, 3, 1, 0] if dtype != np.float64 else [1e300, -1e300, 3, np.nan], dtype)
    wide, bias = x.astype(np.float64), float(np.float32(1e-6))
    wanted = np.where(wide > 1.5, wide - bias, np.where(wide < -1.5, wide + bias, 0)).astype(dtype)
    np.testing.assert_array_equal(run("Shrink", x, opset=9, bias=1e-6, lambd=1.5), wanted)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("counted", "wanted"), [(0, [2, 1, 1, 1]), (1, [1, 0.5, 1, 0.5])])
def test_average_with_padding_as_wide_as_the_kernel(dtype: Any, counted: int, wanted: list[float]) -> None:
    """With dilations such padding is less than a window; onnxruntime refuses it."""
    x = np.array([[[2, 1, 0]]], dtype)
    attributes: dict[str, Any] = {"kernel_shape": [2], "dilations": [2], "pads": [2, 1], "count_include_pad": counted}
    np.testing.assert_array_equal(run("AveragePool", x, **attributes), [[wanted]])


@pytest.mark.parametrize("x", [True, 0, np.uint8(3), np.float32(0), 2.5, np.uint64(1), np.int8(4), np.float16(1)])
def test_places_of_a_scalar_have_no_coordinates(x: Any) -> None:
    """ONNX: for scalar input, NonZero produces output shape (0, N) instead of (1, N)."""
    result = run("NonZero", np.asarray(x), opset=13)
    assert (result.dtype, result.shape) == (np.int64, (0, int(bool(x))))


@pytest.mark.parametrize(("shape", "axis"), [((0, 2), 0), ((2, 0), 1), ((0, 2), 1)])
@pytest.mark.parametrize("named", [False, True])
def test_hardmax_of_no_elements(shape: tuple[int, int], axis: int, named: bool) -> None:
    dims = {"x0": ["n", "m"]} if named else None
    assert run("Hardmax", np.zeros(shape), dims=dims, axis=axis).shape == shape


def test_hardmax_of_an_axis_of_unknown_length() -> None:
    x = np.array([[1.0, 3, 3], [-np.inf, -np.inf, -np.inf]])
    np.testing.assert_array_equal(run("Hardmax", x, dims={"x0": ["n", "m"]}), [[0, 1, 0], [1, 0, 0]])


@pytest.mark.parametrize("sizes", [[1, 1, 2, 3], [1, 1, 2, 3, 2]])
def test_affine_grids_of_float16_run_in_files(sizes: list[int]) -> None:
    """onnxruntime takes them into parts that it does not run."""
    rank = len(sizes) - 2
    theta = np.arange(rank * (rank + 1), dtype=np.float16).reshape(1, rank, rank + 1)
    infos = infos_of({"theta": theta, "sizes": np.array(sizes)})
    node = helper.make_node("AffineGrid", ["theta", "sizes"], ["y"], align_corners=1)
    graph = helper.make_graph([node], "grid", infos, [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    file = gc.Graph.load(model).to_onnx()
    (result,) = OrtModel(file.SerializeToString())(theta=theta, sizes=np.array(sizes))
    places = np.stack(np.meshgrid(*(np.linspace(-1, 1, n) for n in sizes[2:]), indexing="ij")[::-1], -1)
    wanted = np.einsum("...c,rc->...r", places, theta[0, :, :-1].astype(float)) + theta[0, :, -1].astype(float)
    np.testing.assert_allclose(result[0].astype(float), wanted, atol=2e-3)


# Strings and images


def test_letters_change_case_when_the_model_names_no_locale() -> None:
    x = np.array(["Äpfel", "ÉTÉ", "мир", "abc"], object)
    upper = run("StringNormalizer", x, case_change_action="UPPER")
    assert upper.tolist() == ["ÄPFEL", "ÉTÉ", "МИР", "ABC"]
    lower = run("StringNormalizer", x, case_change_action="LOWER", stopwords=["ABC"], is_case_sensitive=0)
    assert lower.tolist() == ["äpfel", "été", "мир"]


@pytest.mark.parametrize("text", ["", "a"])
def test_places_of_a_string_have_no_coordinates(text: str) -> None:
    assert run("NonZero", np.array(text, object), opset=13).shape == (0, len(text))


@pytest.mark.parametrize("op", ["DepthToSpace", "SpaceToDepth", "Trilu"])
def test_strings_without_elements_are_moved(op: str) -> None:
    attributes: dict[str, Any] = {} if op == "Trilu" else {"blocksize": 2}
    wanted = {"DepthToSpace": (1, 1, 0, 4), "SpaceToDepth": (1, 16, 0, 1), "Trilu": (1, 4, 0, 2)}
    assert run(op, np.zeros((1, 4, 0, 2), object), **attributes).shape == wanted[op]


def test_locale_is_left_to_the_kernel_when_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strings, "_exists", lambda name: True)
    assert strings.locale.__wrapped__() is None
    monkeypatch.setattr(strings, "_exists", lambda name: name == "C.utf8")
    monkeypatch.setattr(sys, "platform", "linux")
    assert strings.locale.__wrapped__() == "C.utf8"
    monkeypatch.setattr(strings, "_exists", lambda name: False)
    assert strings.locale.__wrapped__() == "C"
    monkeypatch.setattr(sys, "platform", "win32")
    assert strings.locale.__wrapped__() is None


def image(form: str, pixels: Array) -> Array:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, form)
    return np.frombuffer(stream.getvalue(), np.uint8)


PIXELS = np.arange(24, dtype=np.uint8).reshape(2, 4, 3) * 10


@pytest.mark.parametrize("form", ["BMP", "PNG", "PPM", "TIFF"])
def test_images_are_decoded(form: str) -> None:
    np.testing.assert_array_equal(run("ImageDecoder", image(form, PIXELS)), PIXELS)
    bgr = run("ImageDecoder", image(form, PIXELS), pixel_format="BGR")
    np.testing.assert_array_equal(bgr, PIXELS[:, :, ::-1])


def test_images_of_other_modes_have_the_channels_of_the_pixel_format() -> None:
    grey, alpha = PIXELS[:, :, 0], np.dstack([PIXELS, PIXELS[:, :, :1]])
    np.testing.assert_array_equal(run("ImageDecoder", image("PNG", grey)), np.dstack([grey] * 3))
    np.testing.assert_array_equal(run("ImageDecoder", image("PNG", alpha)), PIXELS)
    shades = run("ImageDecoder", image("PNG", grey), pixel_format="Grayscale")
    np.testing.assert_array_equal(shades, grey[:, :, None])


def test_image_that_cannot_be_decoded_has_no_elements() -> None:
    """As ONNX says. Formats that ONNX does not name, such as GIF, are among them."""
    whole = image("PNG", PIXELS)
    for stream in (np.zeros(4, np.uint8), np.zeros(0, np.uint8), whole[: len(whole) // 2], image("GIF", PIXELS)):
        assert run("ImageDecoder", stream).shape == (0, 0, 3)
    assert run("ImageDecoder", np.zeros(4, np.uint8), pixel_format="Grayscale").shape == (0, 0, 1)


def test_image_decoder_refuses_other_pixel_formats() -> None:
    with pytest.raises(RunError, match="pixel_format must be one of RGB, BGR, Grayscale, got 'CMYK'"):
        run("ImageDecoder", image("PNG", PIXELS), pixel_format="CMYK")


def test_image_decoder_without_pillow_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    image_decoder.cache_clear()
    with pytest.raises(MissingExtraError, match=r"ImageDecoder: decoding images needs .*\n  help: pip install"):
        run("ImageDecoder", np.zeros(4, np.uint8))


def test_files_for_the_cpu_have_no_images(tmp_path: Path) -> None:
    graph = gc.Graph("g", {"x": gc.TensorType("uint8", ["n"])})
    graph.output(ops.onnx.ImageDecoder(graph["x"]))
    with pytest.raises(GraphError, match="ImageDecoder: no kernel decodes images, only Pillow in sessions"):
        graph.export(tmp_path / "g.onnx", target="cpu")


# Loops


@pytest.mark.parametrize("is_given", [False, True])
def test_loop_fills_an_optional_list_when_it_runs(is_given: bool) -> None:
    """An optional goes round, and what comes out is the list itself."""
    name = "test_loop16_seq_none"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        case = node_tests("loop")[name]
    assert case.model is not None
    model = gc.InferenceSession().load(case.model)
    assert str(model.outputs["seq_res"]).startswith("seq")
    first = [np.float32(5)] if is_given else None
    (results,) = model(np.array(3), np.array(True), first)
    assert [a.tolist() for a in results] == [5.0 if is_given else 0.0, [1.0], [1.0, 2.0], [1.0, 2.0, 3.0]]


# Reductions of integers


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
@pytest.mark.parametrize("op", ["ReduceL2", "ReduceLogSumExp", "ReduceMean"])
def test_reduced_to_the_greatest_integer(op: str, dtype: Any) -> None:
    most = np.iinfo(dtype).max
    x = np.array([most if op == "ReduceMean" else 1, most], dtype)
    result = run(op, x, opset=18, keepdims=0)
    assert result.dtype == dtype
    assert int(result) == most
