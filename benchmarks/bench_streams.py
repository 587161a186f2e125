"""Requests side by side in a running batch, with a Llama-like model of 100 million weights.

python -m benchmarks.bench_streams [part ...]

Each row is a ratio of CPU time of one thread: eight requests that join a running batch beside the same one after the
other, and beside one static batch, which computes rows that have ended to the end of the longest; prompts that share
their beginning beside prompts that share none; texts with tokens looked up beside without; a step of the only stream in
8 slots beside a step of one slot. Python's part is what a step takes beside the session alone, of a model that is next
to nothing. Random weights.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from unittest import mock

import numpy as np

import graphcore as gc
from benchmarks.bench_decode import CONFIG
from benchmarks.timing import Bounds, compare
from graphcore import Graph, Model, models
from graphcore.arrays.casting import Array
from graphcore.models import llama
from graphcore.models.streams import running as streams_running
from graphcore.models.streams.running import Running
from graphcore.models.streams.sampling import Text, choice_of, decoder_of

CACHE, ROUNDS = 320, 2
RANDOM = np.random.default_rng(0)


def prompt(length: int) -> list[int]:
    return [int(token) for token in RANDOM.integers(0, CONFIG.vocabulary, length)]


def loaded(graph: Graph) -> Model:
    return gc.InferenceSession(intra_op_num_threads=1).load(graph)


def texts(prompts: Sequence[Sequence[int]], most: Sequence[int], lookup: int = 0) -> list[Text]:
    greedy = choice_of("bench", 0.0, None, None, 0)
    numbers = greedy.numbers(len(prompts))
    each = zip(prompts, most, numbers, strict=True)
    return [Text(np.array(tokens), count, (), greedy, number, lookup) for tokens, count, number in each]


def served(model: Model, slots: int, prompts: Sequence[Sequence[int]], most: Sequence[int], **options: int) -> Running:
    """Serve requests as Streams do, in the thread that is measured."""
    running = Running(decoder_of("bench", model), slots, options.get("piece", 128), options.get("prefix_tokens", 0))
    waiting = texts(prompts, most, options.get("lookup", 0))
    while waiting or running.texts:
        while waiting and running.free_slots:
            running.join(waiting.pop(0))
        running.read()
        running.step()
    return running


def static(model: Model, prompts: Sequence[Sequence[int]], most: Sequence[int]) -> list[list[int]]:
    """One batch of the prompts padded on the right, until the last text has ended."""
    state, lengths = model.state(), np.array([len(tokens) for tokens in prompts])
    fed = np.zeros((len(prompts), lengths.max()), np.int64)
    for row, tokens in zip(fed, prompts, strict=True):
        row[: len(tokens)] = tokens
    results = []
    for _ in range(max(most)):
        fed = state(fed, lengths, 1)[0][:, -1].argmax(-1)[:, None]
        results.append(fed[:, 0].tolist())
        lengths = lengths + 1
    return [list(column)[:count] for column, count in zip(zip(*results, strict=True), most, strict=True)]


def requests(bounds: Bounds, name: str, model: Model) -> None:
    """Eight requests of unlike lengths: prompts of 16 to 128 tokens, 4 to 32 new ones."""
    prompts = [prompt(length) for length in (128, 16, 90, 40, 64, 24, 110, 32)]
    most = [4, 32, 12, 8, 32, 16, 6, 20]

    def together() -> None:
        served(model, 8, prompts, most)

    def in_turn() -> None:
        served(model, 1, prompts, most)

    ratio = compare(together, in_turn, ROUNDS, clock=time.process_time)
    bounds.ratio(f"8 requests, {name}, beside one after the other", ratio, 0.7 if name == "float32" else 0.9, sum(most))
    ratio = compare(together, lambda: static(model, prompts, most), ROUNDS, clock=time.process_time)
    bounds.ratio(f"8 requests, {name}, beside a static batch", ratio, 0.8, sum(most))


def prefixes(bounds: Bounds, name: str, model: Model) -> None:
    """Eight prompts of 220 tokens, of which 200 are the same, and 4 new tokens each."""
    system = prompt(200)
    prompts, most = [[*system, *prompt(20)] for _ in range(8)], [4] * 8

    def run(prefix_tokens: int) -> Callable[[], None]:
        def serve() -> None:
            served(model, 8, prompts, most, prefix_tokens=prefix_tokens)

        return serve

    ratio = compare(run(CACHE), run(0), ROUNDS, clock=time.process_time)
    bounds.ratio(f"8 prompts that share 200 of 220 tokens, {name}", ratio, 0.4, 8)


def lookup(bounds: Bounds, name: str, model: Model) -> None:
    """A text with look-up beside the same without: what a random model repeats, and what a text that is wholly copied
    would gain, whose every proposal is right."""
    tokens, most = prompt(24) * 3, 48
    whole, chosen = [*tokens, *prompt(most)], streams_running._choose_tokens

    def next_tokens(so_far: Array, count: int) -> list[int]:
        return whole[len(so_far) : len(so_far) + count]

    def right(requested: Sequence[Text], logits: Array) -> list[int]:
        chosen(requested, logits)
        return [whole[text.count] for text in requested]

    def plain() -> None:
        served(model, 1, [tokens], [most])

    def looked_up() -> Running:
        return served(model, 1, [tokens], [most], lookup=8)

    def copied() -> Running:
        with mock.patch.multiple(streams_running, propose=next_tokens, _choose_tokens=right):
            return looked_up()

    for what, run, bound in (("of a random model", looked_up, 1.1), ("that copies", copied, 0.7)):
        counts = run().counts
        ratio = compare(run, plain, ROUNDS, clock=time.process_time)
        bounds.ratio(f"look-up in a text {what}, {name}", ratio, bound, most)
        print(f"    {counts.calls} calls for {most} tokens; {counts.accepted} of {counts.proposed} proposed were right")


def one_of_many(bounds: Bounds, name: str, model: Model) -> None:
    steps = 8

    def stepping(slots: int) -> Callable[[], None]:
        running = Running(decoder_of("bench", model), slots)
        running.join(texts([prompt(64)], [CACHE - 64])[0])
        running.read()

        def run() -> None:
            for _ in range(steps):
                running.step()

        return run

    ratio = compare(stepping(8), stepping(1), ROUNDS, clock=time.process_time)
    bounds.ratio(f"a step of one stream in 8 slots, {name}, beside 1 slot", ratio, 1.1, steps)


def overhead(bounds: Bounds) -> None:
    """The time of a step that is not the session's, of a model of 12 layers that are nearly nothing."""
    small = llama.Config(vocabulary=64, width=16, inner=16, layers=12, heads=1, kv_heads=1, size=16, positions=4096)
    model = loaded(llama.build(small, cache=4096))
    for streams in (1, 8):
        running = Running(decoder_of("bench", model), 8)
        for each in texts([list(range(1, 9 + number)) for number in range(streams)], [60 * 21 * 2] * streams):
            running.join(each)
        running.read()
        running.step()
        bound = running._slots._states[0, streams]._last.binding._iobinding

        def step(running: Running = running) -> None:
            for _ in range(20):
                running.read()
                running.step()

        def alone(bound: object = bound) -> None:
            for _ in range(20):
                model.session._sess.run_with_iobinding(bound, None)

        pairs = [(seconds(step), seconds(alone)) for _ in range(60)]
        ours, peer = (float(np.percentile(column, 20)) / 20 * 1e6 for column in zip(*pairs, strict=True))
        detail = f"{ours:8.1f} us to {peer:8.1f} us"
        bounds.figure(f"Python's part of a step of {streams} streams", ours - peer, 100, "us", detail)


def seconds(function: Callable[[], object]) -> float:
    start = time.thread_time()
    function()
    return time.thread_time() - start


def served_by_threads(bounds: Bounds, name: str, model: Model) -> None:
    """The same through Streams, with a thread for each request that waits for each token."""
    prompts, most = [prompt(32) for _ in range(8)], [24] * 8

    def threads() -> None:
        with models.Streams(model, slots=8, prefix_tokens=0) as streams:
            results = [streams.submit(tokens, count) for tokens, count in zip(prompts, most, strict=True)]
            assert [len(list(request)) for request in results] == most

    ratio = compare(threads, lambda: served(model, 8, prompts, most), ROUNDS, clock=time.process_time)
    bounds.ratio(f"Streams of a thread, {name}, beside none", ratio, 1.05, sum(most))


PARTS = (requests, prefixes, one_of_many, served_by_threads, lookup)


def main(wanted: Sequence[str] = ()) -> int:
    """wanted: names of parts, such as `overhead prefixes`; all by default."""
    bounds = Bounds()
    if not wanted or "overhead" in wanted:
        overhead(bounds)
    graph = llama.build(CONFIG, cache=CACHE, last_tokens=True)
    for name in ("float32", "4 bits"):
        parts = [part for part in PARTS if not wanted or part.__name__ in wanted]
        model = loaded(graph if name == "float32" else gc.quantize(graph, "int4", block_size=128).graph)
        for part in parts:
            part(bounds, name, model)
        del model
    return bounds.exit_code()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
