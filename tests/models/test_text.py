"""Text in, text out: folders, prompts, pieces, stop strings, log-probabilities and chat templates."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphcore import load_tensors, models, save_tensors
from graphcore.errors import FeedError, ModelError, RunCancelledError, RunError
from graphcore.models import TextDecoder
from graphcore.models.text import chat
from graphcore.models.text.chat import ChatTemplate
from graphcore.models.text.request import Output
from tests.support.text_folders import END, FIELDS, folder, tokenizer

TOKENIZER = tokenizer()
MESSAGES = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TextDecoder]:
    with models.load(folder(tmp_path_factory.mktemp("tiny")), slots=3) as result:
        yield result


def alone(decoder: TextDecoder, prompt: str, count: int) -> list[int]:
    return [int(token) for token in models.generate(decoder.model, decoder.encode(prompt), count, stop=[END])]


# Decoders


def test_text_is_that_of_the_tokens_of_the_model(decoder: TextDecoder) -> None:
    result = decoder.generate("Héllo", max_tokens=12)
    tokens = alone(decoder, "Héllo", 12)
    assert list(result.tokens) == tokens
    assert result.text == decoder.decode(tokens)
    assert (result.finish_reason, result.stop, result.prompt_tokens, result.logprobs) == ("length", None, 6, ())
    assert (decoder.context, decoder.eos) == (256, frozenset([END]))


def test_texts_of_several_requests_equal_those_alone(decoder: TextDecoder) -> None:
    prompts = ["a", "some words", "€" * 9, "x" * 40]
    requests = [decoder.submit(prompt, max_tokens=15) for prompt in prompts]
    assert [list(each.result().tokens) for each in requests] == [alone(decoder, p, 15) for p in prompts]
    assert all(each.done for each in requests)


def test_pieces_join_to_the_text_with_their_tokens_and_logprobs(decoder: TextDecoder) -> None:
    result = decoder.generate("Hello", max_tokens=30, logprobs=2, temperature=1.0, seed=5)
    pieces = list(decoder.stream("Hello", max_tokens=30, logprobs=2, temperature=1.0, seed=5))
    assert "".join(piece.text for piece in pieces) == result.text
    assert sum((piece.tokens for piece in pieces), ()) == result.tokens
    assert sum((piece.logprobs for piece in pieces), ()) == result.logprobs
    assert len(pieces) > 5
    assert [len(each.top) for each in result.logprobs] == [2] * 30


def test_tokens_and_messages_are_prompts_too(decoder: TextDecoder) -> None:
    assert decoder.generate(decoder.encode("ab"), max_tokens=4) == decoder.generate("ab", max_tokens=4)
    prompt = decoder.chat_prompt(MESSAGES)
    assert prompt == "<s>user: hi\nassistant: "
    answer = decoder.chat(MESSAGES, max_tokens=4)
    assert answer == decoder.generate(decoder.encode(prompt), max_tokens=4)
    assert "".join(piece.text for piece in decoder.stream(MESSAGES, max_tokens=4)) == answer.text


def test_stop_string_ends_the_text_before_it_and_frees_the_slot(decoder: TextDecoder) -> None:
    whole = decoder.generate("Hello", max_tokens=30)
    stop = whole.text[6:9]
    for options in ({"stop": stop}, {"stop": ["never", stop]}):
        result = decoder.generate("Hello", max_tokens=30, **options)
        assert (result.text, result.finish_reason, result.stop) == (whole.text[: whole.text.find(stop)], "stop", stop)
        assert len(result.tokens) < 30
        assert "".join(piece.text for piece in decoder.stream("Hello", max_tokens=30, **options)) == result.text


def test_end_token_ends_the_text(tmp_path: Path) -> None:
    plain = folder(tmp_path)
    with models.load(plain) as decoder:
        end = decoder.generate("Hello", max_tokens=9).tokens[4]
    with models.load(folder(tmp_path, eos_token_id=[end])) as decoder:
        assert decoder.eos == frozenset([end, END])
        result = decoder.generate("Hello", max_tokens=9)
        assert (result.tokens[-1], result.finish_reason, result.stop) == (end, "stop", None)
        assert result.text == decoder.decode(result.tokens[:-1])


def test_sampling_takes_the_defaults_of_the_model(tmp_path: Path) -> None:
    with models.load(folder(tmp_path, temperature=0.6, top_k=3, top_p=0.9)) as decoder:
        greedy = decoder.generate("Hello", max_tokens=9)
        assert list(greedy.tokens) == alone(decoder, "Hello", 9)
        drawn = decoder.generate("Hello", max_tokens=9, temperature=None, seed=3)
        options: dict[str, Any] = {"temperature": 0.6, "top_k": 3, "top_p": 0.9, "seed": 3}
        want = models.generate(decoder.model, decoder.encode("Hello"), 9, **options)
        assert list(drawn.tokens) == want.tolist()
        assert decoder.generate("Hello", max_tokens=9, temperature=0.6, seed=3) == drawn
        options |= {"top_k": 200, "top_p": 1.0}
        want = models.generate(decoder.model, decoder.encode("Hello"), 9, **options)
        assert list(decoder.generate("Hello", max_tokens=9, **options).tokens) == want.tolist()


def test_lookup_gives_the_same_text(decoder: TextDecoder) -> None:
    prompt = "ab cd " * 6
    assert decoder.generate(prompt, max_tokens=20, lookup=4) == decoder.generate(prompt, max_tokens=20)


def test_request_that_is_cancelled_raises_after_its_pieces(decoder: TextDecoder) -> None:
    request = decoder.submit("Hello", max_tokens=200)
    assert next(iter(request)).text
    assert request.cancel()
    with pytest.raises(RunCancelledError):
        request.result()
    stream = decoder.stream("Hello", max_tokens=200)
    next(stream)
    stream.close()  # type: ignore[attr-defined]
    assert decoder.generate("Hello", max_tokens=3).finish_reason == "length"


def test_text_without_a_maximum_fills_the_context(decoder: TextDecoder) -> None:
    result = decoder.generate("Hello", temperature=1.0, seed=1)
    assert len(result.tokens) == 252 or result.finish_reason == "stop"


@pytest.mark.parametrize(
    ("prompt", "options", "why"),
    [
        ("", {}, "a prompt of 0 tokens does not fit"),
        ("a" * 300, {}, "a prompt of 300 tokens does not fit in a context of 256"),
        ("a" * 200, {"max_tokens": 100}, "do not fit into a cache of 256"),
        ("a", {"max_tokens": -1}, "max_tokens must be an integer of at least 0"),
        ("a", {"stop": [""]}, "stop must be strings"),
        ("a", {"stop": [3]}, "stop must be strings"),
        ("a", {"top_k": 3}, "top_k and top_p need sampling"),
        ("a", {"logprobs": -1}, "logprobs must be an integer"),
        ("\ud800", {}, "is not a text"),
        ([400], {}, "400 is not a token"),
        ([], {}, "a prompt is empty"),
        (None, {}, "None is not a prompt"),
        ([1.5], {}, "is not a prompt"),
        ([{"content": "hi"}], {}, "messages must be a list of dicts with a role"),
    ],
)
def test_invalid_request_is_refused(decoder: TextDecoder, prompt: Any, options: dict[str, Any], why: str) -> None:
    with pytest.raises(FeedError, match=why):
        decoder.submit(prompt, **options)


def test_closed_decoder_refuses_texts(tmp_path: Path) -> None:
    decoder = models.load(folder(tmp_path))
    assert decoder.close()
    with pytest.raises(RunError, match="closed"):
        decoder.generate("a")


# Pieces


def output(text: bytes, *stops: str) -> Output:
    result = Output(TOKENIZER, [], frozenset([END]), stops)
    for token in tokens(text):
        if result.add(token):
            break
    return result


def tokens(text: bytes) -> list[int]:
    """Return a token for each byte, also of an incomplete character."""
    characters = {b: c for c, b in _BYTES.items()}
    return [TOKENIZER.token_to_id(characters[b]) or 0 for b in text]


def _bytes() -> dict[str, int]:
    """Return the byte of each character of the alphabet of bytes: printable ones are themselves, others in order."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    return {chr(b): b for b in printable} | {chr(256 + n): b for n, b in enumerate(others)}


_BYTES = _bytes()


@given(st.text(max_size=12))
def test_text_comes_back_in_pieces_of_whole_characters(text: str) -> None:
    result = output(text.encode())
    result.finish()
    assert "".join(piece for piece, _ in result.pieces) == text


def test_text_is_held_back_until_it_is_certain() -> None:
    family = "👨‍👩‍👧"
    result = output(f"a{family}b".encode())
    assert [piece for piece, _ in result.pieces] == ["a", family + "b"]
    assert [piece for piece, _ in output("e\u0301".encode()).pieces][:1] == ["e"]
    assert [piece for piece, _ in output("né".encode()).pieces] == ["n"]
    assert [piece for piece, _ in output("né!".encode()).pieces] == ["n", "é!"]
    assert [piece for piece, _ in output(b"ab\nUsx\nUser: y", "\nUser:").pieces] == ["a", "b", "\nUsx"]


def test_incomplete_characters_become_replacements_at_the_end() -> None:
    result = output("a€".encode()[:-1])
    assert [piece for piece, _ in result.pieces] == ["a"]
    result.finish()
    result.finish()
    assert "".join(piece for piece, _ in result.pieces) == "a\ufffd"
    endless = output(b"\x80" * 40)
    assert sum(len(piece) for piece, _ in endless.pieces) >= 30


def test_earliest_stop_string_ends_the_text() -> None:
    result = output(b"abcdef", "ef", "cd", "d")
    assert (result.stop, "".join(piece for piece, _ in result.pieces)) == ("cd", "ab")


# Chat templates


def render(source: str, **variables: Any) -> str:
    return ChatTemplate("tiny", source, {"bos_token": "<s>"}).render(messages=MESSAGES, tools=None, **variables)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ bos_token }}{{ messages[0]['content'] | trim }}", "<s>hi"),
        ("{%- for m in messages -%}\n  {{ m.content }}{% break %}\n{%- endfor %}", "hi"),
        ("{{ messages | tojson }}", '[{"role": "user", "content": "hi"}]'),
        ("{{ {'a': 'é<'} | tojson(indent=1) }}", '{\n "a": "é<"\n}'),
        ("{{ strftime_now('%%') }}", "%"),
        ("{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}", "1"),
        ("{{ 1700000000 | string }}{% macro f(x) %}{{ x }}{% endmacro %}{{ f(10 ** 9) }}", "17000000001000000000"),
        ("{% generation %}{{ messages[-1].content }}{% endgeneration %}", "hi"),
        ("{% macro f(x) %}[{{ x }}]{% endmacro %}{{ f('a') ~ 'b' * 2 }}", "[a]bb"),
    ],
)
def test_template_has_the_usual_names(source: str, text: str) -> None:
    assert render(source) == text


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("{{ raise_exception('roles must alternate') }}", "refuses the messages: roles must alternate"),
        ("{{ messages.append(1) }}", "refuses the messages"),
        ("{{ messages[0].name.first }}", "refuses the messages"),
        ("{{ ''.__class__.__mro__ }}", "refuses the messages"),
        ("{{ 1 / 0 }}", "refuses the messages: division by zero"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "refuses the messages|steps"),
        ("{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}", "steps"),
        ("{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}", "steps"),
        ("{{ 'a' * 10 ** 9 }}", "a value of more than"),
        ("{{ [1] * 10 ** 9 }}", "a value of more than"),
        ("{{ 9 ** 99999 }}", "an integer of more than"),
        ("{{ 'a' | center(10 ** 9) }}", "a value of more than"),
        ("{{ 'a'.ljust(10 ** 9) }}", "a value of more than"),
        ("{{ '%0999999999d' % 1 }}", "too wide"),
        ("{{ ('a' * 99999).replace('a', 'b' * 99999) }}", "a value of more than"),
        ("{{ (['a'] * 99999) | join('b' * 99999) }}", "a value of more than"),
        ("{{ '{:>999999999}'.format(1) }}", "too wide"),
        (
            "{% set ns = namespace(s='a') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
            "a value of",
        ),
        (
            "{% set ns = namespace(s='a') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
            "a value of",
        ),
        ("{% set ns = namespace(n=9) %}{% for i in range(99) %}{% set ns.n = ns.n * ns.n %}{% endfor %}", "an integer"),
        (
            "{% set ns = namespace(s='a') %}{% for i in range(99) %}{% set t %}{{ ns.s }}{{ ns.s }}{% endset %}"
            "{% set ns.s = t %}{% endfor %}",
            "a value of",
        ),
    ],
)
def test_template_that_fails_or_does_not_end_is_refused(source: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "MAX_STEPS", 20_000)
    with pytest.raises(FeedError, match=why):
        render(source)


def test_template_ends_at_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat, "MAX_SECONDS", -1.0)
    with pytest.raises(FeedError, match="seconds"):
        render("{% for m in messages %}{% endfor %}")


def test_invalid_template_is_named() -> None:
    with pytest.raises(ModelError, match="the chat template is invalid"):
        render("{% for %}")


# Folders


def test_template_is_read_from_any_of_its_places(tmp_path: Path) -> None:
    folder(tmp_path, template=None)
    with models.load(tmp_path) as decoder, pytest.raises(FeedError, match="no chat template"):
        decoder.chat(MESSAGES)
    named = [{"name": "rag", "template": "rag"}, {"name": "default", "template": "named"}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    with models.load(tmp_path) as decoder:
        assert decoder.chat_prompt(MESSAGES) == "named"
    (tmp_path / "chat_template.jinja").write_text("é {{ bos_token }}", encoding="utf-8")
    with models.load(tmp_path) as decoder:
        assert decoder.chat_prompt(MESSAGES) == "é "


def test_unknown_type_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    for kind, help in (("lama", "did you mean 'llama'"), ("zzz", "supported type"), (3, "supported type")):
        folder(tmp_path)
        (tmp_path / "config.json").write_text(json.dumps(FIELDS | {"model_type": kind}))
        with pytest.raises(ModelError, match=f"model_type is {kind!r}; supported is .*gpt2") as caught:
            models.load(tmp_path)
        assert help in (caught.value.help or "")


@pytest.mark.parametrize("missing", ["config.json", "tokenizer.json", "model.safetensors"])
def test_missing_file_is_named(tmp_path: Path, missing: str) -> None:
    folder(tmp_path)
    (tmp_path / missing).unlink()
    with pytest.raises(ModelError, match=re.escape(missing)):
        models.load(tmp_path)


def test_tokenizer_that_is_none_is_named(tmp_path: Path) -> None:
    folder(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelError, match="is not a tokenizer"):
        models.load(tmp_path)


def test_unsupported_field_is_named_unless_it_is_ignored(tmp_path: Path) -> None:
    folder(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(FIELDS | {"mystery": 1}))
    with pytest.raises(ModelError, match="unknown: mystery"):
        models.load(tmp_path)
    with models.load(tmp_path, ignore=["mystery"], cache=32) as decoder:
        assert decoder.context == 32


def test_weights_are_quantised_by_the_scheme(tmp_path: Path) -> None:
    fields = FIELDS | {"hidden_size": 128, "intermediate_size": 128}
    with models.load(folder(tmp_path, fields), dtype="int4") as decoder:
        result = decoder.generate("Hello", max_tokens=4)
    assert len(result.tokens) == 4


def test_caches_of_int8_have_the_scales_of_the_folder(tmp_path: Path) -> None:
    with models.load(folder(tmp_path)) as decoder:
        scales = models.cache_scales(decoder.model, [decoder.encode("Hello world")])
    with models.load(tmp_path, cache_scales=scales) as decoder:
        assert {decoder.model.buffers[name].dtype for name in scales} == {np.dtype(np.int8)}
        assert len(decoder.generate("Hello", max_tokens=4).tokens) == 4


def test_links_of_a_cache_are_followed(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "main"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    weights = load_tensors(folder(blobs) / "model.safetensors")
    parts = {f"model-{number}.safetensors": list(weights)[number::2] for number in range(2)}
    for name, names in parts.items():
        save_tensors(blobs / name, {each: weights[each] for each in names})
    index = {"weight_map": {each: name for name, names in parts.items() for each in names}}
    (blobs / "model.safetensors.index.json").write_text(json.dumps(index))
    (blobs / "model.safetensors").unlink()
    for path in blobs.iterdir():
        (snapshot / path.name).symlink_to(Path("..", "..", "blobs", path.name))
    with models.load(snapshot) as decoder:
        assert len(decoder.generate("Hello", max_tokens=2).tokens) == 2
        assert np.isfinite(decoder.generate("Hello", max_tokens=1, logprobs=1).logprobs[0].logprob)
