"""Configuration of models for Triton, from their types and the names of dims.

https://docs.nvidia.com/deeplearning/triton-inference-server/user-guide/docs/user_guide/model_configuration.html
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from graphcore.errors import GraphError, ModelError
from graphcore.ir.buffers import Buffer
from graphcore.ir.graph import Graph
from graphcore.ir.symbol import Symbol
from graphcore.ir.transform.rewrite import NOTE, attach, exposed, outputs_of
from graphcore.runtime.calls.batching import batching
from graphcore.scale.protocol.tensors import NAMES, to_bytes
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, Type

_TYPES = {dtype: f"TYPE_{name}" for dtype, name in NAMES.items()} | {DType.string: "TYPE_STRING"}

PROVIDERS = ("cpu", "cuda")
_IDLE_MICROSECONDS = 60_000_000
"""Time after which Triton frees the state of an idle sequence."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a deployment. Raises `GraphError` for invalid values.

    Attributes:
        batch: The maximum number of rows of a batch; 0 disables batching.
        instances: The number of copies of the model.
        provider: "cpu" or "cuda".
        wait: The number of microseconds that a request waits for others.
    """

    batch: int = 32
    instances: int = 1
    provider: str = "cpu"
    wait: int = 2000

    def __post_init__(self) -> None:
        """Check the values."""
        if self.batch < 0 or self.instances < 1 or self.wait < 0:
            raise GraphError(
                f"deploy: batch={self.batch}, instances={self.instances} or wait={self.wait} is out of range",
                help="batch must be at least 0, instances at least 1, and wait at least 0 microseconds",
            )
        if self.provider not in PROVIDERS:
            raise GraphError(f"deploy: unknown provider {self.provider!r:.40}", help=f"use {' or '.join(PROVIDERS)}")


def model_config(name: str, graph: Graph, settings: Settings) -> Message:
    """Return the configuration of a graph, as fields of Triton's ModelConfig.

    If every input and output starts with the batch dim, Triton batches requests. For a graph with buffers, Triton keeps
    the state of sequences. Raises `ModelError` for types that Triton does not have.
    """
    exposed_graph = exposed(graph)
    states = outputs_of(exposed_graph)
    types = {symbol.name: symbol.type for symbol in exposed_graph.inputs}
    inputs, outputs = _ends(exposed_graph)
    is_batched = settings.batch > 0 and not states and _is_batched(name, inputs, outputs)
    config: dict[str, object] = {
        "name": name,
        "platform": "onnxruntime_onnx",
        "max_batch_size": settings.batch if is_batched else 0,
        "input": [_tensor(name, n, t, is_batched) for n, t in inputs.items()],
        "output": [_tensor(name, n, t, is_batched) for n, t in outputs.items()],
    }
    if states:
        config["sequence_batching"] = {
            "max_sequence_idle_microseconds": _IDLE_MICROSECONDS,
            "direct": {},
            "state": [
                _state(name, n, out, types[n], graph.buffers[n].buffer) for n, out in states.items() if out is not None
            ],
        }
        unstored = [n for n, out in states.items() if out is None]
        if unstored:
            raise ModelError(
                f"deploy: {name}: buffer {unstored[0]!r} is never stored, but a state of Triton must be",
                help="make it a weight: graph.weight(name, array)",
            )
    elif is_batched:
        config["dynamic_batching"] = {"max_queue_delay_microseconds": settings.wait}
    kind = "KIND_GPU" if settings.provider == "cuda" else "KIND_CPU"
    config["instance_group"] = [{"count": settings.instances, "kind": Word(kind)}]
    config["version_policy"] = {"latest": {"num_versions": 2}}
    return config  # type: ignore[return-value]


def without_scalars(name: str, graph: Graph, settings: Settings) -> Graph:
    """Return a graph that Triton can serve: without batching, scalars become vectors of one element.

    Triton has scalars only as rows of a batch. A graph without such scalars is returned unchanged.
    """
    exposed_graph = exposed(graph)
    ends = {symbol.name: symbol.type for symbol in exposed_graph.inputs} | exposed_graph.output_types
    scalars = {n for n, t in ends.items() if isinstance(t, TensorType) and t.shape.is_ranked and t.rank == 0}
    if not scalars or (settings.batch > 0 and exposed_graph is graph and _is_batched(name, *_ends(exposed_graph))):
        return graph
    types = {s.name: TensorType(s.dtype, [1]) if s.name in scalars else s.type for s in exposed_graph.inputs}
    result = Graph(graph.name, types, promotion=graph.promotion)
    results = exposed_graph(*(result[n].reshape([]) if n in scalars else result[n] for n in types))
    listed = [results] if isinstance(results, Symbol) else [*results]
    named = zip(exposed_graph.output_types, listed, strict=True)
    result.output(**{n: value.reshape([1]) if n in scalars else value for n, value in named})
    if graph.buffers:
        result.metadata[NOTE] = exposed_graph.metadata[NOTE]
        attach(
            result, {n: _vector(state.buffer) if n in scalars else state.buffer for n, state in graph.buffers.items()}
        )
    return result


def _vector(buffer: Buffer) -> Buffer:
    """Return a buffer with one element in place of a scalar."""
    initial = None if buffer.initial is None else buffer.initial.reshape(1)
    return Buffer(buffer.type.dtype, [1], initial=initial, in_place=buffer.in_place)


def _ends(exposed_graph: Graph) -> tuple[dict[str, Type], dict[str, Type]]:
    """Return the inputs and outputs of an exposed graph, without buffers."""
    states = outputs_of(exposed_graph)
    inputs = {symbol.name: symbol.type for symbol in exposed_graph.inputs if symbol.name not in states}
    inputs = {name: type_ for name, type_ in inputs.items() if name not in exposed_graph.defaults}
    return inputs, {n: t for n, t in exposed_graph.output_types.items() if n not in states.values()}


def ensemble(name: str, graphs: Mapping[str, Graph], configs: Sequence[Message]) -> Message:
    """Return the configuration of an ensemble: models that run in order, connected by the names of values.

    Its inputs are those that no earlier model computes, its outputs those that no later model uses. Raises `ModelError`
    if types of a value differ, or if two models compute values of the same name.
    """
    sizes = {int(str(config["max_batch_size"])) for config in configs}
    inputs: dict[str, Message] = {}
    outputs: dict[str, Message] = {}
    used: set[str] = set()
    steps: list[Message] = []
    for config, graph in zip(configs, graphs.values(), strict=True):
        model = str(config["name"])
        if graph.buffers:
            raise ModelError(f"deploy: {model} has buffers, which an ensemble does not support", help="deploy it alone")
        for tensor in _tensors(config, "input"):
            label = str(tensor["name"])
            earlier = outputs.get(label) or inputs.get(label)
            if earlier is not None and earlier != _without_reshape(tensor):
                raise ModelError(
                    f"deploy: {label!r} is {_tensor_text(earlier)}, but input of {model} is {_tensor_text(tensor)}",
                    help="rename one of them: graphcore rename, or graph.rename",
                )
            if label in outputs:
                used.add(label)
            else:
                inputs[label] = _without_reshape(tensor)
        for tensor in _tensors(config, "output"):
            label = str(tensor["name"])
            if label in outputs or label in inputs:
                raise ModelError(
                    f"deploy: two values have the name {label!r}", help="rename one of them: graphcore rename"
                )
            outputs[label] = _without_reshape(tensor)
        maps = {
            f"{side}_map": [{"key": t["name"], "value": t["name"]} for t in _tensors(config, side)]
            for side in ("input", "output")
        }
        steps.append({"model_name": model, "model_version": -1, **maps})
    if len(sizes) > 1:
        raise ModelError(
            f"deploy: {name}: Triton can batch some of its models, but not all",
            help="give all of them a batch dim, or use --batch 0",
        )
    return {
        "name": name,
        "platform": "ensemble",
        "max_batch_size": sizes.pop(),
        "input": list(inputs.values()),
        "output": [tensor for label, tensor in outputs.items() if label not in used],
        "ensemble_scheduling": {"step": steps},
    }


def _tensors(config: Message, side: str) -> list[Message]:
    return list(config[side])  # type: ignore[arg-type]


def _without_reshape(tensor: Message) -> Message:
    """Return a tensor without `reshape`, which belongs to the models of an ensemble."""
    return {field: value for field, value in tensor.items() if field != "reshape"}


def _tensor_text(tensor: Message) -> str:
    dims = tensor["dims"]
    return f"{tensor['data_type']}{dims}"


def _is_batched(name: str, inputs: Mapping[str, Type], outputs: Mapping[str, Type]) -> bool:
    """Return True if the first axis of every input and output is the batch, of any size."""
    try:
        axes = batching(name, inputs, outputs)
    except (ModelError, GraphError):
        return False
    return axes.size is None and not axes.open and not any((*axes.inputs.values(), *axes.outputs.values()))


def _dims(type_: TensorType, drops_batch: bool) -> list[int]:
    dims = [int(dim) if dim.is_static else -1 for dim in type_.shape]
    return dims[1:] if drops_batch else dims


def _check_type(model: str, name: str, type_: Type) -> TensorType:
    if not isinstance(type_, TensorType) or type_.dtype not in _TYPES or not type_.shape.is_ranked:
        raise ModelError(
            f"deploy: {model}: {name!r} is {type_}, which Triton does not support",
            help="cast it in the graph: Triton has bool, integers of 8 to 64 bits, floats of 16 to 64 bits and strings",
        )
    if 0 in [int(dim) for dim in type_.shape if dim.is_static]:
        raise ModelError(
            f"deploy: {model}: {name!r} is {type_}, but a dim of Triton must be at least 1",
            help="remove it from the model",
        )
    return type_


def _tensor(model: str, name: str, type_: Type, drops_batch: bool) -> Message:
    tensor_type = _check_type(model, name, type_)
    dims = _dims(tensor_type, drops_batch)
    tensor: dict[str, object] = {"name": name, "data_type": Word(_TYPES[tensor_type.dtype]), "dims": dims}
    if not dims:  # a scalar: tensors of Triton have at least one dim
        tensor |= {"dims": [1], "reshape": {"shape": []}}
    return tensor  # type: ignore[return-value]


def _state(model: str, name: str, output: str, type_: Type, buffer: Buffer) -> Message:
    tensor_type = _check_type(model, name, type_)
    if not tensor_type.is_static:
        raise ModelError(
            f"deploy: {model}: buffer {name!r} is {tensor_type}, but a state of Triton must have a static shape",
            help="set the sizes of its dims: graphcore set-dims",
        )
    dims = _dims(tensor_type, False)
    kind = Word(_TYPES[tensor_type.dtype])
    initial_state: dict[str, object] = {"name": f"{name} begins", "data_type": kind, "dims": dims}
    initial_state |= {"zero_data": True} if buffer.initial is None else {"data_file": name}
    return {
        "input_name": name,
        "output_name": output,
        "data_type": kind,
        "dims": dims,
        "initial_state": [initial_state],  # type: ignore[list-item]
    }


def initial_states(graph: Graph) -> dict[str, bytes]:
    """Return the initial values of buffers, as Triton's files `initial_state/NAME` have them; zeros need no file."""
    states = {}
    for name, state in graph.buffers.items():
        if state.buffer.initial is not None:
            states[name] = to_bytes(state.buffer.initial, state.buffer.type.dtype)
    return states


# Protobuf's text format: fields by name, messages in braces, repeated fields one by one.
#
# https://protobuf.dev/reference/protobuf/textformat-spec/

Scalar: TypeAlias = "str | int | float | bool | Word"
Value: TypeAlias = "Scalar | Message | Sequence[Scalar | Message]"
Message: TypeAlias = Mapping[str, "Value"]


class Word(str):
    """A value of an enum, to_text without quotes."""


def to_text(message: Message) -> str:
    """Return a message in text format."""
    return "".join(f"{line}\n" for line in _lines(message, 0))


def _lines(message: Message, depth: int) -> Iterator[str]:
    for name, value in message.items():
        many = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
        for each in many:
            if isinstance(each, Mapping):
                yield f"{'  ' * depth}{name} {{"
                yield from _lines(each, depth + 1)
                yield f"{'  ' * depth}}}"
            else:
                yield f"{'  ' * depth}{name}: {_scalar(each)}"


def _scalar(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Word):
        return str(value)
    if isinstance(value, str):
        return '"' + "".join(map(_escape_byte, value.encode())) + '"'
    return repr(value)


def _escape_byte(byte: int) -> str:
    if byte in (0x22, 0x5C):
        return "\\" + chr(byte)
    return chr(byte) if 0x20 <= byte < 0x7F else f"\\{byte:03o}"
