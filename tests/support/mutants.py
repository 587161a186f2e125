"""Mutations of a serialised model, and `python -m tests.support.mutants MEGABYTES`, which loads and runs them.

Mutations are of its bytes and of the fields of its protobuf messages. Each is made from its number alone, so that a
test which fails names what failed. The process reads a line "seed number" for each and answers with a line "seed number
outcome". It may die of one: then the one who asked knows of which.
"""

from __future__ import annotations

import contextlib
import random
import resource
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx

import graphcore as gc
from graphcore.errors import GraphcoreError
from graphcore.runtime import Model
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType
from tests.support.limits import limit_memory
from tests.support.mutant_seeds import seeds

EXTREME = [0, 1, 2, 3, 7, 16, 64, 127, 255, 10**6, 2**31 - 1, 2**31, 2**32, 10**12, 2**40, 2**62, 2**63 - 1]
EXTREME += [-1, -2, -3, -(2**31), -(2**63)]


def mutant(seed: bytes, number: int) -> bytes:
    """One mutation or a few of a seed."""
    rng = random.Random(number)
    if rng.random() < 0.4:
        data = bytearray(seed)
        for _ in range(rng.choice((1, 1, 2, 4, 16))):
            rng.choice(BYTES)(data, rng)
        return bytes(data)
    model = onnx.ModelProto.FromString(seed)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        with contextlib.suppress(ValueError, TypeError):  # of what a field cannot hold
            _field(model, rng)
    return bytes(model.SerializeToString())


def _flip(data: bytearray, rng: random.Random) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _set(data: bytearray, rng: random.Random) -> None:
    if data:
        data[rng.randrange(len(data))] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))


def _insert(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data) + 1)
    data[at:at] = rng.randbytes(rng.choice((1, 2, 8, 64)))


def _delete(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data) + 1)
    del data[at : at + rng.choice((1, 2, 8, 64))]


def _copy(data: bytearray, rng: random.Random) -> None:
    start, to = rng.randrange(len(data) + 1), rng.randrange(len(data) + 1)
    data[to:to] = data[start : start + rng.choice((4, 16, 64, 256))]


def _blow_up(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data) + 1)
    data[at : at + 1] = b"\xff" * rng.choice((1, 4, 8, 9, 10)) + b"\x01"


BYTES: list[Callable[[bytearray, random.Random], None]] = [_flip, _flip, _set, _set, _insert, _delete, _copy, _blow_up]


def _messages(message: Any) -> list[Any]:
    results = [message]
    for field, content in message.ListFields():
        if field.message_type is None:
            continue
        for inner in content if _is_repeated(field) else [content]:
            results += _messages(inner)
    return results


def _is_repeated(field: Any) -> bool:
    return bool(field.is_repeated) if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED


def _field(model: onnx.ModelProto, rng: random.Random) -> None:
    """Change one field of one of the messages."""
    messages = _messages(model)
    message = rng.choice(messages)
    fields = message.ListFields()
    if not fields:
        return
    field, content = rng.choice(fields)
    if field.message_type is None:
        if _is_repeated(field):
            _change_list(content, field, messages, rng)
        else:
            setattr(message, field.name, _other(content, messages, rng))
    elif rng.random() < 0.3:
        message.ClearField(field.name)
    else:
        inner = rng.choice(content) if _is_repeated(field) else content
        others = [m for m in messages if type(m) is type(inner) and m is not inner]
        if others and rng.random() < 0.5:
            copied = type(inner)()
            copied.CopyFrom(rng.choice(others))
            inner.CopyFrom(copied)
        elif _is_repeated(field):
            content.add().CopyFrom(inner)


def _change_list(content: Any, field: Any, messages: list[Any], rng: random.Random) -> None:
    action = rng.randrange(4)
    if action == 0 and content:
        del content[rng.randrange(len(content))]
    elif action == 1 and content:
        content.append(rng.choice(list(content)))
    elif content:
        at = rng.randrange(len(content))
        content[at] = _other(content[at], messages, rng)


def _other(value: Any, messages: list[Any], rng: random.Random) -> Any:
    """Another value of a scalar field: an extreme one, or what stands elsewhere in the model."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        near = [value + 1, value - 1, -value, 2 * value]
        return min(2**31 - 1, max(0, rng.choice(near + EXTREME))) if rng.random() < 0.3 else rng.choice(_fitting(value))
    if isinstance(value, float):
        return rng.choice((0.0, -1.0, 1e30, float("inf"), float("nan"), -value))
    if isinstance(value, bytes):
        data = bytearray(value)
        rng.choice(BYTES)(data, rng)
        return bytes(data)
    names = [n.op_type for n in messages if isinstance(n, onnx.NodeProto)]
    names += [name for n in messages if isinstance(n, onnx.NodeProto) for name in (*n.input, *n.output)]
    return rng.choice([*names, "", "x", value + "?", "Loop", "ConstantOfShape", "Resize", "Cast", "ai.onnx.ml"])


def _fitting(value: int) -> list[int]:
    return [n for n in EXTREME if -(2**31) <= n < 2**31] if abs(value) < 100 else EXTREME


# The process

SMALL = 1 << 16
"""Elements of the largest input that is fed."""
MAX_LENGTH = 5.0
"""Seconds of a run, after which it is stopped between two kernels: of a loop that is told to turn 2^32 times."""


def main() -> None:
    warnings.simplefilter("ignore")
    expected = seeds()
    megabytes = int(sys.argv[1])
    if megabytes:
        limit_memory(megabytes)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in sys.stdin:
        name, number = line.split()
        print(name, number, outcome(mutant(expected[name], int(number))), flush=True)


def outcome(content: bytes) -> str:
    """Return the outcome of a mutant: "ran", the name of a GraphcoreError, or "raised" and an unexpected error."""
    try:
        session = gc.InferenceSession(intra_op_num_threads=1, inter_op_num_threads=1)
        model = session.load(content)
        try:
            feeds = fed(model)
        except MemoryError:  # which the model itself took
            feeds = None
        if feeds is None:
            return "loaded"
        model.execute(feeds, timeout=MAX_LENGTH)
    except GraphcoreError as error:
        return type(error).__name__
    except BaseException as error:  # whatever it is, it should not have been
        import traceback

        where = traceback.extract_tb(error.__traceback__)[-1]
        return f"raised {type(error).__name__} in {where.name} of {where.filename.rpartition('/')[2]}:{where.lineno}"
    return "ran"


def fed(model: Model) -> dict[str, np.ndarray[Any, Any]] | None:
    """Ones for every input; None where one is not small."""
    results = {}
    for name, type_ in model.inputs.items():
        if not isinstance(type_, TensorType):
            return None
        dims = [int(d) if d.is_static else 2 for d in type_.shape]
        if len(dims) > 32 or np.prod(np.array(dims, float)) > SMALL:
            return None
        if type_.dtype is DType.string:
            results[name] = np.full(dims, "a", object)
        else:
            results[name] = np.ones(dims, np.float32).astype(type_.dtype.numpy)
    return results


if __name__ == "__main__":
    main()
