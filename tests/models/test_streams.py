"""Streams: requests of several threads, cancelled, refused and failing, and what is left of them."""

from __future__ import annotations

import copy
import gc as collector
import os
import pickle
import threading
import warnings
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphcore as gc
from graphcore import models
from graphcore.errors import FeedError, ModelError, ResourceLimitError, RunError
from graphcore.models import llama
from graphcore.runtime.buffers.runners import Slots
from tests.support.decoders import CACHE, KINDS, LLAMA, WORDS, alone, build_model, drawn, is_alone
from tests.support.waiting import PATIENCE, until


class Gate:
    """Lets calls of streams go on one by one, or all."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._free = threading.Semaphore(0)
        self.begun = threading.Semaphore(0)
        self.is_open = False
        own = Slots.run

        def run(slots: Slots, start: int, stop: int, /, *arrays: Any) -> list[Any]:
            if threading.current_thread().name.startswith("graphcore streams"):
                self.begun.release()
                until(lambda: self.is_open or self._free.acquire(timeout=0.01))  # a test that fails must end too
            return own(slots, start, stop, *arrays)

        monkeypatch.setattr(Slots, "run", run)

    def let(self, calls: int) -> None:
        self._free.release(calls)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    made_ = Gate(monkeypatch)
    yield made_
    made_.is_open = True


@pytest.mark.parametrize("kind", KINDS)
def test_requests_get_what_each_gets_alone(kind: str) -> None:
    prompts = [drawn(seed, 1 + seed * 7) for seed in range(9)]
    with models.Streams(build_model(kind), slots=3, piece=16) as streams:
        requests = [streams.submit(prompt, 12) for prompt in prompts]
        got = [list(request) for request in requests]
        results = [request.result().tolist() for request in requests]
    assert got == results
    assert all(len(tokens) == 12 and is_alone(kind, p, tokens, 12) for p, tokens in zip(prompts, got, strict=True))
    assert all(request.done for request in requests)
    assert requests[0].result().dtype == np.int64


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 60), st.integers(0, 20), st.booleans()), max_size=12),
    st.integers(1, 4),
)
def test_threads_submit_and_cancel_as_they_like(plan: list[tuple[int, int, int, bool]], slots: int) -> None:
    results: dict[int, list[int]] = {}
    with models.Streams(build_model("llama"), slots=slots, piece=16) as streams:

        def work(number: int) -> None:
            seed, length, most, is_cancelled = plan[number]
            request = streams.submit(drawn(seed, length), most)
            if is_cancelled:
                request.cancel()
                results[number] = request.tokens.tolist()
            else:
                results[number] = list(request)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(len(plan))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
    for number, (seed, length, most, is_cancelled) in enumerate(plan):
        want = alone("llama", drawn(seed, length), most)
        assert results[number] == (want[: len(results[number])] if is_cancelled else want)


def test_tokens_come_as_they_are_made(gate: Gate) -> None:
    with models.Streams(build_model("llama")) as streams:
        request = streams.submit(drawn(0, 5), 10)
        assert request.tokens.tolist() == []
        steps = iter(request)
        gate.let(1)
        first = next(steps)
        gate.let(2)
        assert [first, next(steps), next(steps)] == request.tokens.tolist()
        assert not request.done
        with pytest.raises(TimeoutError, match=r"has not ended after 0\.01 seconds: 3 tokens"):
            request.result(0.01)
        gate.is_open = True
        assert [first, *list(request)[1:]] == request.result().tolist()


def test_seed_is_of_the_request_alone() -> None:
    prompt = drawn(0, 9)
    with models.Streams(build_model("llama"), slots=3) as streams:
        requests = [streams.submit(prompt, 15, temperature=1.2, seed=seed) for seed in (4, 5, 4)]
        one, other, again = (request.result().tolist() for request in requests)
    assert one == again == alone("llama", prompt, 15, 1.2, 4)
    assert other == alone("llama", prompt, 15, 1.2, 5)


def test_options_are_those_of_generate() -> None:
    prompt = drawn(3, 10)
    whole = alone("llama", prompt, 30)
    options: dict[str, Any] = {"temperature": 2.0, "top_k": 5, "top_p": 0.9, "seed": 1}
    with models.Streams(build_model("llama")) as streams:
        stopped = streams.submit(prompt, 30, stop=[whole[7]])
        sampled = streams.submit(np.array(prompt, np.uint8), 30, **options)
        assert stopped.result().tolist() == whole[: whole.index(whole[7]) + 1]
        assert sampled.result().tolist() == models.generate(build_model("llama"), prompt, 30, **options).tolist()
        assert streams.submit(prompt, 30, lookup=6).result().tolist() == whole
        assert streams.submit(prompt, 0).result().tolist() == []
        assert streams.counts.accepted > 0


def test_prompts_share_their_beginnings() -> None:
    system = drawn(99, 40)
    with (
        models.Streams(build_model("llama"), slots=2) as streams,
        models.Streams(build_model("llama"), prefix_tokens=0) as none,
    ):
        for number in range(3):
            prompt = (*system, number, 7)
            for each in (streams, none):
                assert each.submit(prompt, 6).result().tolist() == alone("llama", prompt, 6)
        assert streams.counts.reused == 2 * len(system)
        assert none.counts.reused == 0


# Cancelled


def test_cancelled_request_ends_at_once_and_leaves_its_slot(gate: Gate) -> None:
    with models.Streams(build_model("llama"), slots=1) as streams:
        first, second = (streams.submit(drawn(seed, 5), 20) for seed in range(2))
        steps = iter(first)
        gate.let(2)
        got = [next(steps), next(steps)]
        assert first.cancel()
        assert not first.cancel()
        with pytest.raises(RunError, match="cancelled after 2 tokens"):
            first.result(0)
        with pytest.raises(RunError, match="cancelled after 2 tokens"):
            list(first)
        assert first.tokens.tolist() == got == alone("llama", drawn(0, 5), 20)[:2]
        gate.is_open = True
        assert second.result(PATIENCE).tolist() == alone("llama", drawn(1, 5), 20)


def test_request_that_waits_is_cancelled_without_a_call(gate: Gate) -> None:
    with models.Streams(build_model("llama"), slots=1, max_waiting=1) as streams:
        first = streams.submit(drawn(0, 5), 3)
        assert gate.begun.acquire(timeout=PATIENCE)
        second = streams.submit(drawn(1, 5), 3)
        assert second.cancel()
        third = streams.submit(drawn(2, 5), 3)
        gate.is_open = True
        assert [first.result(PATIENCE).size, third.result(PATIENCE).size] == [3, 3]
        assert streams.counts.made == 6
        assert not first.cancel()
    with pytest.raises(RunError, match="cancelled after 0 tokens"):
        second.result()


def test_prompt_that_is_being_read_can_be_cancelled(gate: Gate) -> None:
    with models.Streams(build_model("llama"), slots=2, piece=4) as streams:
        long = streams.submit(drawn(0, 60), 3)
        short = streams.submit(drawn(1, 3), 3)
        gate.let(3)
        for _ in range(4):
            assert gate.begun.acquire(timeout=PATIENCE)
        long.cancel()
        gate.is_open = True
        assert short.result(PATIENCE).tolist() == alone("llama", drawn(1, 3), 3)
        assert streams.counts.read < 30


def test_closing_ends_all(gate: Gate) -> None:
    streams = models.Streams(build_model("llama"), slots=1)
    requests = [streams.submit(drawn(seed, 5), 20) for seed in range(3)]
    steps = iter(requests[0])
    gate.let(1)
    first = next(steps)
    gate.is_open = True
    streams.close()
    for request in requests:
        with pytest.raises(RunError, match=r"streams were closed"):
            request.result(0)
    assert requests[0].tokens[0] == first
    with pytest.raises(RunError, match="the streams of llama are closed"):
        streams.submit([1], 3)
    streams.close()


def test_closing_may_wait_for_what_was_asked_for() -> None:
    streams = models.Streams(build_model("llama"), slots=2)
    requests = [streams.submit(drawn(seed, 5), 20) for seed in range(5)]
    streams.close(drain=True)
    assert [list(r) for r in requests] == [alone("llama", drawn(seed, 5), 20) for seed in range(5)]


# Refused


def test_queue_has_a_limit(gate: Gate) -> None:
    with models.Streams(build_model("llama"), slots=2, max_waiting=2) as streams:
        requests = [streams.submit([1, 2], 3)]
        assert gate.begun.acquire(timeout=PATIENCE)
        requests += [streams.submit([1, 2], 3) for _ in range(3)]
        with pytest.raises(RunError, match=r"requests wait for llama already"):
            streams.submit([1, 2], 3)
        assert "waiting>" in repr(streams)
        gate.is_open = True
        for request in requests:
            assert request.result(PATIENCE).tolist() == alone("llama", (1, 2), 3)
        streams.submit([1, 2], 3).result(PATIENCE)


def test_bad_requests_are_refused_and_touch_no_other() -> None:
    with models.Streams(build_model("llama"), slots=2) as streams:
        good = streams.submit(drawn(0, 5), 40)
        for tokens, most, message in (
            ([], 5, "a prompt is empty"), ([[1], [2]], 5, "is not a prompt"), ([WORDS], 5, f"{WORDS} is not a token"),
            ([-1], 5, "-1 is not a token"), ([1] * CACHE, 2, f"do not fit into a cache of {CACHE}"),
            ([1], -1, "max_new"), ("text", 5, "is not a prompt"), ([1.5], 5, "is not a prompt"),
            ([1], 10**9, "do not fit"),
        ):  # fmt: skip
            with pytest.raises(FeedError, match=message):
                streams.submit(tokens, most)
        for options in ({"temperature": -1}, {"stop": 2}, {"stop": [WORDS]}, {"seed": "x"}, {"lookup": -1}):
            with pytest.raises(FeedError, match="submit: "):
                streams.submit([1], 5, **options)
        assert good.result(PATIENCE).tolist() == alone("llama", drawn(0, 5), 40)


@pytest.mark.parametrize(
    "options",
    [{"slots": 0}, {"slots": 1.5}, {"slots": True}, {"piece": 0}, {"max_waiting": -1}, {"prefix_tokens": -1},
     {"prefix_tokens": "9"}],
    ids=repr,
)  # fmt: skip
def test_streams_of_numbers_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(FeedError, match=f"Streams: {next(iter(options))} must be"):
        models.Streams(build_model("llama"), **options)


def test_streams_of_what_is_not_a_decoder_are_refused() -> None:
    with pytest.raises(ModelError, match="model must be a Model, got str"):
        models.Streams("llama")  # type: ignore[arg-type]
    graph = gc.Graph("scale", {"x": gc.TensorType("float32", [3])})
    graph.output(graph["x"] * 2)
    with pytest.raises(ModelError, match="scale is not a decoder"):
        models.Streams(gc.InferenceSession().load(graph))
    model = gc.InferenceSession().load(llama.build(LLAMA, cache=8))
    with models.Streams(model) as streams, pytest.raises(ModelError, match="lookup=3 needs"):
        streams.submit([1], 2, lookup=3)


def test_more_slots_than_there_is_memory_for_are_refused() -> None:
    with pytest.raises(ResourceLimitError, match="not enough memory for"):
        models.Streams(build_model("llama"), slots=2**50)


# Failures


class Broken(Exception):
    pass


def test_request_that_fails_gets_the_error_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Slots.run

    def run(self: Slots, start: int, stop: int, /, *arrays: Any) -> list[Any]:
        if (arrays[1] >= 50).any():
            raise Broken
        return own(self, start, stop, *arrays)

    monkeypatch.setattr(Slots, "run", run)
    with models.Streams(build_model("llama"), slots=3) as streams:
        requests = [streams.submit(drawn(seed, 5), 30) for seed in range(3)]
        wrong = streams.submit(drawn(8, 55), 5), streams.submit(drawn(9, 40), 20)
        for request, count in zip(wrong, (0, 10), strict=True):
            with pytest.raises(Broken):
                request.result(PATIENCE)
            assert len(request.tokens) == count
        for seed, request in enumerate(requests):
            assert request.result(PATIENCE).tolist() == alone("llama", drawn(seed, 5), 30)


def test_batch_that_breaks_ends_all_requests_and_later_ones_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def copied(*arguments: object) -> None:
        raise Broken

    monkeypatch.setattr("graphcore.models.streams.running.Running._leave", copied)
    streams = models.Streams(build_model("llama"))
    request = streams.submit([1, 2], 5)
    with pytest.raises(Broken):
        request.result(PATIENCE)
    with pytest.raises(RunError, match="are closed"):
        streams.submit([1], 5)
    streams.close()


# What is left


def test_closed_streams_free_their_cache_and_end_their_thread() -> None:
    model = build_model("llama")
    before = threading.active_count()
    streams = models.Streams(model)
    batch = streams._work._batch
    assert batch is not None
    slots = weakref.ref(batch._slots)
    del batch
    request = streams.submit([1, 2], 5)
    request.result(PATIENCE)
    streams.close()
    collector.collect()
    assert slots() is None
    until(lambda: threading.active_count() == before)
    assert request.result().size == 5


def test_streams_that_are_dropped_end_their_requests(gate: Gate) -> None:
    before = threading.active_count()
    streams = models.Streams(build_model("llama"))
    request = streams.submit([1, 2], 50)
    assert gate.begun.acquire(timeout=PATIENCE)
    gate.is_open = True
    del streams
    collector.collect()
    with pytest.raises(RunError, match="streams were closed"):
        request.result(PATIENCE)
    until(lambda: threading.active_count() == before)


def test_streams_keep_no_request_that_has_ended() -> None:
    with models.Streams(build_model("llama"), prefix_tokens=0) as streams:
        request = streams.submit([1, 2], 5)
        request.result(PATIENCE)
        expected = weakref.ref(request)
        del request
        until(lambda: collector.collect() >= 0 and expected() is None)


def test_streams_leave_the_buffers_of_the_model() -> None:
    model = gc.InferenceSession().load(llama.build(LLAMA, cache=16))
    model(np.array([[1, 2]]), np.array([2]))
    before = dict(model.buffers)
    with models.Streams(model) as streams:
        streams.submit([3, 4], 5).result(PATIENCE)
    for name, array in dict(model.buffers).items():
        np.testing.assert_array_equal(array, before[name])


def test_streams_are_not_copied() -> None:
    with models.Streams(build_model("llama")) as streams:
        for copied in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(ModelError, match="cannot be copied or pickled"):
                copied(streams)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_streams_of_another_process_are_refused() -> None:
    with models.Streams(build_model("llama")) as streams:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # DeprecationWarning: a process with threads is forked
            child = os.fork()
        if not child:
            code = 1
            try:
                streams.submit([1], 2)
            except RunError as error:
                code = 0 if "in another process" in str(error) else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert streams.submit([1], 2).result(PATIENCE).size == 2


def test_logprobs_are_those_of_the_softmax_of_the_logits() -> None:
    prompt = drawn(3, 9)
    with models.Streams(build_model("llama"), slots=2) as streams:
        sampled = streams.submit(prompt, 6, temperature=0.7, seed=4, logprobs=3)
        plain = streams.submit(prompt, 6, temperature=0.7, seed=4)
        looked_up = streams.submit(prompt, 6, lookup=4, logprobs=1)
        tokens = sampled.result().tolist()
        assert plain.result().tolist() == tokens
        assert plain.logprobs == []
        likeliest = looked_up.result().tolist()
        assert [each.top[0][0] for each in looked_up.logprobs] == likeliest
    whole = np.array([[*prompt, *tokens[:-1]]])
    (logits,) = build_model("llama").state()(whole, np.array([whole.size]), np.array(6))
    scores = logits[0].astype(np.float64)
    scores = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
    assert [each.token for each in sampled.logprobs] == tokens
    np.testing.assert_allclose([each.logprob for each in sampled.logprobs], scores[np.arange(6), tokens], atol=1e-5)
    order = np.argsort(-scores, -1)[:, :3]
    assert [[token for token, _ in each.top] for each in sampled.logprobs] == order.tolist()
    np.testing.assert_allclose(
        [[value for _, value in each.top] for each in sampled.logprobs],
        np.take_along_axis(scores, order, -1),
        atol=1e-5,
    )


def test_text_ends_when_its_function_says_so_and_alone_fails_with_it() -> None:
    seen: list[int] = []

    def is_third(token: int) -> bool:
        seen.append(token)
        return len(seen) == 3

    def fail(token: int) -> bool:
        raise ValueError("no")

    with models.Streams(build_model("llama"), slots=3) as streams:
        ended, failed = streams.submit(drawn(1, 5), 9, until=is_third), streams.submit(drawn(2, 5), 9, until=fail)
        others = streams.submit(drawn(3, 5), 9)
        assert ended.result().tolist() == seen == alone("llama", drawn(1, 5), 9)[:3]
        with pytest.raises(ValueError, match="no"):
            failed.result()
        assert others.result().tolist() == alone("llama", drawn(3, 5), 9)
