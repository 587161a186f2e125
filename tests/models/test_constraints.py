"""Constraints on tokens: grammars by llguidance, penalties, and objects of users."""

from __future__ import annotations

import functools
import json
import re
import string
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphcore as gc
from graphcore import models
from graphcore.errors import FeedError, ModelError
from graphcore.models import grammars, llama
from graphcore.models.grammars import Grammars, Penalties
from tests.support.decoders import WORDS, alone, build_model, drawn, some
from tests.support.graphs import Array
from tests.support.text_folders import folder
from tests.support.tokenizers import EOS, build_tokenizer

pytest.importorskip("llguidance", reason="llguidance is not installed: the extra models")

SIZE = 330
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["red", "green"]}, "maxItems": 2},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
CHAIN = {"$ref": "#/$defs/0", "$defs": {**{str(i): {"$ref": f"#/$defs/{i + 1}"} for i in range(900)}, "900": {}}}
DIGITS = r"[0-9]{3,5}(-[a-f]+)?x"


@functools.cache
def model() -> Any:
    """Return a decoder with more tokens than the tokenizer has."""
    config = llama.Config(vocabulary=SIZE, width=32, inner=24, layers=2, heads=4, kv_heads=2, size=16, positions=512)
    graph = llama.build(config, some(llama.shapes(config)), cache=400, last_tokens=True)
    return gc.InferenceSession(intra_op_num_threads=1).load(graph)


@functools.cache
def grammars_of_model() -> Grammars:
    return Grammars(build_tokenizer(), [EOS], SIZE)


def text_of(tokens: Array) -> str:
    """Return the text of tokens that end with EOS."""
    assert tokens[-1] == EOS
    return str(build_tokenizer().decode(tokens[:-1].tolist()))


@pytest.mark.parametrize("seed", range(4))
def test_json_of_a_schema_validates(seed: int) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    grammar = grammars_of_model().json_schema(PERSON)
    options: dict[str, Any] = {"temperature": 2.0, "seed": seed} if seed else {}
    tokens = models.generate(model(), drawn(seed, 5), 380, constraints=[grammar], **options)
    assert tokens.max() < build_tokenizer().get_vocab_size()
    value = json.loads(text_of(tokens))
    jsonschema.validate(value, PERSON)
    assert isinstance(value["age"], int)


@pytest.mark.parametrize("seed", range(4))
def test_text_matches_its_regular_expression_and_lookup_changes_nothing(seed: int) -> None:
    options: dict[str, Any] = {"temperature": 1.5, "seed": seed} if seed else {}
    grammar = grammars_of_model().regex(DIGITS)
    tokens = models.generate(model(), drawn(seed, 5), 300, constraints=[grammar], **options)
    assert re.fullmatch(DIGITS, text_of(tokens))
    looked_up = models.generate(model(), drawn(seed, 5), 300, constraints=[grammar], lookup=6, **options)
    drafted = models.generate(model(), drawn(seed, 5), 300, constraints=[grammar], draft=model(), **options)
    assert looked_up.tolist() == drafted.tolist() == tokens.tolist()


def test_text_follows_a_lark_grammar() -> None:
    grammar = grammars_of_model().lark('start: "(" start ")" | /[a-c]/')
    tokens = models.generate(model(), [5], 60, constraints=[grammar], temperature=1.0, seed=3)
    opened = text_of(tokens).index(")") if ")" in text_of(tokens) else 1
    assert re.fullmatch(r"\(*[a-c]\)*", text_of(tokens))
    assert text_of(tokens).count("(") == text_of(tokens).count(")") == opened - 1


def test_requests_side_by_side_follow_each_their_own() -> None:
    plain = [models.generate(model(), drawn(seed, 6), 30).tolist() for seed in range(2)]
    constraints: list[list[Any]] = [
        [grammars_of_model().json_schema(PERSON)],
        [grammars_of_model().regex(DIGITS)],
        [Penalties(frequency=5)],
        [],
    ]
    want = [models.generate(model(), drawn(9, 6), 150, constraints=each).tolist() for each in constraints]
    with models.Streams(model(), slots=4) as streams:
        requests = [streams.submit(drawn(9, 6), 150, constraints=each) for each in constraints]
        others = [streams.submit(drawn(seed, 6), 30) for seed in range(2)]
        assert [request.result().tolist() for request in requests] == want
        assert [request.result().tolist() for request in others] == plain


def test_grammar_is_begun_anew_by_each_text() -> None:
    grammar = grammars_of_model().regex("[ab]{2}")
    one, two = models.generate(model(), [drawn(1, 4), drawn(2, 7)], 9, constraints=[grammar], temperature=1.0, seed=1)
    assert {len(text_of(one)), len(text_of(two))} == {2}


@pytest.mark.parametrize(
    ("kind", "source", "reason"),
    [
        ("json_schema", {"type": "nonsense"}, ""),
        ("json_schema", [1], ""),
        ("json_schema", {"default": {1}}, "not JSON serializable"),
        ("json_schema", {"type": "string", "minLength": 5, "maxLength": 3}, ""),
        ("json_schema", {"$ref": "#/nowhere"}, ""),
        ("json_schema", {"allOf": [{"$ref": "#"}]}, ""),
        ("json_schema", {"enum": ["x" * 40_000]}, "it has 40013 characters, more than 32768"),
        ("json_schema", {"type": "array", "prefixItems": [{}] * 10_500}, ""),
        ("regex", "(", ""),
        ("regex", 3, "not a str but int"),
        ("regex", "\ud800", "surrogates"),
        ("lark", "start: x", ""),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_invalid_and_exploding_grammars_are_refused(kind: str, source: Any, reason: str) -> None:
    with pytest.raises(FeedError, match=f"{kind}: the grammar is invalid or too large: .*{reason}"):
        getattr(grammars_of_model(), kind)(source)


def test_schema_that_explodes_later_ends_its_text() -> None:
    grammar = grammars_of_model().json_schema({"type": "object", "properties": {str(i): {} for i in range(600)}})
    with pytest.raises(FeedError, match="the grammar failed: "):
        models.generate(model(), [1], 90, constraints=[grammar])


def test_nested_schema_beyond_the_recursion_of_python_is_refused() -> None:
    schema: Any = {}
    for _ in range(5000):
        schema = {"items": schema}
    with pytest.raises(FeedError, match=r"recursion|50002 characters, more"):  # Python 3.13 writes such deep JSON
        grammars_of_model().json_schema(schema)


def test_long_chains_of_rules_do_not_overflow_the_stack() -> None:
    assert grammars_of_model().json_schema(CHAIN).start() is not None
    rules = "\n".join(f"a{i:x}:a{i + 1:x}" for i in range(3000))
    start = grammars_of_model().lark(f'start:a0\n{rules}\na{3000:x}:"b"').start()
    logits = np.zeros(SIZE, np.float32)
    start.apply(logits)
    assert np.flatnonzero(logits == 0).tolist() == [build_tokenizer().token_to_id("b")]


def test_tokenizer_without_bytes_is_refused() -> None:
    tokenizers = pytest.importorskip("tokenizers")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "</s>": 1}, unk_token="a"))
    with pytest.raises(ModelError, match="does not support the tokenizer"):
        Grammars(words, [1])


@pytest.mark.parametrize("has_bytes", [False, True])
def test_grammars_of_unigram_tokenizers(has_bytes: bool) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    words = [
        "<unk>",
        "</s>",
        "\u2581",
        '\u2581"',
        "\u2581red",
        "red",
        "green",
        "ree",
        '"',
        '",',
        *string.printable[:95],
    ]
    words += [f"<0x{value:02X}>" for value in range(256)] if has_bytes else []
    pieces = [(word, -float(len(word))) for word in dict.fromkeys(words)]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.Unigram(pieces, unk_id=0, byte_fallback=has_bytes))
    parts = [tokenizers.decoders.ByteFallback()] if has_bytes else []
    tokenizer.decoder = tokenizers.decoders.Sequence([*parts, tokenizers.decoders.Metaspace(prepend_scheme="never")])
    tokenizer.add_special_tokens(["<unk>", "</s>"])
    grammars = Grammars(tokenizer, [1], 400)
    start = grammars.regex("(a|ä|A| red)+").start()
    logits = np.zeros(400, np.float32)
    start.apply(logits)
    firsts = {"\u2581", "a", "A", " ", "\u2581red"}
    firsts |= {"<0x61>", "<0xC3>", "<0x41>", "<0x20>"} if has_bytes else set()
    assert {tokenizer.id_to_token(number) for number in np.flatnonzero(logits == 0).tolist()} == firsts
    for seed in range(3):
        options: dict[str, Any] = {"temperature": 2.0, "seed": seed, "constraints": [grammars.json_schema(PERSON)]}
        config = llama.Config(vocabulary=400, width=32, inner=24, layers=1, heads=4, kv_heads=2, size=16, positions=512)
        graph = llama.build(config, some(llama.shapes(config)), cache=400)
        tokens = models.generate(gc.InferenceSession(intra_op_num_threads=1).load(graph), [5], 390, **options).tolist()
        assert tokens[-1] == 1
        assert [*json.loads(tokenizer.decode(tokens))] == PERSON["required"]


# Penalties


def logits_after(tokens: list[int]) -> Array:
    whole = np.array([tokens])
    return np.asarray(build_model("llama").state()(whole, np.array([len(tokens)]), np.array(1))[0][0, 0])


@pytest.mark.parametrize(
    "options",
    [
        {"frequency": 0.7},
        {"presence": 1.5},
        {"bias": {3: 4.0, 7: -np.float32(100)}},
        {"frequency": -0.5, "bias": {4: 9}},
    ],
    ids=repr,
)
def test_penalties_change_logits_by_the_new_tokens(options: dict[str, Any]) -> None:
    prompt = drawn(3, 8)
    got = models.generate(build_model("llama"), prompt, 12, constraints=[Penalties(**options)]).tolist()
    want: list[int] = []
    for _ in range(12):
        scores, counts = logits_after([*prompt, *want]), Counter(want)
        for token in range(WORDS):
            scores[token] += options.get("bias", {}).get(token, 0)
            scores[token] -= counts[token] * options.get("frequency", 0)
            scores[token] -= options.get("presence", 0) if counts[token] else 0
        want.append(int(scores.argmax()))
    assert got == want != alone("llama", prompt, 12)


@pytest.mark.parametrize(
    "options", [{"frequency": np.nan}, {"presence": np.inf}, {"bias": {1: np.nan}}, {"bias": {-1: 1}}]
)
def test_penalties_are_finite(options: dict[str, Any]) -> None:
    with pytest.raises(FeedError, match="Penalties"):
        Penalties(**options)


def test_bias_of_a_token_beyond_the_vocabulary_has_no_effect() -> None:
    got = models.generate(build_model("llama"), [1, 2], 5, constraints=[Penalties(bias={WORDS + 3: 5.0})])
    assert got.tolist() == alone("llama", (1, 2), 5)


# Constraints of users


class Even:
    """Allows even tokens, ends the text after three, and fails where it must."""

    def __init__(self, fails: bool = False, empty: bool = False) -> None:
        self.count, self.fails, self.empty = 0, fails, empty

    def start(self) -> Even:
        return Even(self.fails, self.empty)

    def apply(self, logits: Array) -> None:
        logits[1::2] = -np.inf
        if self.empty:
            logits[:] = -np.inf

    def advance(self, token: int) -> bool:
        if self.fails:
            raise ValueError("no more")
        self.count += 1
        return self.count == 3


def test_constraint_of_a_user_forbids_tokens_and_ends_the_text() -> None:
    tokens = models.generate(build_model("llama"), drawn(1, 5), 9, constraints=[Even()], temperature=1.0, seed=0)
    assert len(tokens) == 3
    assert not (tokens % 2).any()


def test_constraint_that_fails_or_allows_nothing_ends_its_text_alone() -> None:
    with models.Streams(build_model("llama"), slots=3) as streams:
        other = streams.submit(drawn(3, 5), 9)
        with pytest.raises(FeedError, match="allow no token after 0 new ones"):
            streams.submit(drawn(1, 5), 9, constraints=[Even(empty=True)]).result()
        with pytest.raises(ValueError, match="no more"):
            streams.submit(drawn(1, 5), 9, constraints=[Even(fails=True)]).result()
        assert other.result().tolist() == alone("llama", drawn(3, 5), 9)


@pytest.mark.parametrize("constraints", [3, Even(), [3], None, "ab"], ids=lambda value: type(value).__name__)
def test_constraints_are_a_list_of_constraints(constraints: Any) -> None:
    with pytest.raises(FeedError, match="constraints must be a list"):
        models.generate(build_model("llama"), [1], 5, constraints=constraints)


def test_limits_are_those_of_the_module() -> None:
    assert grammars.MAX_CHARACTERS == 32_768


def test_text_decoder_constrains_by_its_own_tokenizer(tmp_path: Path) -> None:
    with models.load(folder(tmp_path)) as decoder:
        result = decoder.generate("Hello", max_tokens=60, constraints=[decoder.grammars.regex(DIGITS)])
        assert re.fullmatch(DIGITS, result.text)
        assert result.finish_reason == "stop"
        with pytest.raises(FeedError, match="there is no adapter 'style'"):
            decoder.generate("Hello", adapter="style")
    with pytest.raises(ModelError, match="no token ends a text"):
        Grammars(build_tokenizer(), [])
