"""Texts that decoders generate: greedy, drawn, in batches, streamed, cancelled, and refusals."""

from __future__ import annotations

import functools
import gc as collector
import inspect
import re
import threading
import weakref
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import graphcore as gc
from graphcore import Model, models
from graphcore.models import gpt2, llama
from graphcore.models.streams.sampling import Choice
from tests.project.page_runner import expected_output
from tests.support.decoders import gpt2_logits, llama_logits, softmax, some
from tests.support.graphs import Array

WORDS, CACHE = 41, 24
LLAMA = llama.Config(vocabulary=WORDS, width=32, inner=24, layers=2, heads=4, kv_heads=2, size=16, positions=64)
BODY = llama.Config(vocabulary=WORDS, width=32, inner=24, layers=1, heads=4, kv_heads=2, size=8, positions=64)
GPT2 = gpt2.config(vocabulary=WORDS, width=32, inner=48, layers=2, heads=2, positions=64)
KINDS = ("llama", "llama that no kernel takes", "gpt2")
PROMPTS = [[3, 17, 40, 0, 5], [9], [8, 7, 6]]


@functools.cache
def build_model(kind: str) -> tuple[Model, Callable[[list[int]], Array]]:
    """A decoder, and the logits after a text that is recomputed as a whole."""
    session = gc.InferenceSession(intra_op_num_threads=1)
    if kind == "gpt2":
        arrays = some(gpt2.shapes(GPT2))
        return session.load(gpt2.build(GPT2, arrays, cache=CACHE)), lambda text: gpt2_logits(GPT2, arrays, text)[-1]
    config = LLAMA if kind == "llama" else BODY
    arrays = some(llama.shapes(config))
    graph = llama.build(config, arrays, cache=CACHE)
    return session.load(graph), lambda text: llama_logits(config, arrays, text)[-1]


def likeliest(kind: str, prompt: list[int], most: int, stop: Collection[int] = ()) -> list[int]:
    """The naive loop: the whole text again for each token."""
    text: list[int] = []
    while len(text) < most and not (text and text[-1] in stop):
        text.append(int(build_model(kind)[1](prompt + text).argmax()))
    return text


# Greedy


@pytest.mark.parametrize("kind", KINDS)
def test_greedy_text_is_that_of_the_naive_loop(kind: str) -> None:
    model, _ = build_model(kind)
    for prompt in PROMPTS:
        got = models.generate(model, prompt, 12)
        assert got.dtype == np.int64
        assert got.tolist() == likeliest(kind, prompt, 12)


@pytest.mark.parametrize("kind", KINDS)
def test_prompts_of_a_batch_give_what_each_gives_alone(kind: str) -> None:
    model, _ = build_model(kind)
    got = models.generate(model, PROMPTS, 12)
    assert [text.tolist() for text in got] == [likeliest(kind, prompt, 12) for prompt in PROMPTS]


def test_prompts_are_lists_or_arrays_of_any_integers() -> None:
    model, _ = build_model("llama")
    want = models.generate(model, [3, 17], 5)
    forms: list[Any] = [(3, 17), np.array([3, 17]), np.array([3, 17], np.uint8), [np.int32(3), 17]]
    for prompt in forms:
        np.testing.assert_array_equal(models.generate(model, prompt, 5), want)
    forms = [[[3, 17]] * 2, np.array([[3, 17]] * 2, np.int32), [np.array([3, 17]), (3, 17)]]
    for prompts in forms:
        np.testing.assert_array_equal(models.generate(model, prompts, 5), [want, want])


def test_one_prompt_in_a_list_gives_a_list_of_one_text() -> None:
    model, _ = build_model("llama")
    (text,) = models.generate(model, [[3, 17]], 5)
    np.testing.assert_array_equal(text, models.generate(model, [3, 17], 5))


def test_text_fills_the_cache_to_its_end() -> None:
    model, _ = build_model("llama")
    # The last token is not read any more, so it needs no place.
    assert models.generate(model, [3] * 20, 5).tolist() == likeliest("llama", [3] * 20, 5)
    assert models.generate(model, [3] * CACHE, 1).tolist() == likeliest("llama", [3] * CACHE, 1)


@pytest.mark.parametrize("form", ["float16", "bfloat16", "int4", "int8", "int8_dynamic"])
def test_decoder_of_narrow_weights_generates_the_same_from_a_file(form: str, tmp_path: Path) -> None:
    arrays = some(llama.shapes(LLAMA))
    if form.endswith("16"):
        narrow = gc.DType.of(form).numpy
        graph = llama.build(LLAMA, {name: array.astype(narrow) for name, array in arrays.items()}, cache=CACHE)
        exact = {name: array.astype(narrow).astype(np.float32) for name, array in arrays.items()}
        whole = gc.InferenceSession().load(llama.build(LLAMA, exact, cache=CACHE))
    else:
        options: dict[str, Any] = {"block_size": 16} if form == "int4" else {}
        graph = gc.quantize(llama.build(LLAMA, arrays, cache=CACHE), form, **options).graph
        whole = gc.InferenceSession().load(graph)
    graph.export(tmp_path / "model.onnx")
    model = gc.InferenceSession().load(tmp_path / "model.onnx")
    assert len(model.buffers.in_place) == 2 * LLAMA.layers
    for prompt in PROMPTS:
        np.testing.assert_array_equal(models.generate(model, prompt, 8), models.generate(whole, prompt, 8))


def test_no_new_tokens_give_an_empty_text() -> None:
    model, _ = build_model("llama")
    assert models.generate(model, [3, 17], 0).shape == (0,)
    assert models.generate(model, [3, 17], 0).dtype == np.int64
    assert [text.shape for text in models.generate(model, PROMPTS, 0)] == [(0,)] * 3
    assert list(models.stream(model, [3, 17], 0)) == []


# Ends


def test_text_ends_with_a_stop_token() -> None:
    model, _ = build_model("llama")
    whole = likeliest("llama", PROMPTS[0], 12)
    stop = whole[5]
    want = whole[: whole.index(stop) + 1]
    assert models.generate(model, PROMPTS[0], 12, stop=[stop]).tolist() == want
    assert models.generate(model, PROMPTS[0], 12, stop=np.array([stop])).tolist() == want


def test_texts_of_a_batch_end_each_on_its_own() -> None:
    model, _ = build_model("llama")
    stop = [likeliest("llama", PROMPTS[0], 12)[3], likeliest("llama", PROMPTS[2], 12)[1]]
    want = [likeliest("llama", prompt, 12, stop) for prompt in PROMPTS]
    assert len({len(text) for text in want}) > 1
    got = models.generate(model, PROMPTS, 12, stop=stop)
    assert [text.tolist() for text in got] == want
    columns = np.array(list(models.stream(model, PROMPTS, 12, stop=stop)))
    assert len(columns) == max(map(len, want))
    for column, text in zip(columns.T, want, strict=True):
        assert column.tolist() == text + [-1] * (len(columns) - len(text))


# Streams


def test_stream_gives_the_tokens_of_the_text_one_at_a_time() -> None:
    model, _ = build_model("llama")
    steps = models.stream(model, PROMPTS, 6)
    first = next(steps)
    assert first.shape == (3,)
    got = np.array([first, *steps])
    np.testing.assert_array_equal(got.T, models.generate(model, PROMPTS, 6))


def test_stream_that_is_left_early_changes_nothing() -> None:
    model, _ = build_model("llama")
    before = dict(model.buffers)
    steps = models.stream(model, PROMPTS[0], 12)
    assert int(next(steps)[0]) == likeliest("llama", PROMPTS[0], 1)[0]
    other = models.stream(model, PROMPTS[2], 12)
    next(other)
    steps.close()
    assert list(steps) == []
    assert [int(t) for (t,) in other] == likeliest("llama", PROMPTS[2], 12)[1:]
    assert models.generate(model, PROMPTS[0], 12).tolist() == likeliest("llama", PROMPTS[0], 12)
    for name, array in dict(model.buffers).items():
        np.testing.assert_array_equal(array, before[name])


def test_stream_has_tokens_of_its_own() -> None:
    model, _ = build_model("llama")
    prompts = np.array([[3, 17, 40], [9, 8, 7]])
    want = np.array(list(models.stream(model, prompts, 8))).T
    steps, prompts[...] = models.stream(model, prompts, 8), WORDS
    got = []
    for tokens in steps:
        got.append(tokens.copy())
        tokens[...] = WORDS
    np.testing.assert_array_equal(np.array(got).T, want)


@pytest.mark.full
def test_stream_that_is_dropped_frees_its_cache_and_outlives_its_model() -> None:
    model = gc.InferenceSession().load(llama.build(LLAMA, cache=8))
    want = models.generate(model, [1], 5).tolist()
    steps = models.stream(model, [1], 5)
    got = [int(next(steps)[0])]
    del model
    collector.collect()
    assert got + [int(token) for (token,) in steps] == want
    steps = models.stream(build_model("llama")[0], [1], 5)
    next(steps)
    state = weakref.ref(inspect.getgeneratorlocals(steps)["running"])
    assert state() is not None
    del steps
    collector.collect()
    assert state() is None


def test_generation_that_is_interrupted_can_begin_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _ = build_model("llama")
    calls = []

    def interrupted(choice: Choice, logits: Array, numbers: Array | None = None) -> Array:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return np.zeros(len(logits), np.int64)

    with monkeypatch.context() as patch:
        patch.setattr(Choice, "of", interrupted)
        with pytest.raises(KeyboardInterrupt):
            models.generate(model, PROMPTS[0], 12)
    assert models.generate(model, PROMPTS[0], 12).tolist() == likeliest("llama", PROMPTS[0], 12)


def test_texts_are_generated_by_several_threads_at_once() -> None:
    model, _ = build_model("llama")
    results: dict[int, list[int]] = {}

    def work(number: int) -> None:
        results[number] = models.generate(model, PROMPTS[number % 3], 12).tolist()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: likeliest("llama", PROMPTS[number % 3], 12) for number in range(6)}


def test_progress_is_a_line_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    model, _ = build_model("llama")
    models.generate(model, [3], 5, progress=True)
    shown = capsys.readouterr()
    assert "5/5 tokens" in shown.err
    assert shown.err.count("\n") == 1
    assert not shown.out
    results: list[tuple[int, int | None]] = []
    models.generate(model, [3], 5, progress=lambda done, most: results.append((done, most)))
    assert results == [(n, 5) for n in range(1, 6)]
    models.generate(model, [3], 5)
    assert not capsys.readouterr().err


# What is drawn


def chances(logits: Any, temperature: float = 1.0, top_k: int | None = None, top_p: float | None = None) -> Array:
    choice = Choice(temperature, top_k, top_p, np.random.default_rng(0))
    return np.asarray(choice.probabilities(np.array([logits], np.float32))[0])


def naive(logits: list[float], temperature: float, top_k: int | None, top_p: float | None) -> Array:
    """Token by token, the likeliest first."""
    own = softmax(np.array(logits, np.float32).astype(np.float64) / temperature)
    order = sorted(range(len(own)), key=lambda i: (-own[i], i))
    remaining = order if top_k is None else [i for i in order if own[i] >= own[order[min(top_k, len(order)) - 1]]]
    own = np.where(np.isin(np.arange(len(own)), remaining), own, 0)
    own = own / own.sum()
    if top_p is not None:
        total, count = 0.0, 0
        while count == 0 or total < top_p - 1e-12:
            if count == len(remaining):
                break
            total += own[remaining[count]]
            count += 1
        own = np.where(np.isin(np.arange(len(own)), remaining[:count]), own, 0)
    return np.asarray(own / own.sum())


@given(
    st.lists(st.integers(-8, 8), min_size=1, max_size=12, unique=True),
    st.sampled_from([0.3, 1.0, 2.5]),
    st.none() | st.integers(1, 14),
    st.none() | st.sampled_from([0.01, 0.21, 0.5, 0.93, 1.0]),
)
def test_probabilities_are_those_of_the_naive_form(
    logits: list[float], temperature: float, top_k: int | None, top_p: float | None
) -> None:
    got = chances(logits, temperature, top_k, top_p)
    np.testing.assert_allclose(got, naive(logits, temperature, top_k, top_p), atol=1e-12)


def test_probabilities_keep_all_that_are_as_likely_as_the_last() -> None:
    np.testing.assert_allclose(chances([1, 1, 1, 0], top_k=2), [1 / 3, 1 / 3, 1 / 3, 0])


def test_probabilities_are_right_for_temperatures_and_logits_without_bounds() -> None:
    np.testing.assert_array_equal(chances([1, 3, 2], temperature=1e-320), [0, 1, 0])
    np.testing.assert_allclose(chances([1, 3, 2], temperature=1e300), [1 / 3] * 3)
    np.testing.assert_array_equal(chances([-np.inf, 3e38, -3e38]), [0, 1, 0])


def test_tokens_are_drawn_as_often_as_they_are_likely() -> None:
    logits = np.array([[0.0, 1.0, 2.0, -np.inf]] * 20_000, np.float32)
    drawn = Choice(1.0, None, None, np.random.default_rng(7)).of(logits)
    np.testing.assert_allclose(np.bincount(drawn, minlength=4) / len(drawn), softmax(logits[0]), atol=0.015)
    assert (drawn < 3).all()


def test_drawn_tokens_are_those_of_the_seed() -> None:
    model, _ = build_model("llama")
    draw = functools.partial(models.generate, model, PROMPTS[0], 12, temperature=1.5)
    np.testing.assert_array_equal(draw(seed=4), draw(seed=np.random.default_rng(4)))
    assert draw(seed=4).tolist() != draw(seed=5).tolist()
    assert len(draw()) == 12


def test_drawing_from_the_likeliest_alone_is_greedy() -> None:
    model, _ = build_model("llama")
    want = models.generate(model, PROMPTS[0], 12)
    for options in ({"top_k": 1}, {"top_p": 1e-9}):
        got = models.generate(model, PROMPTS[0], 12, temperature=1.5, seed=1, **options)
        np.testing.assert_array_equal(got, want)


def test_drawn_tokens_are_among_the_likeliest_of_their_text() -> None:
    model, logits = build_model("llama")
    text = list(PROMPTS[0])
    for token in models.generate(model, text, 12, temperature=3.0, top_k=3, seed=2).tolist():
        assert token in np.argsort(-logits(text))[:3]
        text.append(token)


# The document


def test_code_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    page = Path(__file__).parents[2] / "docs" / "howto" / "text_generation.md"
    namespace: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL):
        exec(block, namespace)
    assert capsys.readouterr().out == expected_output(page)
    assert len(namespace["streamed"]) == 20
    state = namespace["model"].state()
    state(np.array([[1, 5, 9]]), np.array([3]))
    (want,) = state(np.array([[7]]), np.array([4]))
    np.testing.assert_allclose(namespace["logits"], want, atol=1e-5)
