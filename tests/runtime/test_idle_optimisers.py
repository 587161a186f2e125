"""Optimisers that are left out since they match nothing: the session makes the same nodes without them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

import graphcore as gc
from graphcore.runtime.ort import optimisers as idle_module
from graphcore.runtime.ort.optimisers import EXPANDED, NEEDS, idle
from graphcore.runtime.ort.release import measured_release

pytestmark = pytest.mark.skipif(measured_release() is None, reason="of releases that were measured alone")

_HALF, _ONE, _ROOT, _EPSILON = "{0.5}", "{1.0}", "{1.4142135}", "{0.00001}"
_W44 = "{" + ", ".join(["0.5", "-0.25", "1.0", "2.0"] * 4) + "}"
_BYTES = "{" + ", ".join(map(str, range(16))) + "}"
_W4 = "{0.5, -0.25, 1.0, 2.0}"

FORMS: dict[str, tuple[str, str, str]] = {
    # The type of x, constants, nodes that make y.
    "sums": ("float[n, 4]", "", "a = Add(x, x) y = Neg(a)"),
    "product and bias": (
        "float[n, 4]", f"float[4, 4] w = {_W44}, float[4] b = {_W4}", "m = MatMul(x, w) a = Add(m, b) y = Relu(a)"
    ),
    "Gemm and activation": ("float[n, 4]", f"float[4, 4] w = {_W44}", "m = Gemm(x, w) y = Relu(m)"),
    "transposed product": ("float[4, 4]", "", "t = Transpose<perm = [1, 0]>(x) y = MatMul(t, x)"),
    "scaled product": ("float[4, 4]", f"float s = {_HALF}", "m = MatMul(x, x) y = Mul(m, s)"),
    "Gelu": (
        "float[n, 4]",
        f"float r = {_ROOT}, float o = {_ONE}, float h = {_HALF}",
        "d = Div(x, r) e = Erf(d) p = Add(e, o) m = Mul(x, p) y = Mul(m, h)",
    ),
    "Gelu with a bias": ("float[n, 4]", f"float[4] b = {_W4}", "a = Add(x, b) y = Gelu(a)"),
    "QuickGelu": ("float[n, 4]", "float s = {1.702}", "p = Mul(x, s) g = Sigmoid(p) y = Mul(x, g)"),
    "norm": (
        "float[n, 4]",
        f"float e = {_EPSILON}, float two = {{2.0}}, float[4] w = {_W4}, float[4] b = {_W4}, int64[1] i = {{-1}}",
        "m = ReduceMean(x, i) d = Sub(x, m) q = Pow(d, two) v = ReduceMean(q, i) z = Add(v, e) r = Sqrt(z)"
        " u = Div(d, r) k = Mul(u, w) y = Add(k, b)",
    ),
    "sum before a norm": (
        "float[n, 3, 4]", f"float[4] w = {_W4}, float[4] b = {_W4}", "s = Add(x, x) y = LayerNormalization(s, w, b)"
    ),
    "Softmax with a bias": ("float[2, 4]", f"float[1, 4] b = {_W4}", "a = Add(x, b) y = Softmax(a)"),
    "convolution": (
        "float[1, 1, 8, 8]", f"float[4, 1, 2, 2] w = {_W44}",
        "c = Conv(x, w) r = Relu(c) y = MaxPool<kernel_shape = [2, 2]>(r)",
    ),
    "pools": ("float[1, 4, 8, 8]", "", "p = AveragePool<kernel_shape = [2, 2]>(x) y = GlobalAveragePool(p)"),
    "two moves": (
        "float[2, 3, 4]", "", "a = Transpose<perm = [1, 0, 2]>(x) b = Relu(a) y = Transpose<perm = [1, 0, 2]>(b)"
    ),
    "shape that is computed": (
        "float[n, 3, 4]",
        "int64 zero = {0}, int64[1] last = {12}, int64[1] i = {0}",
        "s = Shape(x) g = Gather(s, zero) u = Unsqueeze(g, i) c = Concat<axis = 0>(u, last) y = Reshape(x, c)",
    ),
    "rows apart": (
        "float[2, 4]",
        "int64 zero = {0}, int64 one = {1}",
        "a = Gather<axis = 0>(x, zero) b = Gather<axis = 0>(x, one) y = Concat<axis = 0>(a, b)",
    ),
    "blocks of pixels": ("float[1, 4, 4, 4]", "", "y = SpaceToDepth<blocksize = 2>(x)"),
    "bytes": (
        "float[n, 4]",
        f"float s = {_HALF}, uint8 z = {{0}}, uint8[4, 4] w = {_BYTES}",
        "q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) v = DequantizeLinear(w, s, z) m = MatMul(d, v)"
        " p = QuantizeLinear(m, s, z) y = DequantizeLinear(p, s, z)",
    ),
    "dropout": ("float[n, 4]", f"float[4] b = {_W4}", "a = Add(x, b) d = Dropout(a) y = Add(d, x)"),
}  # fmt: skip


def model_of(form: str) -> onnx.ModelProto:
    kind, constants, nodes = FORMS[form]
    inner = f"<{constants}>" if constants else ""
    result = parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 20]> g ({kind} x) => ({kind.partition("[")[0]} y) {inner} {{ {nodes} }}'
    )
    del result.graph.output[0].type.tensor_type.shape.dim[:]
    result.graph.output[0].type.tensor_type.ClearField("shape")
    return result


def optimised(model: onnx.ModelProto, disabled: list[str], folder: Path) -> Counter[tuple[Any, ...]]:
    """Return the nodes that onnxruntime makes of a model."""
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(folder / f"{len(disabled)}.onnx")
    options.log_severity_level = 3
    onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"], disabled_optimizers=disabled
    )
    nodes = onnx.load(options.optimized_model_filepath).graph.node
    return Counter((n.op_type, n.domain, len(n.input), *sorted(str(a) for a in n.attribute)) for n in nodes)


@pytest.mark.parametrize("form", FORMS)
def test_session_makes_the_same_nodes_when_idle_optimisers_are_left_out(form: str, tmp_path: Path) -> None:
    model = model_of(form)
    names = idle(frozenset(node.op_type for node in model.graph.node))
    assert names
    assert optimised(model, [], tmp_path) == optimised(model, [*names], tmp_path)


def test_every_optimiser_is_kept_for_some_form_that_it_may_match() -> None:
    results = {
        n for form in FORMS for n in NEEDS.keys() - idle(frozenset(n.op_type for n in model_of(form).graph.node))
    }
    assert NEEDS.keys() - results <= {"GroupQueryAttentionFusion"}


def test_some_optimiser_that_is_kept_changes_each_form_of_a_fusion(tmp_path: Path) -> None:
    for form in ("product and bias", "Gelu", "norm", "convolution", "bytes"):
        model = model_of(form)
        remaining = NEEDS.keys() - idle(frozenset(node.op_type for node in model.graph.node))
        assert optimised(model, [], tmp_path) != optimised(model, [*remaining], tmp_path), form


def test_operators_that_others_are_defined_by_are_needed_as_those_are() -> None:
    schemas: Any = onnx.defs.get_all_schemas_with_history()
    for schema in schemas:
        inner = {node.op_type for node in schema.function_body.node} if schema.has_function else set()
        for optimiser, needs in NEEDS.items():
            if not needs.isdisjoint(inner):
                assert schema.name in needs | EXPANDED, (schema.name, optimiser)


def test_nothing_is_left_out_when_an_operator_may_be_expanded() -> None:
    assert idle(frozenset({"Add"}))
    assert idle(frozenset({"Add", "Mish"})) == ()


def test_nothing_is_left_out_when_the_release_was_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    idle.cache_clear()
    monkeypatch.setattr(idle_module, "measured_release", lambda: None)
    assert idle(frozenset({"Add"})) == ()
    idle.cache_clear()


@pytest.mark.parametrize("form", FORMS)
def test_file_and_graph_give_what_the_bare_session_gives(form: str) -> None:
    content = model_of(form).SerializeToString()
    kind = FORMS[form][0]
    dims = [2 if dim.strip() == "n" else int(dim) for dim in kind.partition("[")[2].rstrip("]").split(",")]
    x = np.random.default_rng(0).standard_normal(dims, np.float32)
    bare = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    session = gc.InferenceSession()
    for model in (content, gc.Graph.load(content)):
        assert np.allclose(session.load(model)(x)[0], bare, rtol=1e-5, atol=1e-6)
