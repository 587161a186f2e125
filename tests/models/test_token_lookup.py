"""Tokens that are looked up in the text itself and checked by one call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import graphcore as gc
from graphcore import models
from graphcore.errors import FeedError, ModelError
from graphcore.models import llama
from graphcore.models.streams.running import propose
from graphcore.runtime.buffers.runners import Slots
from tests.support.decoders import CACHE, KINDS, LLAMA, alone, batch, build_model, drawn, is_alone, run, text


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    calls: list[int] = []
    own = Slots.run

    def noted(self: Slots, start: int, stop: int, /, *arrays: Any) -> list[Any]:
        calls.append(arrays[0].shape[1])
        return own(self, start, stop, *arrays)

    monkeypatch.setattr(Slots, "run", noted)
    return calls


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lookup", [1, 4, 10])
def test_looked_up_text_is_the_plain_one(kind: str, lookup: int) -> None:
    for seed in range(6):
        prompt = drawn(seed, 12, words=3 + 4 * seed) * 2
        got = models.generate(build_model(kind), prompt, 50, lookup=lookup)
        assert is_alone(kind, prompt, got.tolist(), 50)


def test_text_that_repeats_itself_takes_fewer_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    prompt = drawn(3, 10)
    want = alone("llama", prompt, 60)
    assert len(set(want[20:])) < 15, "it repeats itself"
    calls = counted(monkeypatch)
    assert models.generate(build_model("llama"), prompt, 60, lookup=8).tolist() == want
    assert len(calls) < 40
    assert max(calls[1:]) == 9


@pytest.mark.parametrize("seed", range(4))
def test_drawn_text_of_a_seed_is_the_plain_one(seed: int) -> None:
    prompt = drawn(seed, 8, words=3) * 3
    want = alone("llama", prompt, 40, 0.7, seed)
    got = models.generate(build_model("llama"), prompt, 40, temperature=0.7, seed=seed, lookup=5)
    assert got.tolist() == want


def test_looked_up_text_ends_with_a_stop_token_and_at_its_limit() -> None:
    prompt = drawn(3, 10)
    want = alone("llama", prompt, 60)
    for place in (5, 23, 41):
        stop = want[place]
        got = models.generate(build_model("llama"), prompt, 60, stop=[stop], lookup=8)
        assert got.tolist() == want[: want.index(stop) + 1]
    for most in range(1, 30):
        assert models.generate(build_model("llama"), prompt, most, lookup=8).tolist() == want[:most]


def test_looked_up_text_fills_the_cache_to_its_end() -> None:
    prompt = drawn(3, 10)
    most = CACHE + 1 - len(prompt)
    assert models.generate(build_model("llama"), prompt, most, lookup=10).tolist() == alone("llama", prompt, most)


def test_stream_gives_looked_up_tokens_one_at_a_time() -> None:
    prompts = [drawn(3, 10), drawn(5, 4)]
    stop = alone("llama", prompts[1], 60)[2]
    columns = list(models.stream(build_model("llama"), prompts, 60, stop=[stop], lookup=8))
    assert all(column.shape == (2,) for column in columns)
    for prompt, column in zip(prompts, np.array(columns).T, strict=True):
        want = alone("llama", prompt, 60)
        want = want[: want.index(stop) + 1] if stop in want else want
        assert column.tolist() == want + [-1] * (len(columns) - len(want))


def test_texts_side_by_side_share_calls_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    prompts = [drawn(seed, 10, words=2) for seed in range(2)]
    calls = counted(monkeypatch)
    got = run(batch("llama", 2), [text(prompt, 20, lookup=8) for prompt in prompts])
    assert got == [alone("llama", prompt, 20) for prompt in prompts]
    assert max(calls[4:]) <= 10


def test_counts_tell_what_was_proposed_and_what_was_right() -> None:
    running = batch("llama", 1, piece=None)
    (got,) = run(running, [text(drawn(3, 10), 60, lookup=8)])
    counts = running.counts
    assert 0 < counts.accepted <= counts.proposed
    assert counts.made == len(got) == 60
    assert counts.read == 10
    assert counts.calls + counts.accepted == 60


@given(st.lists(st.integers(0, 3), min_size=1, max_size=30), st.integers(0, 6))
def test_what_is_proposed_followed_the_same_tokens_before(tokens: list[int], most: int) -> None:
    got = propose(np.array(tokens, np.int64), most)
    assert len(got) <= most
    followed = [
        tokens[at + size : at + size + most]
        for size in (3, 2)
        for at in range(len(tokens) - size)
        if tokens[at : at + size] == tokens[-size:]
    ]
    assert got in followed if got else not most or not followed


def test_longer_match_and_later_place_are_preferred() -> None:
    text_ = np.array([1, 2, 3, 7, 7, 7, 0, 2, 3, 8, 8, 8, 1, 2, 3])
    assert propose(text_, 2) == [7, 7], "three tokens the same"
    assert propose(np.array([2, 3, 7, 7, 2, 3, 8, 8, 0, 2, 3]), 2) == [8, 8], "the later place"
    assert propose(np.array([5, 6] * 6), 4) == [5, 6, 5, 6], "a place with so many tokens after it"
    assert propose(np.array([5, 6, 5, 6]), 4) == [5, 6], "as many as there are"


# Refusals


def test_model_that_gives_logits_of_the_last_token_cannot_look_up() -> None:
    model = gc.InferenceSession().load(llama.build(LLAMA, cache=8))
    with pytest.raises(ModelError, match="lookup=3 needs logits of several tokens"):
        models.generate(model, [1], 5, lookup=3)
    assert len(models.generate(model, [1], 5, lookup=0)) == 5


@pytest.mark.parametrize("lookup", [-1, 1.5, True, "2", None], ids=repr)
def test_lookup_is_a_whole_number(lookup: Any) -> None:
    with pytest.raises(FeedError, match="lookup must be"):
        models.generate(build_model("llama"), [1], 5, lookup=lookup)


@pytest.mark.parametrize("count", [-3, 0, 5, 2**40])
def test_logits_of_other_tokens_than_there_are_do_not_come(count: int) -> None:
    """More than were fed are an error of the runtime; less than one are none."""
    model = build_model("llama")
    feed = np.array([[1, 2, 3, 4]]), np.array([4]), np.array(count)
    if count > 0:
        with pytest.raises(gc.errors.RunError):
            model.state()(*feed)
        return
    assert model.state()(*feed)[0].shape == (1, 0, LLAMA.vocabulary)
