"""Seeds of every format that is read, and mutations of their structure, each made from its number alone."""

from __future__ import annotations

import contextlib
import functools
import json
import random
import struct
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

import graphcore as gc
from graphcore import DType, Graph, TensorType
from tests.runtime import test_direct_ml as ml
from tests.support.mutant_seeds import REFUSED, seeds
from tests.support.mutants import BYTES, EXTREME, mutant

Source = tuple[str, str]
"""The kind of a file, and the name of a seed of it."""

LLAMA = {
    "model_type": "llama", "vocab_size": 64, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 32, "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0, "tie_word_embeddings": True, "hidden_act": "silu",
}  # fmt: skip


@functools.cache
def sources() -> dict[Source, bytes]:
    """Return the seeds by their kind and name."""
    results = {("model", name): content for name, content in seeds().items() if name not in REFUSED}
    for name, make in ml.TAKEN.items():
        results["model", f"ml {name}"] = bytes(make().SerializeToString())
    results["gguf", "plain"] = gguf()
    results["safetensors", "plain"] = safetensors()
    results["config", "llama"] = json.dumps(LLAMA).encode()
    for name, content in entries().items():
        results["cache", name] = content
    return results


def gguf() -> bytes:
    """Two tensors of floats, one of blocks, and metadata of several types."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    def row(name: str, dims: tuple[int, ...], kind: int, offset: int) -> bytes:
        return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)

    pairs = [
        text("general.alignment") + struct.pack("<II", 4, 32),
        text("general.name") + struct.pack("<I", 8) + text("small"),
        text("list") + struct.pack("<IIQ3i", 9, 5, 3, 1, 2, 3),
    ]
    rows = [row("w", (4, 2), 0, 0), row("h", (8,), 1, 32), row("q", (32, 2), 8, 64)]
    head = b"GGUF" + struct.pack("<IQQ", 3, len(rows), len(pairs)) + b"".join((*pairs, *rows))
    return head + bytes(-len(head) % 32) + bytes(range(160))


def safetensors() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.safetensors"
        gc.save_tensors(path, {"w": np.ones((3, 4), np.float32), "i": np.arange(5)}, {"format": "np"})
        return path.read_bytes()


def cached_graph() -> Graph:
    """The graph whose cache entries are changed."""
    graph = Graph("cached", {"x": TensorType(DType.float32, ["n", 16])})
    weight = np.arange(256, dtype=np.float32).reshape(16, 16) % 7
    graph.output(y=graph["x"] @ graph.weight("w", weight) + 1)
    return graph


def entries() -> dict[str, bytes]:
    """Return the files that a cache of `cached_graph` has, by their suffix."""
    with tempfile.TemporaryDirectory() as folder:
        gc.InferenceSession(intra_op_num_threads=1).load(cached_graph(), cache_dir=folder)
        return {path.suffix or path.name: path.read_bytes() for path in Path(folder).iterdir() if path.is_file()}


def mutated(source: Source, number: int) -> bytes:
    """Return the mutant of a number of a seed."""
    kind, _ = source
    content = sources()[source]
    rng = random.Random(number)
    if kind == "model":
        return _model(content, rng) if rng.random() < 0.6 else mutant(content, rng.getrandbits(48))
    if rng.random() < 0.4:
        data = bytearray(content)
        for _ in range(rng.choice((1, 1, 2, 4))):
            rng.choice(BYTES)(data, rng)
        return bytes(data)
    if kind == "config":
        return _json(content, rng)
    if kind == "safetensors":
        length = int.from_bytes(content[:8], "little")
        head = _json(content[8 : 8 + length], rng)
        return struct.pack("<Q", len(head)) + head + content[8 + length :]
    return _words(content, rng)


def _words(content: bytes, rng: random.Random) -> bytes:
    """Put extreme numbers where a file has lengths, counts, dims and offsets."""
    data = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 3))):
        size = rng.choice((4, 8))
        at = rng.randrange(max(1, len(data) - size))
        near = int.from_bytes(data[at : at + size], "little") + rng.choice((-1, 1))
        data[at : at + size] = (rng.choice([near, *EXTREME]) % (1 << 8 * size)).to_bytes(size, "little")
    return bytes(data)


def _json(content: bytes, rng: random.Random) -> bytes:
    value = json.loads(content)
    for _ in range(rng.choice((1, 1, 2, 3))):
        _json_field(value, rng)
    return json.dumps(value).encode()


def _json_field(value: Any, rng: random.Random) -> None:
    while True:
        keys = list(value) if isinstance(value, dict) else list(range(len(value)))
        if not keys:
            return
        key = rng.choice(keys)
        if isinstance(value[key], (dict, list)) and value[key] and rng.random() < 0.8:
            value = value[key]
            continue
        action = rng.randrange(4)
        if action == 0:
            del value[key]
        elif action == 1 and isinstance(value, dict):
            value[f"{key}{rng.choice(('', '_', '/..', chr(0)))}"] = value[rng.choice(keys)]
        else:
            odd: list[Any] = [
                None,
                True,
                "",
                "F32",
                "I64",
                "BOOL",
                [],
                {},
                1.5,
                -0.0,
                float("nan"),
                1e400,
                [[]],
                "x" * 300,
            ]
            value[key] = rng.choice([*odd, *EXTREME, value[rng.choice(keys)]])
        return


# Models


def _model(content: bytes, rng: random.Random) -> bytes:
    model = onnx.ModelProto.FromString(content)
    for _ in range(rng.choice((1, 1, 2, 3))):
        with contextlib.suppress(ValueError, TypeError, IndexError):  # of what a field or a model does not have
            rng.choice(MODEL)(model, rng)
    return bytes(model.SerializeToString())


def _graphs(model: onnx.ModelProto) -> list[Any]:
    """Return the graph, the bodies in it and the functions: whatever has nodes."""
    results: list[Any] = [model.graph, *model.functions]
    for graph in results:
        for node in graph.node:
            for attribute in node.attribute:
                results += [attribute.g] if attribute.HasField("g") else list(attribute.graphs)
    return results


def _node(model: onnx.ModelProto, rng: random.Random) -> Any:
    return rng.choice([node for graph in _graphs(model) for node in graph.node])


def _names(model: onnx.ModelProto) -> list[str]:
    return sorted({name for graph in _graphs(model) for node in graph.node for name in (*node.input, *node.output)})


def attribute_is_other(model: onnx.ModelProto, rng: random.Random) -> None:
    """Give an attribute of the operator's schema an extreme number, or a list of them."""
    node = _node(model, rng)
    expected = sorted(onnx.defs.get_schema(node.op_type, 20, node.domain).attributes) if _is_known(node) else []
    name = rng.choice([*expected, *(a.name for a in node.attribute)])
    results = [a for a in node.attribute if a.name != name]
    value = next((a for a in node.attribute if a.name == name), None)
    del node.attribute[:]
    node.attribute.extend(results)
    number = rng.choice(EXTREME)
    values: list[Any] = [
        number,
        float(number),
        [number],
        [number] * rng.choice((2, 4, 8)),
        [float(number)],
        "",
        "SAME_UPPER",
    ]
    if value is not None and value.ints:
        numbers = list(value.ints)
        numbers[rng.randrange(len(numbers))] = number
        values += [numbers, numbers, numbers, numbers[:-1], [*numbers, number]]
    elif value is not None and value.type == onnx.AttributeProto.INT:
        values = [number, number, number, value.i + 1, -value.i, *values]
    if rng.random() < 0.85:
        node.attribute.append(helper.make_attribute(name, rng.choice(values)))


def _is_known(node: Any) -> bool:
    return bool(onnx.defs.has(node.op_type, 20, node.domain))


def operands_are_in_another_order(model: onnx.ModelProto, rng: random.Random) -> None:
    node = _node(model, rng)
    names = list(node.input)
    action = rng.randrange(4)
    if action == 0:
        rng.shuffle(names)
    elif action == 1:
        names[rng.randrange(len(names))] = rng.choice([*_names(model), ""])
    elif action == 2:
        names.pop()
    else:
        names += rng.choice(([rng.choice(_names(model))], [""], ["", "", rng.choice(_names(model))]))
    del node.input[:]
    node.input.extend(names)


def results_are_more_or_unnamed(model: onnx.ModelProto, rng: random.Random) -> None:
    """Add results, which may be beyond the operator's schema, or take a name away."""
    node = _node(model, rng)
    if rng.random() < 0.3:
        node.output[rng.randrange(len(node.output))] = ""
    else:
        node.output.extend(rng.choice(("", "", f"surplus{i}")) for i in range(rng.choice((1, 1, 2, 5))))


def operator_is_other(model: onnx.ModelProto, rng: random.Random) -> None:
    """Let a node be another operator that takes as many operands."""
    node = _node(model, rng)
    count = len(node.input)
    fitting = sorted(
        {s.name for s in onnx.defs.get_all_schemas() if s.domain == node.domain and s.min_input <= count <= s.max_input}
    )
    node.op_type = rng.choice(fitting)


def initializer_is_other(model: onnx.ModelProto, rng: random.Random) -> None:
    """Give a constant other numbers, another dtype or other dims, such that it is a valid tensor."""
    tensors: list[Any] = [
        t for graph in _graphs(model) if isinstance(graph, onnx.GraphProto) for t in graph.initializer
    ]
    tensors += [a.t for graph in _graphs(model) for node in graph.node for a in node.attribute if a.HasField("t")]
    tensor = rng.choice(tensors)
    array = numpy_helper.to_array(tensor)
    action = rng.randrange(4)
    if action == 0:
        flat = array.reshape(-1).copy()
        other = rng.choice(EXTREME)
        flat[rng.randrange(flat.size)] = str(other) if array.dtype == object else np.array(other).astype(array.dtype)
        array = flat.reshape(array.shape)
    elif action == 1 and array.dtype != object:
        array = array.astype(rng.choice((np.float32, np.int64, np.int32, np.float64, np.bool_, np.uint8, np.float16)))
    elif action == 2:
        array = array.reshape(rng.choice(((-1,), (1, *array.shape), (*array.shape, 1), array.shape[::-1])))
    else:
        array = array[:0] if array.ndim and rng.random() < 0.5 else np.concatenate([array, array])
    tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array), tensor.name))


def type_is_other(model: onnx.ModelProto, rng: random.Random) -> None:
    """Give a value of the file another dtype or other dims."""
    values = [
        v for graph in _graphs(model) if isinstance(graph, onnx.GraphProto) for v in (*graph.input, *graph.output)
    ]
    kind = rng.choice(values).type.tensor_type
    action = rng.randrange(5)
    if action == 4:  # as exporters write dims that they do not know
        for dim in kind.shape.dim:
            dim.dim_value = -1 if rng.random() < 0.7 else dim.dim_value
    elif action == 0:
        kind.elem_type = rng.choice(list(onnx.TensorProto.DataType.values()))
    elif action == 1:
        kind.shape.dim[rng.randrange(len(kind.shape.dim))].dim_value = rng.choice(EXTREME)
    elif action == 2:
        kind.shape.dim.add().dim_param = "n"
    else:
        kind.shape.dim[rng.randrange(len(kind.shape.dim))].dim_param = rng.choice(("n", "m", ""))


def node_stands_in_a_body(model: onnx.ModelProto, rng: random.Random) -> None:
    """Put a node into both branches of an If."""
    at = rng.randrange(len(model.graph.node))
    node = model.graph.node[at]
    branches = []
    for branch in ("then", "else"):
        inner = onnx.NodeProto.FromString(node.SerializeToString())
        outputs = [f"{branch}_{name}" for name in node.output]
        del inner.output[:]
        inner.output.extend(outputs)
        branches.append(helper.make_graph([inner], branch, [], [onnx.ValueInfoProto(name=n) for n in outputs]))
    condition = numpy_helper.from_array(np.array(rng.random() < 0.5), "_condition")
    model.graph.initializer.append(condition)
    choice = helper.make_node("If", ["_condition"], list(node.output), then_branch=branches[0], else_branch=branches[1])
    node.CopyFrom(choice)


def node_is_a_function(model: onnx.ModelProto, rng: random.Random) -> None:
    """Put a node into a function of the model, and call that."""
    node = rng.choice(model.graph.node)
    imports = list(model.opset_import)
    inner = onnx.NodeProto.FromString(node.SerializeToString())
    operands = sorted({name for name in node.input if name})
    function = helper.make_function(
        "drawn", f"made{len(model.functions)}", operands, list(node.output), [inner], imports
    )
    model.functions.append(function)
    if all(o.domain != "drawn" for o in model.opset_import):
        model.opset_import.append(helper.make_opsetid("drawn", 1))
    node.CopyFrom(helper.make_node(function.name, operands, list(node.output), domain="drawn"))


def node_is_twice_or_not_there(model: onnx.ModelProto, rng: random.Random) -> None:
    graph = rng.choice(_graphs(model))
    at = rng.randrange(len(graph.node))
    if rng.random() < 0.5:
        del graph.node[at]
        return
    copied = graph.node.add()
    copied.CopyFrom(graph.node[at])
    for i, name in enumerate(copied.output):
        copied.output[i] = f"{name}_again"
    later = rng.choice(list(graph.node))
    if later.input and copied.output:
        later.input[rng.randrange(len(later.input))] = copied.output[0]


MODEL: list[Callable[[onnx.ModelProto, random.Random], None]] = [
    attribute_is_other, attribute_is_other, attribute_is_other, operands_are_in_another_order, operator_is_other,
    results_are_more_or_unnamed,
    initializer_is_other, initializer_is_other, type_is_other, node_stands_in_a_body, node_is_a_function,
    node_is_twice_or_not_there,
]  # fmt: skip
