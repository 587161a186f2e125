"""The running batch: texts that join, leave, are cancelled and fail, and what each gives alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphcore.errors import RunError
from graphcore.models.streams.running import Running
from graphcore.models.streams.sampling import Text
from graphcore.runtime.buffers.runners import Slots
from tests.support.decoders import CACHE, KINDS, WORDS, alone, batch, build_model, drawn, is_alone, run, text

PIECE = 8
REQUESTS = st.tuples(st.integers(0, 5), st.integers(1, 40), st.integers(1, 20))
"""A seed of the prompt, its length, and the most new tokens."""


def watched(running: Running, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, tuple[int, ...]]]:
    """Return a list that each call adds its rows to, and the shape of its tokens."""
    calls: list[tuple[int, int, tuple[int, ...]]] = []
    own = Slots.run

    def noted(self: Slots, start: int, stop: int, /, *arrays: Any) -> list[Any]:
        calls.append((start, stop, arrays[0].shape))
        return own(self, start, stop, *arrays)

    monkeypatch.setattr(Slots, "run", noted)
    return calls


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=20)
@given(st.data())
def test_text_is_what_it_is_alone_whatever_joins_and_leaves(kind: str, data: st.DataObject) -> None:
    slots = data.draw(st.integers(1, 4))
    running = batch(kind, slots, data.draw(st.sampled_from([1, 3, PIECE, None])), data.draw(st.sampled_from([0, 30])))
    wanted: list[tuple[Text, tuple[int, ...], int]] = []
    for _ in range(data.draw(st.integers(1, 40))):
        action = data.draw(st.sampled_from(["join", "join", "step", "step", "read", "cancel"]))
        if action == "join" and running.free_slots:
            seed, length, most = data.draw(REQUESTS)
            wanted.append((text(drawn(seed, length), most), drawn(seed, length), most))
            running.join(wanted[-1][0])
        elif action == "cancel" and running.texts:
            data.draw(st.sampled_from(running.texts)).fail(RunError("cancelled"))
        elif action == "read":
            running.read()
        else:
            running.step()
        assert len(running.texts) <= slots
    run(running, [])
    assert running.free_slots == slots
    for one, prompt, most in wanted:
        assert one.is_done
        assert is_alone(kind, prompt, one.new_tokens, most)
        assert one.error is not None or len(one.new_tokens) == most


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_logits_are_those_of_the_text_alone_to_the_last_bit(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On processors whose kernels of float32 products give a row the same with any number of others."""
    rows: dict[bytes, list[bytes]] = {}

    def noted(texts: list[Text], logits: Any) -> list[int]:
        for one, row in zip(texts, logits, strict=True):
            rows.setdefault(one.tokens.tobytes(), []).append(row.tobytes())
        return [int(token) for token in logits.argmax(-1)]

    monkeypatch.setattr("graphcore.models.streams.running._choose_tokens", noted)
    prompts = [drawn(seed, length) for seed, length in enumerate((3, 30, 12, 1, 19))]
    for prompt in prompts:
        run(batch(kind, 1), [text(prompt, 9)])
    run(batch(kind, 3), [text(prompt, 9) for prompt in prompts])
    assert all(len(item) == 2 and item[0] == item[1] for item in rows.values())


def test_step_computes_only_rows_that_are_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    running = batch("llama", 4, piece=None)
    calls = watched(running, monkeypatch)
    texts = [text(drawn(seed, 5), most) for seed, most in enumerate((2, 9, 3, 9))]
    run(running, texts)
    steps = [shape[0] for _, _, shape in calls if shape[1] == 1]
    assert steps == [4, 3] + [2] * 6
    assert all(start == 0 for start, _, shape in calls if shape[1] == 1)


def test_running_texts_wait_for_no_more_than_a_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    running = batch("llama", 4)
    calls = watched(running, monkeypatch)
    first = text(drawn(0, 5), 40)
    running.join(first)
    running.read()
    running.step()
    others = [text(drawn(seed, length), 3) for seed, length in enumerate((60, 30, 2, 7, 3, 50, 20))]
    run(running, others)
    read = 0
    for start, _, (rows, size) in calls:
        if start == 0 and size == 1:
            read = 0
            continue
        read += rows * size
        assert read <= PIECE
    assert first.new_tokens == alone("llama", drawn(0, 5), 40)
    assert [one.new_tokens for one in others] == [
        alone("llama", drawn(s, n), 3) for s, n in enumerate((60, 30, 2, 7, 3, 50, 20))
    ]


def test_prompts_are_read_in_the_order_of_joining() -> None:
    running = batch("llama", 4)
    texts = [text(drawn(seed, length), 30) for seed, length in enumerate((40, 3, 20, 2))]
    for one in texts:
        running.join(one)
    begun: list[Text] = []
    while len(begun) < 4:
        running.read()
        begun += [one for one in texts if one.new_tokens and one not in begun]
        running.step()
    assert begun == texts


def test_short_prompts_are_read_in_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    running = batch("gpt2", 4, piece=32)
    calls = watched(running, monkeypatch)
    for seed in range(4):
        running.join(text(drawn(seed, 5 + seed), 2))
    running.read()
    assert calls == [(0, 4, (4, 8))]


def test_prompt_that_was_put_off_is_read_where_rows_are_free_then() -> None:
    running = batch("llama", 4)
    first = [text(drawn(seed, 2), 9) for seed in range(2)]
    late = [text(drawn(9, 6), 1), text(drawn(3, 3), 4)]  # more than a piece together
    others = [text(drawn(seed, 3), 4) for seed in (7, 8)]
    for one in first:
        running.join(one)
    running.read()
    for one in late:
        running.join(one)
    running.read()
    for one in first:
        one.fail(RunError("cancelled"))
    running.step()
    assert run(running, others) == [alone("llama", drawn(seed, 3), 4) for seed in (7, 8)]
    assert [one.new_tokens for one in late] == [alone("llama", drawn(9, 6), 1), alone("llama", drawn(3, 3), 4)]


def test_drawn_tokens_are_those_of_the_seed_alone() -> None:
    prompts = [drawn(seed, 6 + 5 * seed) for seed in range(5)]
    want = [alone("llama", prompt, 12, 1.5, seed) for seed, prompt in enumerate(prompts)]
    texts = [text(prompt, 12, temperature=1.5, seed=seed) for seed, prompt in enumerate(prompts)]
    texts.insert(2, text(prompts[0], 12))
    got = run(batch("llama", 3), texts)
    assert got.pop(2) == alone("llama", prompts[0], 12)
    assert got == want


# Failures


class Broken(Exception):
    pass


def broken(monkeypatch: pytest.MonkeyPatch, token: int) -> None:
    """Let each call fail that has this token."""
    own = Slots.run

    def failing(self: Slots, start: int, stop: int, /, *arrays: Any) -> list[Any]:
        if (arrays[0] == token).any():
            raise Broken
        return own(self, start, stop, *arrays)

    monkeypatch.setattr(Slots, "run", failing)


@pytest.mark.parametrize("length", [1, 5, 30])
def test_text_whose_call_fails_ends_and_the_others_go_on(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = WORDS - 1
    good = [drawn(seed, 6, bad) for seed in range(4)]
    want = [alone("llama", prompt, 12) for prompt in good]
    assert not any(bad in item for item in want)
    broken(monkeypatch, bad)
    texts = [text(prompt, 12) for prompt in good]
    wrong = text((*drawn(7, length - 1, bad), bad), 5)
    assert run(batch("llama", 5, piece=32), [*texts[:2], wrong, *texts[2:]])[2] == []
    assert isinstance(wrong.error, Broken)
    assert [one.new_tokens for one in texts] == want
    assert all(one.error is None for one in texts)


def test_text_that_fails_in_mid_run_keeps_its_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    prompts = [drawn(seed, 9) for seed in range(3)]
    want = [alone("gpt2", prompt, 20) for prompt in prompts]
    others = {token for text in (*want[1:], *prompts[1:]) for token in text}
    mine = [token for token in want[0] if token not in others]
    assert mine, "a token that the first text alone makes"
    broken(monkeypatch, mine[0])
    texts = [text(prompt, 20) for prompt in prompts]
    for one in texts:
        one.new_tokens.clear()
    run(batch("gpt2", 3), texts)
    assert isinstance(texts[0].error, Broken) or mine[0] == want[0][-1]
    assert texts[0].new_tokens == want[0][: want[0].index(mine[0]) + 1]
    assert [one.new_tokens for one in texts[1:]] == want[1:]


def test_logits_that_are_not_numbers_end_their_text_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Slots.run
    prompts = [drawn(seed, 4 + seed) for seed in range(3)]

    def spoilt(self: Slots, start: int, stop: int, /, *arrays: Any) -> list[Any]:
        (logits,) = own(self, start, stop, *arrays)
        logits = logits.copy()
        logits[arrays[1] == len(prompts[1]) + 3] = np.nan
        return [logits]

    want = [alone("llama", prompt, 3) for prompt in (prompts[0], prompts[2])]
    ahead = alone("llama", prompts[1], 3)
    monkeypatch.setattr(Slots, "run", spoilt)
    first, second, third = texts = [text(prompts[0], 3), text(prompts[1], 8), text(prompts[2], 1)]
    run(batch("llama", 3, piece=None), texts)
    assert isinstance(second.error, RunError)
    assert "logits of the model are not finite" in str(second.error)
    assert [first.new_tokens, second.new_tokens, third.new_tokens] == [want[0], ahead, want[1][:1]]


def test_seed_is_kept_through_the_failure_of_another_text(monkeypatch: pytest.MonkeyPatch) -> None:
    bad = WORDS - 1
    prompts = [drawn(seed, 5, bad) for seed in range(2)]
    want = [alone("llama", prompt, 6, 0.8, 3) for prompt in prompts]
    broken(monkeypatch, bad)
    texts = [text(prompt, 6, temperature=0.8, seed=3) for prompt in prompts]
    wrong = text((*drawn(5, 4, bad), bad), 5)
    run(batch("llama", 3, piece=32), [texts[0], wrong, texts[1]])
    for one, made_alone in zip(texts, want, strict=True):
        cut = made_alone.index(bad) + 1 if bad in made_alone else len(made_alone)
        assert one.new_tokens == made_alone[:cut]


def test_texts_fill_the_cache_to_its_end() -> None:
    for kind in ("llama", "gpt2"):
        texts = [text(drawn(seed, length), CACHE + 1 - length) for seed, length in enumerate((90, CACHE, 70))]
        got = run(batch(kind, 2), texts)
        assert got == [alone(kind, drawn(s, n), CACHE + 1 - n) for s, n in enumerate((90, CACHE, 70))]
    assert build_model("llama").buffers["keys0"].shape[0] == 0, "the model's own buffers were not used"
