"""Speculative decoding: a draft model proposes tokens, and one call of the model checks them."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore import models
from graphcore.errors import ModelError
from graphcore.models import llama
from graphcore.models.streams.running import Draft
from graphcore.models.streams.sampling import DRAFT_TOKENS, decoder_of
from graphcore.runtime.buffers.runners import Slots
from tests.support.decoders import BODY, CACHE, KINDS, LLAMA, WORDS, alone, build_model, drawn, is_alone, some
from tests.support.text_folders import FIELDS, folder, tokenizer


@functools.cache
def draft(seed: int = 0, cache: int = CACHE, vocabulary: int = WORDS) -> Any:
    """Return a smaller decoder with other weights, and logits of the last token alone."""
    config = llama.Config(**{**{n: getattr(BODY, n) for n in BODY.__slots__}, "vocabulary": vocabulary})
    return gc.InferenceSession(intra_op_num_threads=1).load(
        llama.build(config, some(llama.shapes(config), seed), cache=cache)
    )


def calls_of(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """Return the number of calls of each set of slots by the number of its rows."""
    calls: dict[int, int] = {}
    own = Slots.run

    def noted(self: Slots, start: int, stop: int, /, *arrays: Any, **named: Any) -> list[Any]:
        calls[len(self)] = calls.get(len(self), 0) + 1
        return own(self, start, stop, *arrays, **named)

    monkeypatch.setattr(Slots, "run", noted)
    return calls


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_drafted_text_is_the_plain_one(kind: str, seed: int) -> None:
    prompt = drawn(seed, 12)
    for model in (draft(seed), build_model("gpt2"), build_model(kind)):
        assert is_alone(kind, prompt, models.generate(build_model(kind), prompt, 50, draft=model).tolist(), 50)


@pytest.mark.parametrize("seed", range(4))
def test_sampled_text_of_a_seed_is_the_plain_one(seed: int) -> None:
    prompt = drawn(seed, 8)
    for model in (draft(seed), build_model("llama")):
        got = models.generate(build_model("llama"), prompt, 40, temperature=0.7, seed=seed, draft=model)
        assert got.tolist() == alone("llama", prompt, 40, 0.7, seed)


def test_draft_that_is_the_model_leaves_one_call_for_several_tokens() -> None:
    with models.Streams(build_model("llama"), draft=build_model("llama")) as streams:
        tokens = streams.submit(drawn(3, 10), 1 + 7 * DRAFT_TOKENS).result()
        counts = streams.counts
    assert tokens.tolist() == alone("llama", drawn(3, 10), 1 + 7 * DRAFT_TOKENS)
    assert counts.proposed == counts.accepted
    assert counts.calls == len(tokens) - counts.accepted == 1 + 6


def test_draft_is_called_once_for_each_token(monkeypatch: pytest.MonkeyPatch) -> None:
    longer = (*drawn(3, 10), *alone("llama", drawn(3, 10), 31))
    calls = calls_of(monkeypatch)
    with models.Streams(build_model("llama"), slots=3, draft=build_model("llama")) as streams:
        streams.submit(drawn(3, 10), 31).result()
        proposed, of_model = streams.counts.proposed, streams.counts.calls
        assert calls == {3: of_model, 1: proposed}
        streams.submit(longer, 8).result()  # the draft has read it
        assert calls[1] == streams.counts.proposed


def test_drafts_and_lookups_together() -> None:
    prompt = drawn(3, 12, words=5) * 2
    for options in ({"lookup": 8}, {"lookup": 2, "temperature": 0.5, "seed": 1}):
        got = models.generate(build_model("llama"), prompt, 40, draft=draft(), **options)
        assert got.tolist() == alone("llama", prompt, 40, options.get("temperature", 0.0), int(options.get("seed", 0)))


def test_several_texts_and_requests_are_those_alone() -> None:
    prompts = [drawn(seed, 4 + 9 * seed) for seed in range(4)]
    got = models.generate(build_model("llama"), prompts, 12, draft=draft(), stop=[3])
    for prompt, tokens in zip(prompts, got, strict=True):
        want = alone("llama", prompt, 12)
        assert tokens.tolist() == (want[: want.index(3) + 1] if 3 in want else want)
    with models.Streams(build_model("llama"), slots=2, draft=draft()) as streams:
        requests = [streams.submit(prompt, 20) for prompt in prompts]
        assert [each.result().tolist() for each in requests] == [alone("llama", prompt, 20) for prompt in prompts]


def test_text_beyond_the_cache_of_the_draft_goes_on_without_it() -> None:
    prompt = drawn(3, 10)
    most = CACHE + 1 - len(prompt)
    got = models.generate(build_model("llama"), prompt, most, draft=draft(0, 24))
    assert got.tolist() == alone("llama", prompt, most)


def test_proposals_are_the_greedy_tokens_of_the_draft() -> None:
    drafter = Draft(decoder_of("test", draft()))
    first = models.generate(draft(), drawn(1, 700 % CACHE), 9).tolist()
    assert drafter.propose(np.array(drawn(1, 700 % CACHE)), 9) == first
    for length in (20, 12, 25):  # texts with a common prefix, shorter and longer
        tokens = np.array([*drawn(1, 12), *drawn(length, length - 12)])
        assert drafter.propose(tokens, 5) == models.generate(draft(), tokens, 5).tolist()
    assert drafter.propose(np.array(drawn(2, CACHE)), 5) == models.generate(draft(), drawn(2, CACHE), 1).tolist()
    assert drafter.propose(np.array(drawn(2, CACHE + 1)), 5) == []


def test_failure_of_the_draft_ends_the_text_and_not_the_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    with models.Streams(build_model("llama"), draft=draft()) as streams:
        with monkeypatch.context() as patch:
            patch.setattr(Draft, "propose", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                streams.submit([1, 2], 9).result()
        assert streams.submit([1, 2], 9).result().tolist() == alone("llama", (1, 2), 9)


# Refusals


def test_draft_of_another_vocabulary_is_refused() -> None:
    other = draft(0, 24, WORDS + 1)
    with pytest.raises(ModelError, match=f"has {WORDS + 1} tokens, but llama has {WORDS}"):
        models.generate(build_model("llama"), [1], 5, draft=other)
    with pytest.raises(ModelError, match="Streams: the draft model"):
        models.Streams(build_model("llama"), draft=other)


def test_model_without_last_tokens_and_draft_that_is_no_decoder_are_refused() -> None:
    model = gc.InferenceSession().load(llama.build(LLAMA, cache=8))
    with pytest.raises(ModelError, match="draft=llama needs logits of several tokens"):
        models.generate(model, [1], 5, draft=draft())
    graph = gc.Graph("linear", {"x": gc.TensorType(gc.DType.float32, [2])})
    graph.output(graph.inputs[0] * 2)
    with pytest.raises(ModelError, match="draft: linear is not a decoder"):
        models.generate(build_model("llama"), [1], 5, draft=gc.InferenceSession().load(graph))


def test_folder_with_a_draft_gives_the_same_text(tmp_path: Path) -> None:
    for name, fields in (("large", FIELDS), ("small", FIELDS | {"num_hidden_layers": 1}), ("other", FIELDS)):
        (tmp_path / name).mkdir()
        folder(tmp_path / name, fields)
    small = models.load(tmp_path / "small")
    with models.load(tmp_path / "large") as plain, models.load(tmp_path / "large", draft=small) as drafted:
        assert drafted.generate("Hello", max_tokens=40) == plain.generate("Hello", max_tokens=40)
        assert drafted.streams.counts.proposed > 0
    words = tokenizer()
    words.add_tokens(["more"])
    words.save(str(tmp_path / "other" / "tokenizer.json"))
    with pytest.raises(ModelError, match="the tokenizer of the draft other has other tokens"):
        models.load(tmp_path / "large", draft=models.load(tmp_path / "other"))
