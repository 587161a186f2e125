"""Calls in threads: futures, many threads on one Model, and large batches in chunks."""

from __future__ import annotations

import asyncio
import copy
import gc as collector
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore import Buffer, DType, Graph, TensorType, ops
from graphcore.errors import FeedError, ModelError, RunError
from graphcore.types.tensor_types import Shape

D = DType
Array = np.ndarray[Any, Any]
W = np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32)


def linear(**options: Any) -> gc.Model:
    graph = Graph("linear", {"x": TensorType(D.float32, ["n", 8]), "b": TensorType(D.float32, ["n", 1])})
    graph.output(y=graph["x"] @ graph.weight("w", W) + graph["b"], low=graph["x"].cast(D.bfloat16))
    return gc.InferenceSession(**options).load(graph)


def feed(rows: int, seed: int = 0) -> tuple[Array, Array]:
    random = np.random.default_rng(seed)
    return random.standard_normal((rows, 8)).astype(np.float32), random.standard_normal((rows, 1)).astype(np.float32)


def is_right(results: list[Any], x: Array, b: Array) -> bool:
    return np.allclose(results[0], x @ W + b, atol=1e-4) and np.array_equal(results[1], x.astype(D.bfloat16.numpy))


def test_future_has_what_a_call_gives() -> None:
    model = linear()
    results = [(feed(1 + i % 3, i), model.run_async(*feed(1 + i % 3, i))) for i in range(20)]
    assert all(is_right(future.result(10), *item) for item, future in results)
    x, b = feed(2)
    assert is_right(model.run_async(b=b, x=x).result(10), x, b)


def test_future_has_what_a_call_raises() -> None:
    graph = Graph("picked", {"i": TensorType(D.int64, ["n"])})
    graph.output(y=ops.gather(graph.constant(np.arange(4)), graph["i"]))
    model = gc.InferenceSession().load(graph)
    right, wrong, bad = model.run_async(np.array([3])), model.run_async(np.array([9])), model.run_async(np.array([0.5]))
    assert right.result(10)[0].tolist() == [3]
    with pytest.raises(RunError, match="picked: onnxruntime failed"):
        wrong.result(10)
    with pytest.raises(FeedError, match="input 'i' must be int64"):
        bad.result(10)


def test_calls_of_a_model_with_buffers_come_in_the_order_of_asking() -> None:
    graph = Graph("history", {"x": TensorType(D.int64), "seen": Buffer(D.int64, [50]), "at": Buffer(D.int64)})
    graph.buffers["seen"][graph["at"]] = graph["x"]
    graph["at"] += 1
    graph.output(count=graph["at"] + 0)
    model = gc.InferenceSession().load(graph)
    futures = [model.run_async(np.array(i)) for i in range(50)]
    assert [int(future.result(10)[0]) for future in futures] == list(range(1, 51))
    assert model.buffers["seen"].tolist() == list(range(50))


def test_model_may_be_forgotten_while_it_runs() -> None:
    x, b = feed(3)
    future = linear().run_async(x, b)
    collector.collect()
    assert is_right(future.result(10), x, b)


def test_model_is_right_when_eight_threads_use_it_in_every_way() -> None:
    model = linear()
    wrong: list[object] = []
    start = threading.Barrier(8)

    def checked(results: list[Any], *value: Array) -> None:
        if not is_right(results, *value):
            wrong.append(value)

    def refused(*value: Array) -> None:
        with pytest.raises(FeedError):
            model(value[0], value[1][:, 0])

    def use(number: int) -> None:
        try:
            start.wait()
            for i in range(60):
                value = feed(1 + (number + i) % 5, number * 100 + i)
                ways: list[Callable[[], None]] = [
                    lambda argument=value: checked(model(*argument), *argument),  # type: ignore[misc]
                    lambda argument=value: checked(model(b=argument[1], x=argument[0]), *argument),  # type: ignore[misc]
                    lambda argument=value: checked(model.run_async(*argument).result(20), *argument),  # type: ignore[misc]
                    lambda argument=value: checked(model.bind(*argument)(), *argument),  # type: ignore[misc]
                    lambda argument=value: checked(model.execute(*argument, micro_batch=2), *argument),  # type: ignore[misc]
                    lambda argument=value: refused(*argument),  # type: ignore[misc]
                ]
                ways[(number + i) % len(ways)]()
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=use, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_one_bound_serves_threads_one_after_the_other() -> None:
    bound = linear().bind(n=2)
    with ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(bound, *feed(2, i)) for i in range(100)]
        assert not wait(futures, 20).not_done
    x, b = feed(2, 7)
    assert is_right(bound(x, b), x, b)


@pytest.mark.parametrize("threads", [0, 1])
@pytest.mark.parametrize(("rows", "piece"), [(0, 2), (1, 4), (8, 4), (9, 4), (7, 1), (5, 100)])
def test_batch_in_pieces_gives_what_the_whole_gives(rows: int, piece: int, threads: int) -> None:
    model = linear(intra_op_num_threads=threads)
    x, b = feed(rows)
    results = model.execute(x, b=b, micro_batch=piece)
    assert is_right(results, x, b)
    assert [r.shape for r in results] == [(rows, 16), (rows, 8)]


def test_batch_is_found_in_any_axis_by_its_name() -> None:
    graph = Graph("across", {"x": TensorType(D.float32, ["n", 3]), "y": TensorType(D.float32, [2, "n"])})
    graph.output(z=graph["y"][0] * 2, w=ops.permute(graph["x"], [1, 0]) + 1)
    model = gc.InferenceSession().load(graph)
    x, y = np.arange(15, dtype=np.float32).reshape(5, 3), np.arange(10, dtype=np.float32).reshape(2, 5)
    for item, whole in zip(model.execute(x, y, micro_batch=2), model(x, y), strict=True):
        assert np.array_equal(item, whole)


def test_pieces_are_refused_where_there_is_no_batch() -> None:
    x, b = feed(4)
    model = linear()
    for piece in (0, -1, 1.5, True, "2"):
        with pytest.raises(FeedError, match="micro_batch must be an integer of at least 1"):
            model.execute(x, b, micro_batch=piece)
    with pytest.raises(FeedError, match="input 'b' must be float32"):
        model.execute(x, b.astype(np.float64), micro_batch=2)
    total = Graph("total", {"x": TensorType(D.float32, ["n", 8])})
    total.output(y=total["x"].sum(axis=0))
    fixed = Graph("fixed", {"x": TensorType(D.float32, [4, 8])})
    fixed.output(y=fixed["x"] + 1)
    changed = Graph("kept", {"x": TensorType(D.float32, ["n", 8]), "b": Buffer(D.float32, [8])})
    changed.output(y=changed["x"] + changed["b"])
    session = gc.InferenceSession()
    for graph, message in (
        (total, "output 'y' does not have the batch dim 'n'"),
        (fixed, "the model takes exactly 4 rows"),
        (changed, "has buffers, which are one for all rows"),
    ):
        with pytest.raises(ModelError, match=message):
            session.load(graph).execute(x, micro_batch=2)


def test_output_without_the_rows_is_found_where_its_type_does_not_tell() -> None:
    graph = Graph("found", {"x": TensorType(D.float32, ["n"])})
    graph.output(y=graph["x"][graph["x"] > 0])
    model = gc.InferenceSession().load(graph)
    assert model.execute(np.ones(5, np.float32), micro_batch=2)[0].tolist() == [1] * 5
    with pytest.raises(RunError, match=r"output 'y' of a batch of 2 rows has the shape \[1\]"):
        model.execute(np.array([1, 0, 1], np.float32), micro_batch=2)


def test_callbacks_may_run_batches_in_pieces() -> None:
    model = linear(intra_op_num_threads=1)
    x, b = feed(6)
    items: list[list[Any]] = []
    done = threading.Semaphore(0)

    def again(_: object) -> None:
        items.append(model.execute(x, b, micro_batch=2))
        done.release()

    for _ in range(8):
        model.run_async(x, b).add_done_callback(again)
    for _ in range(8):
        assert done.acquire(timeout=120)
    assert all(is_right(results, x, b) for results in items)


def test_rows_are_missed_when_an_array_has_no_axes() -> None:
    graph = Graph("any", {"x": TensorType(D.float32, Shape.unknown())})
    graph.output(y=ops.relu(graph["x"]))
    model = gc.InferenceSession().load(graph)
    with pytest.raises(FeedError, match=r"input 'x' is float32\[\], which has no axis of rows"):
        model.execute(np.array(1, np.float32), micro_batch=2)
    assert model.execute(np.ones((3, 2), np.float32), micro_batch=2)[0].shape == (3, 2)


def test_futures_are_awaited_in_an_event_loop() -> None:
    model = linear()

    async def together() -> list[list[Any]]:
        return await asyncio.gather(*(asyncio.wrap_future(model.run_async(*feed(2, i))) for i in range(20)))

    result = asyncio.run(together())
    assert all(is_right(results, *feed(2, i)) for i, results in enumerate(result))


IN_ANOTHER_PROCESS = """
import os, signal, sys
import numpy as np
import graphcore as gc
from graphcore.errors import RunError
from tests.runtime.test_async import feed, is_right, linear

model = linear(intra_op_num_threads=1)
batcher = gc.Batcher(gc.InferenceSession(intra_op_num_threads=1).load(model._source), max_wait_ms=0)
x, b = feed(40)
assert is_right(model.run_async(x, b).result(), x, b) and is_right(batcher(x[:8], b[:8]), x[:8], b[:8])
child = os.fork()
if not child:
    signal.alarm(300)
    right = is_right(model(x, b), x, b) and is_right(model.run_async(x, b).result(), x, b)
    right = right and is_right(model.execute(x, b, micro_batch=4), x, b)
    try:
        batcher(x[:1], b[:1])
    except RunError as error:
        right = right and "made in another process" in str(error)
    else:
        right = False
    batcher.close()
    os._exit(0 if right else 3)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.full
def test_forked_process_makes_threads_of_its_own() -> None:
    if not hasattr(os, "fork"):
        return
    done = run_python(IN_ANOTHER_PROCESS)
    assert done.returncode == 0, done.stderr


AT_THE_END = """
import atexit, sys
from graphcore.errors import RunError
from graphcore.runtime.stopping import futures
from tests.runtime.test_async import feed, is_right, linear

futures._GRACE_SECONDS = 300.0  # seconds in which they come to their end on a busy machine too
model = linear()
given = feed(2)

def late():
    try:
        model.run_async(*given)
    except RunError as error:
        print("refused" if "linear: run_async: cannot schedule" in str(error) else error)

atexit.register(late)
for i in range(20):
    model.run_async(*given).add_done_callback(lambda f: sys.stdout.write(f"{is_right(f.result(), *given)}\\n"))
"""


def test_calls_that_wait_are_made_before_the_program_ends_and_none_after() -> None:
    done = run_python(AT_THE_END)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["True"] * 20 + ["refused"]


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[2]
    return subprocess.run([sys.executable, "-c", code], cwd=root, timeout=300, capture_output=True, text=True)


def test_what_runs_in_one_process_is_not_pickled() -> None:
    model = linear()
    with gc.Batcher(model) as batcher:
        for there in (model, model.bind(n=2), batcher):
            for copied in (pickle.dumps, copy.copy, copy.deepcopy):
                with pytest.raises(ModelError, match=r"cannot be copied or pickled"):
                    copied(there)
