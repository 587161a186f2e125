"""The tasks of docs/howto/edit_model.md on models that others trained: the same numbers as those of the file."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import onnxruntime
import pytest

import graphcore as gc
from graphcore import Graph, Symbol, TensorType, ops
from graphcore.ir.symbol import Constant
from graphcore.ir.transform.walk import walk
from tests.support.trained import Trained, trained

__all__ = ["trained"]


@functools.cache
def plain(trained: Trained) -> list[Any]:
    """Return the results of bare onnxruntime for the file and `trained.feeds()`."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(trained.file(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, trained.feeds()))


@functools.cache
def unchanged(trained: Trained) -> list[Any]:
    """Return the results of the graph of the file on `trained.feeds()`."""
    return ran(trained.graph(), trained.feeds())


def ran(graph: Graph, feeds: dict[str, Any]) -> list[Any]:
    return [*gc.InferenceSession(intra_op_num_threads=1).load(graph)(**feeds)]


def assert_near(result: list[Any], wanted: list[Any]) -> None:
    """Equal but for the order in which kernels add: a fusion or a static shape may choose another one."""
    for a, b in zip(result, wanted, strict=True):
        assert a.shape == b.shape
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


def inputs_of(graph: Graph) -> dict[str, Any]:
    return {s.name: s.type for s in graph.inputs}


def listed(result: Any) -> list[Symbol]:
    return [result] if isinstance(result, Symbol) else [*result]


@pytest.mark.parametrize("as_function", [False, True])
def test_a_called_model_has_its_nodes_and_numbers(trained: Trained, as_function: bool) -> None:
    model, feeds = trained.graph(), trained.feeds()
    g = Graph("caller", {name.replace(":", "_"): type_ for name, type_ in inputs_of(model).items()})
    g.output(*listed(model(*g.inputs, as_function=as_function)))
    assert as_function or len(g.nodes) == len(model.nodes)
    arrays = {name.replace(":", "_"): array for name, array in feeds.items()}
    for item, wanted in zip(ran(g, arrays), unchanged(trained), strict=True):
        np.testing.assert_array_equal(item, wanted)
    assert_near(unchanged(trained), plain(trained))


def test_a_composed_model_costs_what_the_model_costs(trained: Trained) -> None:
    model, feeds = trained.graph(), trained.feeds()
    before = Graph("before", inputs_of(model))
    before.output(**{f"{s.name}_given": s * 1 if s.dtype.is_float else s + 0 for s in before.inputs})
    whole = gc.compose(before, model, {f"{s.name}_given": s.name for s in model.inputs})
    assert len(whole.nodes) == len(before.nodes) + len(model.nodes)
    assert_near(ran(whole, feeds), plain(trained))


def test_two_parts_of_a_model_give_what_it_gives(trained: Trained) -> None:
    model, feeds = trained.graph(), trained.feeds()
    cut = next(
        node.outputs[0]
        for node in model.nodes[len(model.nodes) // 2 :]
        if isinstance(node.outputs[0].type, TensorType) and not node.outputs[0].dtype.is_integer
    )
    first = model.extract(None, {"middle": cut})
    needed = [s.name for s in model.inputs]
    second = model.extract([cut, *needed], [*model.output_types])
    (middle,) = ran(first, {s.name: feeds[s.name] for s in first.inputs})
    results = {s.name: feeds.get(s.name, middle) for s in second.inputs}
    assert_near(ran(second, results), unchanged(trained))


def test_a_renamed_model_has_other_names_and_the_same_numbers(trained: Trained) -> None:
    model, feeds = trained.graph(), trained.feeds()
    names = {s.name: f"in_{i}" for i, s in enumerate(model.inputs)}
    names |= {name: f"out_{i}" for i, name in enumerate(model.output_types)}
    graph = model.rename(values=names)
    assert [*graph.output_types] == [names[n] for n in model.output_types]
    assert_near(ran(graph, {names[n]: array for n, array in feeds.items()}), plain(trained))
    proto = graph.to_onnx()
    assert [i.name for i in proto.graph.input] == [names[s.name] for s in model.inputs]


def test_static_dims_are_known_everywhere_and_change_no_number(trained: Trained) -> None:
    model, feeds = trained.graph(), trained.feeds()
    graph = model.with_dims({name: array.shape for name, array in feeds.items()})
    for (name, type_), wanted in zip(graph.output_types.items(), plain(trained), strict=True):
        assert isinstance(type_, TensorType)
        assert all(d.is_dynamic or d == n for d, n in zip(type_.shape, wanted.shape, strict=True)), name
    assert_near(ran(graph, feeds), plain(trained))


def test_static_dims_become_names_again(trained: Trained) -> None:
    model, feeds = trained.graph(), trained.feeds()
    fixed = model.with_dims({name: array.shape for name, array in feeds.items()})
    first = next(iter(feeds))
    free = {
        name: ["batch" if i == 0 and name == first else int(n) for i, n in enumerate(array.shape)]
        for name, array in feeds.items()
    }
    if len(feeds) > 1:  # a state has a row for each sequence
        free = {
            name: ["batch" if n == feeds[first].shape[0] and i == (name != first) else n for i, n in enumerate(sizes)]
            for name, sizes in free.items()
        }
    graph = fixed.with_dims(free)
    assert graph[first].shape[0] == "batch"
    assert_near(ran(graph, feeds), plain(trained))


def test_other_outputs_inputs_and_constants(trained: Trained) -> None:
    model, feeds = trained.graph(), trained.feeds()
    wanted = dict(zip(model.output_types, plain(trained), strict=True))
    inner = model.nodes[3].outputs[0]
    backwards = [*reversed([*wanted])]
    graph = model.with_outputs(*backwards, inner=inner)
    assert_near(ran(graph, feeds)[:-1], [wanted[name] for name in backwards])
    turned = model.with_inputs(*reversed([s.name for s in model.inputs]))
    assert [s.name for s in turned.inputs] == [s.name for s in model.inputs][::-1]
    first = next(iter(feeds))
    bound = model.with_constants({first: feeds[first]})
    assert first not in {s.name for s in bound.inputs}
    assert_near(ran(bound, {n: a for n, a in feeds.items() if n != first}), [*wanted.values()])


def test_weights_are_replaced_and_made_inputs(trained: Trained) -> None:
    model, feeds = trained.graph(), trained.feeds()
    named = {s.name: s.producer.array for s in model.symbols if isinstance(s.producer, Constant) and s.given_name}
    name = max(named, key=lambda name: named[name].size)
    array = named[name]
    doubled = model.with_weights({name: array * 2})
    assert model[name].producer.array is array, "the old graph stays"  # type: ignore[union-attr]
    as_input = model.with_inputs(*(s.name for s in model.inputs), name)
    assert name not in as_input.weights
    assert_near(ran(as_input, {**feeds, name: array}), plain(trained))
    assert_near(ran(as_input, {**feeds, name: array * 2}), ran(doubled, feeds))


def test_a_value_and_all_nodes_of_an_operator_are_replaced(trained: Trained) -> None:
    model, feeds = trained.graph(), trained.feeds()
    wanted = plain(trained)
    values = (s for node in model.nodes for s in node.outputs if isinstance(s.type, TensorType))
    value = next(s for s in values if s.dtype.is_float)
    assert_near(ran(model.replace(value, lambda v: (v + v) / 2), feeds), wanted)
    common = ("Relu", "Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid", "Softmax")
    operator = next(node.op_type for node in walk(model) if node.op_type in common)
    count = sum(node.op_type == operator for node in walk(model))
    assert len(model.find_all(operator)) == count
    graph = model.replace_all(operator, lambda x: ops.where(x == x, x, x))
    assert not any(node.op_type == operator for node in walk(graph))
    assert [str(t) for t in graph.output_types.values()] == [str(t) for t in model.output_types.values()]
    assert [a.shape for a in ran(graph, feeds)] == [a.shape for a in wanted]


def test_what_differs_is_what_was_changed(trained: Trained) -> None:
    model = trained.graph()
    assert not model.diff(Graph.load(trained.file()))
    named = {s.name: s.producer.array for s in model.symbols if isinstance(s.producer, Constant) and s.given_name}
    name = max(named, key=lambda name: named[name].size)
    changed = model.diff(model.with_weights({name: named[name] + 1}))
    assert [weight.name for weight in changed.weights if weight.kind == "~"] == [name]
    assert not changed.nodes
    first = next(iter(model.output_types))
    assert [each.name for each in model.diff(model.rename(values={first: "other"})).outputs]


NOT_FOLDED = {"silero-vad", "silero-vad-static", "dnsmos", "basic-pitch"}
"""The models whose input goes elsewhere than to a product: into bodies, a Pad, several readers."""


def test_preprocessing_folds_into_the_model(trained: Trained) -> None:
    model, feeds = trained.graph(), trained.feeds()
    first = next(s for s in model.inputs if s.dtype.is_float) if any(s.dtype.is_float for s in model.inputs) else None
    if first is None:
        return
    before = Graph("before", {"raw": first.type})
    before.output(**{f"{first.name}_given": before["raw"] * 0.5})
    whole = gc.compose(before, model, {f"{first.name}_given": first.name})
    fed = {("raw" if name == first.name else name): a * 2 if name == first.name else a for name, a in feeds.items()}
    wanted = ran(whole, fed)
    if trained.label in NOT_FOLDED:
        with pytest.raises(gc.GraphcoreError, match="nothing is folded: "):
            whole.fold_preprocessing()
        return
    graph = whole.fold_preprocessing()
    assert len(graph.nodes) == len(whole.nodes) - 1
    assert_near(ran(graph, fed), wanted)
