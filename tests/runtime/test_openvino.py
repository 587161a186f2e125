"""The OpenVINO target: its table and its plans anywhere, its numbers where the provider is installed.

Without the provider the last part has nothing to run, and its tests return at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import graphcore as gc
from graphcore import DType, Graph, Symbol, TensorType, ops
from graphcore.errors import GraphError, ModelError, RunError
from graphcore.ir.graph import Precision, TargetName
from graphcore.runtime.lowering import lower
from graphcore.runtime.lowering.targets import TARGETS
from graphcore.runtime.lowering.targets.legality import kernels, legality
from graphcore.runtime.lowering.targets.releases import default, table_of
from graphcore.runtime.ort import options
from graphcore.runtime.ort.openvino import session as openvino
from graphcore.runtime.ort.openvino.session import can_widen, joined
from graphcore.runtime.ort.openvino.support import LIMIT, TAKEN, findings, without_checks
from tools.kernel_probe import sweep as sweeping

D = DType
HAS_PROVIDER = openvino.PROVIDER in onnxruntime.get_available_providers()
NAN, INF = float("nan"), float("inf")


def built(function: Callable[..., Any], *types: TensorType) -> Graph:
    graph = Graph("one", {f"x{i}": type_ for i, type_ in enumerate(types)})
    result = function(*graph.inputs)
    graph.output(*(result if isinstance(result, (tuple, list)) else (result,)))
    return graph


def floats(*dims: int | str) -> TensorType:
    return TensorType(D.float32, list(dims))


def ints(*dims: int | str) -> TensorType:
    return TensorType(D.int64, list(dims))


def planned(graph: Graph, precision: Precision = "exact", **options: Any) -> openvino.Plan:
    def lowered(value: Graph, target: TargetName) -> Graph:
        return lower(value, target, precision)

    return openvino.planned(graph, lowered, precision, default("openvino"), **options)


def operators(graph: Graph) -> Counter[str]:
    return Counter(node.op_type for node in graph.nodes)


# The table


def test_table_is_of_the_release_that_the_package_follows() -> None:
    table = table_of("openvino")
    assert table.provider == openvino.PROVIDER
    assert table.newest.opset == 25
    assert {D.float32} <= kernels("openvino")["MatMul"]
    assert not kernels("openvino")["IsNaN"]


def test_what_is_listed_as_wrong_is_there() -> None:
    there = kernels("openvino")
    for op, (dtypes, reason) in TARGETS["openvino"].incorrect.items():
        assert {D.of(name) for name in dtypes.split()} <= there[op], op
        assert reason
    assert D.float32 not in (legality("openvino").dtypes("Clip") or ())


def test_options_hold_the_precision_when_users_give_their_own() -> None:
    assert "f32" in options.EXACT[openvino.PROVIDER]["load_config"]
    value = openvino.provider_options({"load_config": {"CPU": {"NUM_STREAMS": "1"}}})["load_config"]
    assert '"NUM_STREAMS": "1"' in value
    assert '"INFERENCE_PRECISION_HINT": "f32"' in value
    own = openvino.provider_options({"load_config": '{"CPU": {"INFERENCE_PRECISION_HINT": "bf16"}}'})["load_config"]
    assert "bf16" in own
    assert "f32" not in own
    assert openvino.provider_options({"num_of_threads": 2}) == {"num_of_threads": 2}


@pytest.mark.parametrize("config", ["{", 3, {"CPU": 1}, "[1]"], ids=str)
def test_options_raise_when_they_are_not_properties(config: object) -> None:
    with pytest.raises(GraphError, match="must map devices to properties"):
        openvino.provider_options({"load_config": config})


def test_options_raise_when_no_graph_starts_with_them() -> None:
    started: list[Graph] = []
    openvino.require_options({"device_type": "CPU"}, started.append)
    assert len(started) == 1

    def refuses(graph: Graph) -> None:
        raise ModelError(f"load: onnxruntime refused {graph.name}: Invalid OpenVINO EP option: nope")

    with pytest.raises(GraphError, match=r"refuses provider_options=\{'nope': '3'\}(.|\n)*EP option: nope"):
        openvino.require_options({"nope": "3"}, refuses)


def test_error_names_the_extra_when_the_provider_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    with pytest.raises(RunError, match="'openvino' is not installed") as caught:
        gc.InferenceSession("openvino")
    assert "graphcore-engine[openvino]" in str(caught.value)


# Placement


def test_float32_graphs_are_whole() -> None:
    plan = planned(built(lambda x, y: ops.softmax(ops.gelu(x @ y + 1)), floats("n", 8), floats(8, 8)))
    assert (plan.hint, plan.unsupported, plan.bounds) == ("f32", {}, ())


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        (built(lambda x: x + 1, TensorType(D.float64, ["n"])), "float64"),
        (built(lambda x: x + 1, TensorType(D.int8, ["n"])), "int8"),
        (built(lambda x: x + 1, TensorType(D.bfloat16, ["n"])), "bfloat16"),
        (built(lambda x: x * x, ints("n")), "Mul"),
        (built(lambda x: ops.cumsum(x), ints("n")), "CumSum"),
        (built(lambda x, y: x + 1, floats("n"), floats("n")), "input x1"),
        (built(lambda x, y: x + ops.shape_of(y)[0].cast(D.float32), floats("n"), floats("m")), "input x1"),
        (built(lambda x: ops.cond(ops.sum(x) > 0, lambda: x + 1, lambda: x - 1), floats("n")), "If"),
    ],
    ids=lambda value: value.name if isinstance(value, Graph) else value,
)
def test_graph_is_the_cpu_providers_when_a_node_would_be_wrong(graph: Graph, reason: str) -> None:
    plan = planned(graph)
    assert plan.hint == ""
    assert reason in plan.unsupported
    assert all(plan.unsupported.values())


def test_graph_is_the_cpu_providers_when_it_has_buffers() -> None:
    plan = planned(built(lambda x: x + 1, floats("n")), has_buffers=True)
    assert (plan.hint, list(plan.unsupported)) == ("", ["buffers"])


def test_narrow_floats_are_computed_as_such_when_fast() -> None:
    def layer(x: Symbol) -> Symbol:
        weight = x.graph.weight("w", np.ones((4, 4), x.dtype.numpy))
        return ops.exp(x @ weight).cast(D.float32)

    half = built(layer, TensorType(D.float16, ["n", 4]))
    assert planned(half).hint == ""
    plan = planned(half, "fast")
    assert (plan.hint, plan.unsupported) == ("f16", {})
    assert plan.lowered.weights["w"].dtype is D.float32
    graph = built(lambda x: layer(x.cast(D.bfloat16)), floats("n", 4))
    assert planned(graph, "fast").hint == "bf16"
    assert "bfloat16" in planned(graph).unsupported
    assert not can_widen(built(layer, TensorType(D.bfloat16, ["n", 4])))  # which is fed as such


@pytest.mark.parametrize(
    ("flags", "precision", "hint"),
    [({"avx512_bf16"}, "fast", "bf16"), ({"avx512_bf16"}, "exact", "f32"), ({"avx512f"}, "fast", "f32")],
)
def test_float32_is_computed_in_bfloat16_when_fast_where_the_processor_multiplies_it(
    monkeypatch: pytest.MonkeyPatch, flags: set[str], precision: Precision, hint: str
) -> None:
    monkeypatch.setattr(openvino, "processor_flags", lambda: frozenset(flags))
    plan = planned(built(lambda x, y: ops.softmax(x @ y), floats("n", 8), floats(8, 8)), precision)
    assert (plan.hint, plan.unsupported) == (hint, {})


def test_threads_are_those_of_the_session() -> None:
    assert openvino.options("bf16", 2)["load_config"].count('"INFERENCE_NUM_THREADS": 2') == 1
    assert "THREADS" not in openvino.options("bf16")["load_config"]


def test_computed_sizes_are_folded_when_the_input_has_known_dims() -> None:
    def patches(x: Symbol) -> Symbol:
        emit, build = x.graph.build.emit, x.graph.build
        sizes = emit("Shape", (x,), ints(2))
        size = emit("Gather", (sizes, build.scalar(1, D.int64)), ints(), {"axis": 0})
        count = emit("Div", (size, build.scalar(4, D.int64)), ints())
        return ops.reshape(x, [-1, 8]) * ops.cast(count, D.float32)

    graph = built(patches, floats("n", 16))
    lowered = lower(graph, "openvino", optimize="all")
    assert not findings(lowered, legality("openvino")).unsupported
    assert "Div" in findings(lower(graph, "openvino"), legality("openvino")).unsupported


def test_sum_by_a_product_with_a_filled_column_is_bounded() -> None:
    def total(mask: Symbol) -> Symbol:
        emit, build = mask.graph.build.emit, mask.graph.build
        sizes = emit("Shape", (mask,), ints(1), {"start": 1, "end": 2})
        sizes = emit("Concat", (sizes, build.vector([1])), ints(2), {"axis": 0})
        column = emit("ConstantOfShape", (sizes,), ints("m", 1), {"value": np.ones(1, np.int64)})
        return emit("MatMul", (mask, column), ints("n", 1))

    plan = planned(built(total, ints("n", "m")))
    assert plan.unsupported == {}
    assert {norm for bound in plan.bounds for norm in bound.norms} >= {("total", "x0")}


def test_widened_graph_gives_the_same_in_float32() -> None:
    def expression(x: Symbol) -> list[Symbol]:
        y = ops.exp(x.cast(D.float16) * 2) + x.graph.constant(np.arange(4, dtype=np.float16))
        return [y, y.cast(D.float32)]

    x = np.linspace(-1, 1, 4, dtype=np.float32)
    graph = Graph("named", {"x": floats(4)})
    graph.output(**dict(zip(("narrow", "full"), expression(graph["x"]), strict=True)))
    wide = planned(graph, "fast").lowered
    assert {name: str(t) for name, t in wide.output_types.items()} == {"narrow": "float16[4]", "full": "float32[4]"}
    narrow, full = gc.InferenceSession().load(wide)(x)
    np.testing.assert_allclose(full, np.exp(x * 2) + np.arange(4, dtype=np.float32), rtol=1e-6)
    np.testing.assert_array_equal(narrow, full.astype(np.float16))


# Integers


def test_what_is_fed_is_bounded_by_what_the_graph_makes_of_it() -> None:
    plan = planned(built(lambda ids, mask: (ops.sum(mask, axis=1), ids[:, 1:]), ints("b", "s"), ints("b", "s")))
    assert plan.hint == "f32"
    norms = {norm: factor for bound in plan.bounds for norm, factor in bound.norms.items()}
    assert norms["total", "x1"] == 128  # float32 holds 2^24
    assert norms["greatest", "x0"] == 1


def test_sums_of_integers_add_their_bounds() -> None:
    graph = lower(built(lambda x, y: x * 5 + y - 3, ints("n"), ints("n")), "openvino")
    result = findings(graph, legality("openvino"))
    assert not result.unsupported
    greatest = max((b for b in result.bounds if len(b.norms) == 2), key=lambda b: b.constant)
    assert greatest.constant == 3
    assert dict(greatest.norms) == {("greatest", "x0"): 5, ("greatest", "x1"): 1}


def test_constants_beyond_32_bits_are_the_cpu_providers() -> None:
    plan = planned(built(lambda x: ops.where(x > 0, x, 1 << 40), ints("n")))
    assert plan.hint == ""
    assert plan.unsupported


class _Session:
    """A substitute of a session that records its calls."""

    def __init__(self, name: str, answers: list[Any]) -> None:
        self.name, self.answers, self._sess = name, answers, self

    def get_outputs(self) -> list[Any]:
        return [onnx.ValueInfoProto(name=name) for name in ("y", "workaround.0.actual", "workaround.0.stated")]

    def get_providers(self) -> list[str]:
        return [self.name]

    def run(self, names: list[str], feed: Any, options: Any = None) -> list[Any]:
        return [self.name, *self.answers][: len(names)]


def test_call_goes_to_the_cpu_when_a_number_or_a_size_does_not_fit() -> None:
    graph = built(lambda x: (ops.sum(x), x), ints("n"))
    plan = planned(graph)
    guarded = openvino.Plan(plan.lowered, "f32", {}, plan.bounds, (("workaround.0.actual", "workaround.0.stated"),))
    same = [np.array([3]), np.array([3])]

    def compiled(answers: list[Any]) -> openvino.Compiled:
        return openvino.Compiled(_Session("device", answers), guarded, lambda: _Session("host", []))

    small, large = {"x0": np.array([1, 2])}, {"x0": np.array([int(LIMIT), 2])}
    assert compiled(same).run(["y"], small) == ["device"]
    assert compiled(same).run(["y"], {"x0": np.zeros(0, np.int64)}) == ["host"]
    assert compiled(same).run(["y"], large) == ["host"]
    assert compiled(same).run(["y"], {"x0": np.full(300, 1 << 20)}) == ["host"]
    assert compiled([np.array([3]), np.array([4])]).run(["y"], small) == ["host"]
    assert [o.name for o in compiled(same).get_outputs()] == ["y"]
    assert compiled(same).get_providers() == [openvino.PROVIDER, "device"]


def test_call_goes_to_the_cpu_when_an_operand_has_no_elements() -> None:
    plan = planned(built(ops.relu, floats("n")))
    compiled = openvino.Compiled(_Session("device", []), plan, lambda: _Session("host", []))
    assert compiled.run(["y"], {"x0": np.zeros(2, np.float32)}) == ["device"]
    assert compiled.run(["y"], {"x0": np.zeros(0, np.float32)}) == ["host"]
    plan = planned(built(ops.relu, TensorType(D.float64, ["n"])))
    compiled = openvino.Compiled(_Session("host", []), plan, lambda: _Session("another", []))
    assert compiled.run(["y"], {"x0": np.zeros(0)}) == ["host"]


def test_call_that_omits_an_input_with_a_default() -> None:
    def compiled(default: list[int]) -> openvino.Compiled:
        types = {"x": ints("n"), "y": ints("m")}
        graph = Graph("g", types, defaults={"y": np.array(default, np.int64)})
        graph.output(graph["x"] + ops.sum(graph["y"]))
        return openvino.Compiled(_Session("device", []), planned(graph), lambda: _Session("host", []))

    small = {"x": np.array([1, 2])}
    assert compiled([3]).run(["y"], small) == ["device"]
    assert compiled([int(LIMIT)]).run(["y"], small) == ["host"]
    assert compiled([int(LIMIT)]).run(["y"], {**small, "y": np.array([3])}) == ["device"]
    assert compiled([]).run(["y"], small) == ["host"]


# What is done to graphs


def test_workarounds_become_outputs() -> None:
    graph = lower(built(lambda x, y: ops.rebind(x, ["m"]) + y, floats("n"), floats("m")), "openvino")
    result, pairs = without_checks(graph)
    assert len(pairs) == 1
    assert [name for name, _ in result.named_outputs][1:] == list(pairs[0])
    assert "Where" not in operators(result)
    assert not findings(result, legality("openvino")).unsupported
    plain = lower(built(lambda x: x + 1, floats("n")), "openvino")
    assert without_checks(plain) == (plain, ())


def test_softmax_that_is_spelt_out_is_the_operator_again() -> None:
    def attention(q: Symbol, mask: Symbol) -> Symbol:
        return ops.scaled_dot_product_attention(q, q, q, mask)

    graph = built(attention, floats(1, 2, 3, 4), TensorType(D.bool, [3, 3]))
    spelt = lower(graph, "openvino")
    changed = joined(spelt)
    assert operators(changed)["Softmax"] == 1
    assert "Exp" not in operators(changed)
    q = np.random.default_rng(0).standard_normal((1, 2, 3, 4)).astype(np.float32)
    mask = np.array([[1, 1, 0], [0, 0, 0], [1, 1, 1]], bool)
    (want,) = gc.InferenceSession().load(graph)(q, mask)
    (got,) = gc.InferenceSession().load(changed)(q, mask)
    np.testing.assert_allclose(got, want, atol=1e-6)
    assert not want[:, :, 1].any()


def test_exported_file_is_of_the_opset_that_the_package_takes() -> None:
    model = built(lambda x: ops.exp(x) / 3, floats("n")).to_onnx(target="openvino")
    assert [o.version for o in model.opset_import] <= [25]
    onnx.checker.check_model(model, full_check=True)


@pytest.mark.parametrize("dtype", [D.float64, D.bfloat16, D.int4], ids=str)
def test_export_raises_when_the_graph_is_not_whole(dtype: DType) -> None:
    with pytest.raises(GraphError, match="OpenVINO runs whole graphs") as caught:
        built(lambda x: x + x, TensorType(dtype, ["n"])).to_onnx(target="openvino")
    assert str(dtype) in str(caught.value)


def test_every_dtype_is_taken_or_refused_with_its_name() -> None:
    assert {D.bool, D.int32, D.int64, D.float32} == TAKEN


# On the provider

SAMPLE = ["Add", "IsNaN", "LayerNormalization", "MatMul", "Reshape", "Slice", "Softmax", "Where"]


def test_sample_of_the_table_is_what_the_provider_has() -> None:
    if not HAS_PROVIDER or not table_of("openvino").measures(onnxruntime.__version__):
        return
    result = sweeping.kernels(sweeping.sweep(sweeping.jobs(SAMPLE), openvino.PROVIDER))
    assert {op: frozenset(row) for op, row in result.items()} == {op: kernels("openvino")[op] for op in SAMPLE}


EXPRESSIONS: dict[str, Callable[[Symbol, Symbol], Any]] = {
    "extremes": lambda x, y: [ops.maximum(x, y), ops.minimum(x, y), ops.max(x, axis=0), ops.min(y, axis=0)],
    "comparisons": lambda x, y: [x > y, x >= y, x < y, x <= y, x == y, ops.is_nan(x)],
    "rectified": lambda x, y: [ops.relu(x), ops.exp(x), ops.sigmoid(x), ops.where(x > 0, x, y)],
    "arithmetic": lambda x, y: [x + y, x - y, x * y, ops.sqrt(ops.abs(x))],
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_numbers_are_those_of_the_cpu_on_the_provider(name: str) -> None:
    if not HAS_PROVIDER:
        return
    x = np.array([1, NAN, -INF, 0, INF, -2, 3e38, 1e-42], np.float32)
    graph = built(EXPRESSIONS[name], floats("n"), floats("n"))
    session = gc.InferenceSession("openvino")
    model = session.load(graph)
    assert not model.placement().left
    for got, want in zip(model(x, x[::-1].copy()), gc.InferenceSession().load(graph)(x, x[::-1].copy()), strict=True):
        np.testing.assert_allclose(got, want, rtol=5e-7)


def test_quotients_are_near_on_the_provider() -> None:
    if not HAS_PROVIDER:
        return
    random = np.random.default_rng(1)
    x, y = (np.ldexp(random.uniform(1, 2, 10000), random.integers(-60, 60, 10000)).astype(np.float32) for _ in "xy")
    (got,) = gc.InferenceSession("openvino").load(built(lambda a, b: a / b, floats("n"), floats("n")))(x, y)
    assert (np.abs(got - x.astype(np.float64) / y) <= 1.5 * np.spacing(np.abs(x / y))).all()


def test_placement_tells_why_a_graph_is_the_cpu_providers_on_the_provider() -> None:
    if not HAS_PROVIDER:
        return
    model = gc.InferenceSession("openvino").load(built(lambda x: ops.cumsum(x * x), ints("n")))
    remaining = model.placement().left
    assert remaining
    assert {o.provider for o in remaining} == {"CPUExecutionProvider"}
    (got,) = model(np.array([1 << 31, 3]))
    assert got.tolist() == [1 << 62, (1 << 62) + 9]


def test_large_integers_are_right_on_the_provider() -> None:
    if not HAS_PROVIDER:
        return
    model = gc.InferenceSession("openvino").load(built(lambda x: (ops.sum(x), x + 1), ints("n")))
    assert {o.operator for o in model.placement().left} <= {"ReduceSum"}
    for x in (np.arange(5), np.array([1 << 40, -(1 << 50)]), np.full(3, (1 << 31) - 1)):
        total, more = model(x)
        assert (total, more.tolist()) == (x.sum(), (x + 1).tolist())


def test_bound_model_gives_the_same_on_the_provider() -> None:
    if not HAS_PROVIDER:
        return
    model = gc.InferenceSession("openvino").load(built(lambda x: ops.tanh(x) * 2, floats("n")))
    bound = model.bind(n=4)
    for seed in range(3):
        x = np.random.default_rng(seed).standard_normal(4).astype(np.float32)
        np.testing.assert_array_equal(bound(x)[0], model(x)[0])


def test_sizes_that_are_not_as_stated_raise_on_the_provider() -> None:
    if not HAS_PROVIDER:
        return
    model = gc.InferenceSession("openvino").load(built(lambda x, y: ops.rebind(x, ["m"]) * y, floats("n"), floats("m")))
    assert not model.placement().left
    x = np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(model(x, x)[0], x * x)
    with pytest.raises(RunError, match="rebind"):
        model(x[:1], x)


def test_operands_without_elements_are_right_on_the_provider() -> None:
    if not HAS_PROVIDER:
        return
    session = gc.InferenceSession("openvino")
    product = session.load(built(lambda x, y: ops.einsum("ij,jk->ik", x, y), floats("i", "j"), floats("j", "k")))
    pool = session.load(built(lambda x: ops.avg_pool2d(x, 2, 2), floats("n", 4, 4, 1)))
    assert not product.placement().left
    x, y = np.ones((2, 0), np.float32), np.ones((0, 3), np.float32)
    np.testing.assert_array_equal(product(x, y)[0], np.zeros((2, 3)))
    np.testing.assert_array_equal(product(np.ones((2, 3), np.float32), np.ones((3, 1), np.float32))[0], [[3], [3]])
    bound = product.bind(i=2, j=0, k=3)
    np.testing.assert_array_equal(bound(x, y)[0], np.zeros((2, 3)))
    assert pool(np.ones((0, 4, 4, 1), np.float32))[0].shape == (0, 2, 2, 1)
