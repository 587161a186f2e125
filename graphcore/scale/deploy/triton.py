"""The configuration of a model for Triton, from its types and the names of its dims.

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
from graphcore.scale.protocol.tensors import to_bytes
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, Type

_TYPES: dict[DType, str] = {
    DType.bool: "TYPE_BOOL",
    DType.uint8: "TYPE_UINT8",
    DType.uint16: "TYPE_UINT16",
    DType.uint32: "TYPE_UINT32",
    DType.uint64: "TYPE_UINT64",
    DType.int8: "TYPE_INT8",
    DType.int16: "TYPE_INT16",
    DType.int32: "TYPE_INT32",
    DType.int64: "TYPE_INT64",
    DType.float16: "TYPE_FP16",
    DType.float32: "TYPE_FP32",
    DType.float64: "TYPE_FP64",
    DType.string: "TYPE_STRING",
    DType.bfloat16: "TYPE_BF16",
}

PROVIDERS = ("cpu", "cuda")
_IDLE_MICROSECONDS = 60_000_000
"""The time after which Triton frees the state of a sequence that sends nothing."""


@dataclass(frozen=True, slots=True)
class Settings:
    """batch: rows of a batch at most, 0 for no batches. instances: copies of the model. wait: microseconds that a
    request waits for others."""

    batch: int = 32
    instances: int = 1
    provider: str = "cpu"
    wait: int = 2000

    def __post_init__(self) -> None:
        """Raise `GraphError` for numbers that make no sense, and for another provider."""
        if self.batch < 0 or self.instances < 1 or self.wait < 0:
            raise GraphError(
                f"deploy: batch={self.batch}, instances={self.instances} and wait={self.wait} make no sense",
                help="give a batch from 0 on, instances from 1 on, and microseconds from 0 on",
            )
        if self.provider not in PROVIDERS:
            raise GraphError(
                f"deploy: there is no provider {self.provider!r:.40}", help=f"use {' or '.join(PROVIDERS)}"
            )


def configured(name: str, graph: Graph, settings: Settings) -> Message:
    """Return the configuration of a graph, as fields of Triton's ModelConfig.

    Where every input and output begins with the batch dim it is left to Triton, which puts requests together; a graph
    with buffers gets sequences, whose state Triton keeps. Raises `ModelError` for types that Triton has not.
    """
    shown = exposed(graph)
    states = outputs_of(shown)
    types = {symbol.name: symbol.type for symbol in shown.inputs}
    inputs, outputs = _ends(shown)
    is_batched = settings.batch > 0 and not states and _is_batched(name, inputs, outputs)
    made: dict[str, object] = {
        "name": name,
        "platform": "onnxruntime_onnx",
        "max_batch_size": settings.batch if is_batched else 0,
        "input": [_tensor(name, n, t, is_batched) for n, t in inputs.items()],
        "output": [_tensor(name, n, t, is_batched) for n, t in outputs.items()],
    }
    if states:
        made["sequence_batching"] = {
            "max_sequence_idle_microseconds": _IDLE_MICROSECONDS,
            "direct": {},
            "state": [
                _state(name, n, out, types[n], graph.buffers[n].buffer) for n, out in states.items() if out is not None
            ],
        }
        kept = [n for n, out in states.items() if out is None]
        if kept:
            raise ModelError(
                f"deploy: {name}: buffer {kept[0]!r} is read and never stored, which no state of Triton is",
                help="make it a weight: graph.weight(name, array)",
            )
    elif is_batched:
        made["dynamic_batching"] = {"max_queue_delay_microseconds": settings.wait}
    kind = "KIND_GPU" if settings.provider == "cuda" else "KIND_CPU"
    made["instance_group"] = [{"count": settings.instances, "kind": Word(kind)}]
    made["version_policy"] = {"latest": {"num_versions": 2}}
    return made  # type: ignore[return-value]


def fitted(name: str, graph: Graph, settings: Settings) -> Graph:
    """Return a graph that Triton serves: where it puts no requests together, scalars are vectors of one element.

    Triton has scalars as rows of a batch alone. A graph without such scalars is returned as it is.
    """
    shown = exposed(graph)
    ends = {symbol.name: symbol.type for symbol in shown.inputs} | shown.output_types
    scalars = {n for n, t in ends.items() if isinstance(t, TensorType) and t.shape.is_ranked and t.rank == 0}
    if not scalars or (settings.batch > 0 and shown is graph and _is_batched(name, *_ends(shown))):
        return graph
    types = {s.name: TensorType(s.dtype, [1]) if s.name in scalars else s.type for s in shown.inputs}
    made = Graph(graph.name, types, promotion=graph.promotion)
    results = shown(*(made[n].reshape([]) if n in scalars else made[n] for n in types))
    listed = [results] if isinstance(results, Symbol) else [*results]
    named = zip(shown.output_types, listed, strict=True)
    made.output(**{n: value.reshape([1]) if n in scalars else value for n, value in named})
    if graph.buffers:
        made.metadata[NOTE] = shown.metadata[NOTE]
        attach(made, {n: _vector(held.buffer) if n in scalars else held.buffer for n, held in graph.buffers.items()})
    return made


def _vector(buffer: Buffer) -> Buffer:
    """Return a buffer of one element in place of a scalar."""
    initial = None if buffer.initial is None else buffer.initial.reshape(1)
    return Buffer(buffer.type.dtype, [1], initial=initial, in_place=buffer.in_place)


def _ends(shown: Graph) -> tuple[dict[str, Type], dict[str, Type]]:
    """Return the inputs and outputs of an exposed graph that are no buffers."""
    states = outputs_of(shown)
    inputs = {symbol.name: symbol.type for symbol in shown.inputs if symbol.name not in states}
    return inputs, {n: t for n, t in shown.output_types.items() if n not in states.values()}


def ensemble(name: str, graphs: Mapping[str, Graph], configs: Sequence[Message]) -> Message:
    """Return the configuration of models that run one after another, the outputs of each by name the inputs of later
    ones.

    Inputs of the whole are those that no earlier model gives, outputs those that no later one takes. Raises
    `ModelError` where a value has another type where it is taken, and where two models give one of the same name.
    """
    sizes = {int(str(config["max_batch_size"])) for config in configs}
    taken: dict[str, Message] = {}
    given: dict[str, Message] = {}
    used: set[str] = set()
    steps: list[Message] = []
    for config, graph in zip(configs, graphs.values(), strict=True):
        model = str(config["name"])
        if graph.buffers:
            raise ModelError(f"deploy: {model} has buffers, which no step of an ensemble has", help="deploy it alone")
        for tensor in _tensors(config, "input"):
            label = str(tensor["name"])
            known = given.get(label) or taken.get(label)
            if known is not None and known != _plain(tensor):
                raise ModelError(
                    f"deploy: {label!r} is {_shown(known)}, and {model} takes {_shown(tensor)}",
                    help="rename one of them: graphcore rename, or graph.rename",
                )
            if label in given:
                used.add(label)
            else:
                taken[label] = _plain(tensor)
        for tensor in _tensors(config, "output"):
            label = str(tensor["name"])
            if label in given or label in taken:
                raise ModelError(f"deploy: two models give {label!r}", help="rename one of them: graphcore rename")
            given[label] = _plain(tensor)
        maps = {
            f"{side}_map": [{"key": t["name"], "value": t["name"]} for t in _tensors(config, side)]
            for side in ("input", "output")
        }
        steps.append({"model_name": model, "model_version": -1, **maps})
    if len(sizes) > 1:
        raise ModelError(
            f"deploy: {name}: of its models some are batched by Triton and some are not",
            help="give all of them a batch dim, or --batch 0",
        )
    return {
        "name": name,
        "platform": "ensemble",
        "max_batch_size": sizes.pop(),
        "input": list(taken.values()),
        "output": [tensor for label, tensor in given.items() if label not in used],
        "ensemble_scheduling": {"step": steps},
    }


def _tensors(config: Message, side: str) -> list[Message]:
    return list(config[side])  # type: ignore[arg-type]


def _plain(tensor: Message) -> Message:
    """Return a tensor as an ensemble has it, whose models reshape for themselves."""
    return {field: value for field, value in tensor.items() if field != "reshape"}


def _shown(tensor: Message) -> str:
    dims = tensor["dims"]
    return f"{tensor['data_type']}{dims}"


def _is_batched(name: str, inputs: Mapping[str, Type], outputs: Mapping[str, Type]) -> bool:
    """Return whether the first axis of every input and output is the batch, and of any size."""
    try:
        found = batching(name, inputs, outputs)
    except (ModelError, GraphError):
        return False
    return found.size is None and not found.open and not any((*found.inputs.values(), *found.outputs.values()))


def _dims(type_: TensorType, drops_batch: bool) -> list[int]:
    dims = [int(dim) if dim.is_static else -1 for dim in type_.shape]
    return dims[1:] if drops_batch else dims


def _typed(model: str, name: str, type_: Type) -> TensorType:
    if not isinstance(type_, TensorType) or type_.dtype not in _TYPES or not type_.shape.is_ranked:
        raise ModelError(
            f"deploy: {model}: {name!r} is {type_}, which Triton has not",
            help="cast it in the graph: Triton has bool, integers of 8 to 64 bits, floats of 16 to 64 and text",
        )
    if 0 in [int(dim) for dim in type_.shape if dim.is_static]:
        raise ModelError(
            f"deploy: {model}: {name!r} is {type_}, and a dim of Triton is 1 at least", help="leave it out of the model"
        )
    return type_


def _tensor(model: str, name: str, type_: Type, drops_batch: bool) -> Message:
    known = _typed(model, name, type_)
    dims = _dims(known, drops_batch)
    made: dict[str, object] = {"name": name, "data_type": Word(_TYPES[known.dtype]), "dims": dims}
    if not dims:  # Triton's models have at least one dim, and ONNX's have scalars
        made |= {"dims": [1], "reshape": {"shape": []}}
    return made  # type: ignore[return-value]


def _state(model: str, name: str, output: str, type_: Type, buffer: Buffer) -> Message:
    known = _typed(model, name, type_)
    if not known.is_static:
        raise ModelError(
            f"deploy: {model}: buffer {name!r} is {known}, and a state of Triton has one size",
            help="give its dims sizes: graphcore set-dims",
        )
    dims = _dims(known, False)
    kind = Word(_TYPES[known.dtype])
    begins: dict[str, object] = {"name": f"{name} begins", "data_type": kind, "dims": dims}
    begins |= {"zero_data": True} if buffer.initial is None else {"data_file": name}
    return {"input_name": name, "output_name": output, "data_type": kind, "dims": dims, "initial_state": [begins]}  # type: ignore[list-item]


def initial_states(graph: Graph) -> dict[str, bytes]:
    """Return what the buffers of a graph hold at first, as Triton's `initial_state/NAME` files have it; those of zeros
    have none."""
    made = {}
    for name, held in graph.buffers.items():
        if held.buffer.initial is not None:
            made[name] = to_bytes(held.buffer.initial, held.buffer.type.dtype)
    return made


# Protobuf's text format, written: fields by name, messages in braces, repeated fields again and again.
#
# https://protobuf.dev/reference/protobuf/textformat-spec/

Scalar: TypeAlias = "str | int | float | bool | Word"
Value: TypeAlias = "Scalar | Message | Sequence[Scalar | Message]"
Message: TypeAlias = Mapping[str, "Value"]


class Word(str):
    """A value of an enum, which has no quotes."""


def written(message: Message) -> str:
    """Return a message as text."""
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
        return '"' + "".join(map(_escaped, value.encode())) + '"'
    return repr(value)


def _escaped(byte: int) -> str:
    if byte in (0x22, 0x5C):
        return "\\" + chr(byte)
    return chr(byte) if 0x20 <= byte < 0x7F else f"\\{byte:03o}"
