"""MoE, QMoE and Inverse of com.microsoft against NumPy, in all forms: those of the kernels, and those of bodies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnx.reference
import pytest

from graphcore import DType, Graph, TensorType
from graphcore.errors import ShapeError
from graphcore.ops import microsoft
from graphcore.runtime.lowering import lower
from tests.support.graphs import Array
from tests.support.graphs import run as run_named

RNG = np.random.default_rng(4)
E, T, H, I = 4, 6, 32, 16  # noqa: E741 - experts, tokens, size, inner size


def real(*shape: int, factor: float = 1.0) -> Array:
    return (RNG.standard_normal(shape) * factor).astype(np.float32)


def run(build: Any, *arrays: Array) -> list[Any]:
    """Run a function of Symbols with the shapes of arrays."""
    return run_named(build, *arrays, dims=[[*a.shape] for a in arrays])


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def gelu(x: Array) -> Array:
    return np.asarray(x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))))


def swiglu(g: Array, x: Array) -> Array:
    g, x = np.minimum(g, 0.7), np.clip(x, -0.7, 0.7)
    return np.asarray(g * sigmoid(1.702 * g) * (x + 1))


PLAIN: dict[str, Callable[[Array], Array]] = {
    "relu": lambda x: np.maximum(x, 0),
    "relu2": lambda x: np.maximum(x, 0) ** 2,
    "gelu": gelu,
    "silu": lambda x: x * sigmoid(x),
    "identity": lambda x: x,
}
GATES: dict[str, Callable[[Array, Array], Array]] = {"swiglu": swiglu, "geglu": lambda g, x: gelu(g) * x}
LIMITS = {"activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 0.7}


def mixture(x: Array, shares: Array, expert: Callable[[Array, int], Array]) -> Array:
    """The sum of the experts of each row, one row and expert at a time, in float64."""
    result = np.zeros(x.shape)
    for row, own in enumerate(shares):
        for number in np.flatnonzero(own):
            result[row] += own[number] * expert(x[row].astype(np.float64), int(number))
    return result


def shares_of(router: Array, weights: Array | None, k: int, *, normalize: bool) -> Array:
    powers = np.exp(router.astype(np.float64))
    shares = powers / powers.sum(-1, keepdims=True) if weights is None else weights.astype(np.float64)
    chosen = np.argsort(-router, -1)[:, :k]
    mask = np.zeros(router.shape, bool)
    np.put_along_axis(mask, chosen, True, -1)
    shares = np.where(mask, shares, 0)
    return np.asarray(shares / shares.sum(-1, keepdims=True) if normalize else shares)


X, ROUTER = real(T, H), real(T, E)
W1, W2, W3 = real(E, I, H, factor=0.3), real(E, H, I, factor=0.3), real(E, I, H, factor=0.3)
B1, B2, B3 = real(E, I), real(E, H), real(E, I)


@pytest.mark.numbers
@pytest.mark.parametrize("third", [False, True])
@pytest.mark.parametrize("kind", PLAIN)
def test_mixture_computes_the_formula(kind: str, third: bool) -> None:
    more = (W3, B3) if third else ()
    build = lambda *a: microsoft.MoE(*a, k=2, activation_type=kind)  # noqa: E731
    (result,) = run(build, X, ROUTER, W1, B1, W2, B2, *more)

    def expert(x: Array, e: int) -> Array:
        inner = PLAIN[kind](W1[e] @ x + B1[e])
        inner = inner * (W3[e] @ x + B3[e]) if third else inner
        return np.asarray(W2[e] @ inner + B2[e])

    np.testing.assert_allclose(result, mixture(X, shares_of(ROUTER, None, 2, normalize=False), expert), atol=3e-5)


@pytest.mark.numbers
@pytest.mark.parametrize("fusion", [0, 1, 2])
@pytest.mark.parametrize("kind", GATES)
def test_gates_have_two_parts_in_each_layout(kind: str, fusion: int) -> None:
    both, bias = np.stack([W1, W3], 2 if fusion == 1 else 1), np.stack([B1, B3], 2 if fusion == 1 else 1)
    first = (W1, B1) if not fusion else (both.reshape(E, 2 * I, H), bias.reshape(E, 2 * I))
    more = () if fusion else (W3, B3)
    attributes: dict[str, Any] = {"k": 2, "swiglu_fusion": fusion, "normalize_routing_weights": True, **LIMITS}
    build = lambda *a: microsoft.MoE(*a, activation_type=kind, **attributes)  # noqa: E731
    (result,) = run(build, X.reshape(2, 3, H), ROUTER, *first, W2, B2, *more)

    def expert(x: Array, e: int) -> Array:
        return np.asarray(W2[e] @ GATES[kind](W1[e] @ x + B1[e], W3[e] @ x + B3[e]) + B2[e])

    wanted = mixture(X, shares_of(ROUTER, None, 2, normalize=True), expert)
    np.testing.assert_allclose(result.reshape(T, H), wanted, atol=3e-5)


def test_an_overflow_of_another_expert_does_not_count() -> None:
    weights = W2.copy()
    weights[3] = np.inf
    router = ROUTER.copy()
    router[:, 3] = -9
    build = lambda *a: microsoft.MoE(*a, k=2, activation_type="relu2")  # noqa: E731 - without a kernel
    assert np.isfinite(run(build, X, router, W1, B1, weights)[0]).all()


def packed(numbers: Array, bits: int) -> Array:
    count = 8 // bits
    padded = np.pad(numbers, [(0, 0)] * (numbers.ndim - 1) + [(0, -numbers.shape[-1] % count)])
    parts = padded.reshape(*padded.shape[:-1], -1, count)
    return np.asarray(np.bitwise_or.reduce([parts[..., i] << (bits * i) for i in range(count)]), np.uint8)


@pytest.mark.numbers
@pytest.mark.parametrize("form", ["kernel", "body"])
@pytest.mark.parametrize("has_zeros", [False, True])
@pytest.mark.parametrize(("bits", "blocks"), [(2, 1), (4, 1), (8, 1), (4, 2)])
def test_weights_are_dequantised(bits: int, blocks: int, has_zeros: bool, form: str) -> None:
    weights, parts, zeros = [], [], []
    for rows, columns in ((32, H), (H, 32)):
        numbers = RNG.integers(0, 1 << bits, (E, rows, columns))
        scales = abs(real(E, rows, blocks, factor=0.05))
        zero = RNG.integers(0, 1 << bits, scales.shape) if has_zeros else np.full(scales.shape, 1 << (bits - 1))
        split = numbers.reshape(E, rows, blocks, -1) - zero[..., None]
        weights.append((split * scales[..., None].astype(np.float64)).reshape(E, rows, columns))
        parts += [packed(numbers, bits), scales if blocks > 1 else scales[..., 0], None]
        zeros.append(packed(zero if blocks > 1 else zero[..., 0], bits) if has_zeros else None)
    kind = "silu" if form == "kernel" else "relu2"
    attributes: dict[str, Any] = {"k": 2, "expert_weight_bits": bits, "activation_type": kind}
    if blocks > 1:
        attributes["block_size"] = H // blocks
    mix = abs(real(T, E))
    operands: list[Array | None] = [X, ROUTER, *parts, None, None, None, *zeros, None, mix]
    arrays = [a for a in operands if a is not None]

    def build(*symbols: Any) -> Any:
        remaining = iter(symbols)
        return microsoft.QMoE(*[None if a is None else next(remaining) for a in operands], **attributes)

    (result,) = run(build, *arrays)

    def expert(x: Array, e: int) -> Array:
        return np.asarray(weights[1][e] @ PLAIN[kind](weights[0][e] @ x))

    wanted = mixture(X, shares_of(ROUTER, mix, 2, normalize=False), expert)
    np.testing.assert_allclose(result, wanted, atol=3e-6 * np.abs(wanted).max())


@pytest.mark.numbers
@pytest.mark.parametrize("dtype", [DType.float32, DType.float64, DType.float16])
def test_inverse_is_that_of_numpy(dtype: DType) -> None:
    x = (RNG.standard_normal((2, 5, 5)) + 4 * np.eye(5)).astype(dtype.numpy)
    (result,) = run_named(microsoft.Inverse, x, dims=[["b", 5, 5]])
    assert result.dtype == dtype.numpy
    near = {DType.float32: 1e-6, DType.float64: 1e-14, DType.float16: 1e-3}[dtype]
    np.testing.assert_allclose(result.astype(np.float64), np.linalg.inv(x.astype(np.float64)), atol=near)


def test_standard_onnx_has_the_mixture_as_a_function() -> None:
    graph = Graph("g", {"x": TensorType("float32", ["t", H]), "router": TensorType("float32", ["t", E])})
    graph.output(y=microsoft.MoE(*graph.inputs, W1, B1, W2, B2, k=2))
    proto = graph.to_onnx(target="onnx")
    assert [f.name for f in proto.functions] == ["MoE"]
    (result,) = onnx.reference.ReferenceEvaluator(proto).run(None, {"x": X, "router": ROUTER})
    wanted = run(lambda *a: microsoft.MoE(*a, k=2), X, ROUTER, W1, B1, W2, B2)[0]
    np.testing.assert_allclose(np.asarray(result), wanted, atol=2e-5)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"activation_type": "tanh"}, "activation_type must be one of relu, .*swiglu, geglu, got 'tanh'"),
        ({"activation_type": "swiglu"}, "swiglu with swiglu_fusion=0 needs fc3_experts_weights"),
        ({"use_sparse_mixer": True}, "use_sparse_mixer is not supported: only the kernel of CUDA has it"),
        ({"k": 9}, "k"),
    ],
)
def test_forms_that_are_not_defined_are_refused(attributes: dict[str, Any], message: str) -> None:
    graph = Graph("g", {"x": TensorType("float32", [T, H]), "router": TensorType("float32", [T, E])})
    with pytest.raises(ShapeError, match=rf"(?s)MoE: .*{message}.*test_experts\.py"):
        microsoft.MoE(*graph.inputs, W1, B1, W2, B2, **attributes)


def test_imported_form_without_a_body_is_typed_and_left_to_the_runtime() -> None:
    helper = onnx.helper
    shapes = {"x": [T, H], "r": [T, E], "w": [E, I, H], "v": [E, H, I]}
    kinds = [onnx.TensorProto.FLOAT] * 2 + [onnx.TensorProto.FLOAT8E4M3FN] * 2
    inputs = [helper.make_tensor_value_info(n, k, s) for k, (n, s) in zip(kinds, shapes.items(), strict=True)]
    node = helper.make_node(
        "QMoE", ["x", "r", "w", "", "", "v"], ["y"], domain="com.microsoft", quant_type="fp8", block_size=128
    )
    graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name="y")])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    read = Graph.load(helper.make_model(graph, opset_imports=opsets, ir_version=10))
    assert str(read.outputs[0].type) == f"float32[{T}, {H}]"
    assert [n.op_type for n in lower(read, "cpu").nodes] == ["QMoE"]
