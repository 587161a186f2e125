"""Prompts that begin with the same tokens as an earlier text, whose keys and values they take."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphcore.models.streams.running import MIN_SHARED, Prefixes, shared_count
from tests.support.decoders import KINDS, alone, batch, drawn, is_alone, run, text

SYSTEM = drawn(99, 40)


@pytest.mark.parametrize("kind", KINDS)
def test_prompt_takes_what_a_running_text_has(kind: str) -> None:
    prompts = [(*SYSTEM, seed, *drawn(seed, 3 + seed)) for seed in range(4)]
    running = batch(kind, 4, prefix_tokens=200)
    got = run(running, [text(prompt, 12) for prompt in prompts])
    assert all(is_alone(kind, prompt, item, 12) for prompt, item in zip(prompts, got, strict=True))
    assert running.counts.reused == 3 * len(SYSTEM)
    assert running.counts.read == sum(map(len, prompts)) - 3 * len(SYSTEM)


@pytest.mark.parametrize("kind", KINDS)
def test_prompt_takes_what_a_text_had_that_has_ended(kind: str) -> None:
    running = batch(kind, 2, prefix_tokens=90)
    (result,) = run(running, [text(SYSTEM, 12)])
    first = [*SYSTEM, *result]
    for more in (drawn(1, 5), drawn(2, 1), ()):
        prompt = (*first, *more)
        before = running.counts.reused
        (got,) = run(running, [text(prompt, 8)])
        assert is_alone(kind, prompt, got, 8)
        # The last token of a text is never read, but a later text has it in its prompt.
        assert len(first) - 1 <= running.counts.reused - before < len(prompt)
    (again,) = run(running, [text(SYSTEM, 12)])
    assert is_alone(kind, SYSTEM, again, 12)


def test_prompts_that_join_together_share_what_the_first_of_them_read() -> None:
    prompts = [(*SYSTEM[:20], seed, 1 + seed) for seed in range(4)]
    running = batch("llama", 4, piece=None, prefix_tokens=90)
    assert run(running, [text(prompt, 4) for prompt in prompts]) == [alone("llama", prompt, 4) for prompt in prompts]
    assert running.counts.reused == 3 * 20


def test_same_prompt_reads_its_last_token_alone() -> None:
    running = batch("llama", 2, prefix_tokens=90)
    run(running, [text(SYSTEM, 5)])
    read = running.counts.read
    assert run(running, [text(SYSTEM, 5), text(SYSTEM, 5)]) == [alone("llama", SYSTEM, 5)] * 2
    assert running.counts.read == read
    assert running.counts.reused == 2 * (len(SYSTEM) - 1)


def test_nothing_is_shared_where_that_was_not_wanted_or_is_too_short() -> None:
    running = batch("llama", 2)
    run(running, [text(SYSTEM, 5), text(SYSTEM, 5)])
    assert running.counts.reused == 0
    running = batch("llama", 2, prefix_tokens=90)
    short = SYSTEM[: MIN_SHARED - 1]
    run(running, [text((*short, 1), 5), text((*short, 2), 5), text((*short, 3), 5)])
    assert running.counts.reused == 0


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 50), st.integers(1, 25), st.integers(1, 15)), max_size=12))
def test_texts_are_the_same_whatever_is_shared(requests: list[tuple[int, int, int, int]]) -> None:
    prompts = [(*drawn(seed, 50)[:begin], *drawn(begin + 7, more)) for seed, begin, more, _ in requests]
    running = batch("llama", 3, piece=16, prefix_tokens=70)
    got = run(running, [text(prompt, most) for prompt, (*_, most) in zip(prompts, requests, strict=True)])
    assert got == [alone("llama", prompt, most) for prompt, (*_, most) in zip(prompts, requests, strict=True)]


# The store


def prefixes(store: Prefixes) -> list[list[int]]:
    return [prefix.tokens.tolist() for prefix in store._prefix_list]


def keep(store: Prefixes, *tokens: int) -> None:
    array = np.array(tokens)
    store.keep(array, {"keys0": np.tile(array.astype(np.float32)[:, None], (2, 1, 3))})


def test_least_recently_used_prefix_goes_first() -> None:
    store = Prefixes(50)
    one, two, three = (range(begin, begin + 20) for begin in (0, 100, 200))
    keep(store, *one)
    keep(store, *two)
    result, prefix = store.find(np.array(one))
    assert result == 20
    assert prefix is not None
    store.use(prefix)
    keep(store, *three)
    assert prefixes(store) == [[*one], [*three]]
    assert store.tokens == 40


def test_store_holds_no_text_twice_and_no_more_than_its_tokens() -> None:
    store = Prefixes(50)
    keep(store, *range(20))
    keep(store, *range(30))
    assert prefixes(store) == [[*range(30)]], "the shorter one is in the longer one"
    keep(store, *range(100, 120))
    keep(store, *range(25))
    assert prefixes(store) == [[*range(100, 120)], [*range(30)]], "it counts as used"
    keep(store, *range(200, 300))
    assert prefixes(store) == [[*range(200, 250)]]
    keep(store, *range(5))
    assert store.tokens == 50


def test_kept_rows_are_copies_of_the_tokens_kept() -> None:
    store = Prefixes(30)
    rows = {"keys0": np.arange(2 * 40 * 3, dtype=np.float32).reshape(2, 40, 3)}
    want = rows["keys0"][:, :25].copy()
    tokens = np.arange(25)
    store.keep(tokens, rows)
    rows["keys0"][:] = -1
    tokens[:] = -1
    _, prefix = store.find(np.arange(25))
    assert prefix is not None
    np.testing.assert_array_equal(prefix.rows["keys0"], want)


@given(st.lists(st.integers(0, 2), max_size=8), st.lists(st.integers(0, 2), max_size=8))
def test_shared_tokens_are_counted_from_the_first(one: list[int], other: list[int]) -> None:
    want = 0
    while want < min(len(one), len(other)) and one[want] == other[want]:
        want += 1
    assert shared_count(np.array(one, np.int64), np.array(other, np.int64)) == want
