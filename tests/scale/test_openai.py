"""The client of OpenAI talks to our own server: chats, completions, embeddings, tools, and what is refused."""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphcore import InferenceSession, models
from graphcore.cli.arguments import parser
from graphcore.cli.commands import serve
from graphcore.errors import GraphcoreError, ModelError
from graphcore.models import TextDecoder, llama
from graphcore.scale.serving.http_server import HttpServer
from graphcore.scale.serving.openai import OpenAI, _CallReader, _calls
from tests.cli.test_serve import _served
from tests.models.test_decoder_adapters import peft
from tests.support.decoders import some
from tests.support.graphs import Array
from tests.support.text_folders import END, FIELDS, folder, tokenizer
from tests.support.waiting import PATIENCE, until

openai = pytest.importorskip("openai", reason="openai is not installed: a package of the extra dev")
ChatCompletionStreamState = pytest.importorskip("openai.lib.streaming.chat").ChatCompletionStreamState
pytest.importorskip("llguidance", reason="llguidance is not installed: the extra models")
pytest.importorskip("starlette", reason="starlette is not installed: the extra serve")

TEMPLATE = (
    "{% if tools %}{{ tools | tojson }}\n{% endif %}{% for message in messages %}"
    "{% if message.content == 'loop' %}{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}"
    "{% endfor %}{% endif %}"
    "{{ message.role }}: {{ message.content }}{% for call in message.tool_calls or [] %}"
    "{{ call.function.arguments.city }}{% endfor %}{{ '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
HELLO = [{"role": "user", "content": "Hello"}]
CITY = {"type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"]}
TOOLS = [
    {"type": "function", "function": {"name": "weather", "description": "of a city", "parameters": CITY}},
    {"type": "function", "function": {"name": "stop", "parameters": {"type": "object", "additionalProperties": False}}},
]
CAT = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 6}, "age": {"type": "integer", "maximum": 30, "minimum": 0}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


class Encoder:
    """Embeds texts by their lengths and characters."""

    tokenizer = tokenizer()

    def embed(self, texts: list[str]) -> Array:
        return np.array([[len(text), sum(map(ord, text)) / 3] for text in texts], np.float32)


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TextDecoder]:
    path = folder(tmp_path_factory.mktemp("tiny"), FIELDS | {"max_position_embeddings": 2048}, TEMPLATE)
    with models.load(path, slots=8, cache=1024) as result:
        yield result


@pytest.fixture(scope="module")
def url(decoder: TextDecoder) -> Iterator[str]:
    with HttpServer({"tiny": decoder, "vectors": Encoder()}, timeout=PATIENCE) as server:  # type: ignore[dict-item]
        yield server.url


@pytest.fixture
def client(url: str) -> Iterator[Any]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=PATIENCE) as result:
        yield result


def chat(client: Any, **options: Any) -> Any:
    options = {"model": "tiny", "messages": HELLO, "max_tokens": 12, "temperature": 0} | options
    return client.chat.completions.create(**options)


def is_idle(decoder: TextDecoder) -> bool:
    return decoder.streams._work.sizes() == (0, 0)


# Chats


def test_models_are_listed(client: Any) -> None:
    assert [each.id for each in client.models.list()] == ["tiny", "vectors"]
    assert client.models.retrieve("tiny").owned_by == "graphcore"
    with pytest.raises(openai.NotFoundError, match="the model 'a b' does not exist"):
        client.models.retrieve("a b")


def test_chat_answers_as_the_decoder(client: Any, decoder: TextDecoder) -> None:
    want = decoder.chat(HELLO, max_tokens=12)
    answer = chat(client)
    (choice,) = answer.choices
    assert (choice.message.role, choice.message.content, choice.finish_reason) == ("assistant", want.text, "length")
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (want.prompt_tokens, 12)
    assert answer.object == "chat.completion"
    assert choice.logprobs is None


def test_streamed_chat_is_the_same_text_in_pieces(client: Any) -> None:
    whole = chat(client, max_tokens=30)
    chunks = list(chat(client, max_tokens=30, stream=True, stream_options={"include_usage": True}))
    pieces = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(pieces) == whole.choices[0].message.content
    assert len(pieces) > 5
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in chunks[:-1]] == [None] * (len(chunks) - 2) + ["length"]
    assert chunks[-1].usage == whole.usage
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert len({chunk.id for chunk in chunks}) == 1


def test_eight_clients_at_once_get_what_each_gets_alone(url: str, decoder: TextDecoder) -> None:
    prompts = [[{"role": "user", "content": "x" * number * 9 + str(number)}] for number in range(8)]

    def ask(number: int) -> str:
        with openai.OpenAI(base_url=f"{url}/v1", api_key="none", timeout=PATIENCE) as own:
            options = {"messages": prompts[number], "max_tokens": 25, "temperature": number % 2, "seed": number}
            if number % 3:
                return str(chat(own, **options).choices[0].message.content)
            chunks = chat(own, stream=True, **options)
            return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)

    with ThreadPoolExecutor(8) as pool:
        got = list(pool.map(ask, range(8)))
    assert got == [
        decoder.chat(prompt, max_tokens=25, temperature=number % 2, seed=number).text
        for number, prompt in enumerate(prompts)
    ]


def test_graphcore_serve_chats_with_a_folder(tmp_path: Path, decoder: TextDecoder) -> None:
    (tmp_path / "small").mkdir()
    folder(tmp_path / "small", FIELDS | {"max_position_embeddings": 2048}, TEMPLATE)
    with _served(str(tmp_path / "small"), "--context", "1500") as (_, line, address):
        assert line.startswith("serving small at")
        with openai.OpenAI(base_url=f"http://{address}/v1", api_key="none", timeout=PATIENCE) as client:
            pieces = chat(client, model="small", stream=True)
            text = "".join(chunk.choices[0].delta.content or "" for chunk in pieces)
            assert "do not fit in a context of 1500" in refused(client, model="small", max_tokens=1500)[1]
    assert text == decoder.chat(HELLO, max_tokens=12).text


def test_graphcore_serve_has_adapters_and_a_draft(tmp_path: Path) -> None:
    for name in ("small", "draft"):
        (tmp_path / name).mkdir()
    model, draft = (
        folder(tmp_path / "small", FIELDS, TEMPLATE),
        folder(tmp_path / "draft", FIELDS | {"rope_theta": 9.0}),
    )
    style = peft(tmp_path / "style", 3)
    with (
        _served(str(model), "--adapter", f"style={style}", "--draft", str(draft)) as (_, _, address),
        openai.OpenAI(base_url=f"http://{address}/v1", api_key="none", timeout=PATIENCE) as client,
    ):
        assert [each.id for each in client.models.list()] == ["style", "small"]
        texts = [chat(client, model=name).choices[0].message.content for name in ("style", "small")]
    with models.load(model, adapters={"style": style}) as decoder:
        assert texts == [decoder.chat(HELLO, max_tokens=12, adapter=name).text for name in ("style", None)]
    assert texts[0] != texts[1]
    options = parser().parse_args(["serve", str(model), "--draft", str(draft)])
    with serve._load(options, InferenceSession("cpu"), str(model)) as decoder:
        assert decoder._options["draft"].name == "llama"


def test_options_of_graphcore_serve_hold_for_folders(tmp_path: Path) -> None:
    folder(tmp_path, FIELDS | {"max_position_embeddings": 2048}, TEMPLATE)
    session = InferenceSession("cpu", intra_op_num_threads=1)
    options = ["serve", str(tmp_path), "--slots", "3", "--max-waiting", "5", "--context", "99"]
    with serve._load(parser().parse_args(options), session, str(tmp_path)) as model:
        assert (model.streams._slots, model.streams._work._max_waiting, model.context) == (3, 5, 99)
        assert model.model.session.get_session_options().intra_op_num_threads == 1
    with pytest.raises(GraphcoreError, match="int5"):
        serve._load(parser().parse_args([*options, "--dtype", "int5"]), session, str(tmp_path))


def test_parts_of_text_roles_and_ignored_parameters(client: Any, decoder: TextDecoder) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
    messages = [
        {"role": "developer", "content": "Be kind."},
        {"role": "user", "content": [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "5 degrees", "tool_call_id": "a"},
    ]
    prompt = "system: Be kind.\nuser: Hello\nassistant: Oslo\ntool: 5 degrees\nassistant: "
    want = decoder.generate(decoder.encode(prompt), max_tokens=9)
    ignored = {"user": "me", "metadata": {"a": "b"}, "store": False, "seed": None, "parallel_tool_calls": True}
    answer = chat(client, messages=messages, max_tokens=None, max_completion_tokens=9, **ignored)
    assert (answer.choices[0].message.content, answer.usage.prompt_tokens) == (want.text, len(prompt))


def test_choices_are_samples_of_successive_seeds_and_stop_strings_end_them(client: Any, decoder: TextDecoder) -> None:
    options = {"n": 3, "temperature": 1.3, "top_p": 0.9, "seed": 7}
    want = [decoder.chat(HELLO, max_tokens=12, temperature=1.3, top_p=0.9, seed=7 + i).text for i in range(3)]
    assert [each.message.content for each in chat(client, **options).choices] == want
    assert len(set(want)) == 3
    streamed = ["", "", ""]
    for chunk in chat(client, stream=True, **options):
        streamed[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert streamed == want
    whole = chat(client).choices[0].message.content
    (choice,) = chat(client, stop=["never", whole[4:6]]).choices
    assert (choice.message.content, choice.finish_reason) == (whole[: whole.index(whole[4:6])], "stop")


def test_logprobs_are_those_of_the_decoder(client: Any, decoder: TextDecoder) -> None:
    want = decoder.chat(HELLO, max_tokens=6, logprobs=2).logprobs
    got = chat(client, max_tokens=6, logprobs=True, top_logprobs=2).choices[0].logprobs.content
    assert [each.logprob for each in got] == [each.logprob for each in want]
    assert [[top.logprob for top in each.top_logprobs] for each in got] == [[p for _, p in e.top] for e in want]
    assert [each.token for each in got] == [decoder.decode([each.token]) for each in want]
    assert bytes(got[0].bytes).decode() == got[0].token
    chunks = chat(client, max_tokens=6, logprobs=True, stream=True)
    streamed = [each.logprob for c in chunks if c.choices[0].logprobs for each in c.choices[0].logprobs.content]
    assert streamed == [each.logprob for each in want]


def test_penalties_and_biases_change_the_text(client: Any) -> None:
    plain = chat(client, max_tokens=40).choices[0].message.content
    (choice,) = chat(client, logit_bias={str(END): 100}).choices
    assert (choice.message.content, choice.finish_reason) == ("", "stop")
    assert chat(client, max_tokens=40, frequency_penalty=2, presence_penalty=2).choices[0].message.content != plain


# Schemas and tools


@pytest.mark.parametrize("temperature", [0, 1])
def test_json_of_a_schema_validates(client: Any, temperature: int) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    format = {"type": "json_schema", "json_schema": {"name": "cat", "schema": CAT, "strict": True}}
    (choice,) = chat(client, response_format=format, max_tokens=None, temperature=temperature, seed=1).choices
    jsonschema.validate(json.loads(choice.message.content), CAT)
    assert choice.finish_reason == "stop"


def test_any_json_object(client: Any) -> None:
    (choice,) = chat(client, response_format={"type": "json_object"}, logit_bias={str(ord("}") - 33): 50}).choices
    assert json.loads(choice.message.content) == {}
    assert chat(client, response_format={"type": "text"}).choices == chat(client).choices


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "weather"}}], ids=str)
def test_forced_call_of_a_tool(client: Any, choice: Any) -> None:
    options = {"tools": TOOLS[:1], "tool_choice": choice, "max_tokens": None}
    answer = chat(client, **options).choices[0]
    (call,) = answer.message.tool_calls
    assert (answer.finish_reason, answer.message.content, call.function.name) == ("tool_calls", None, "weather")
    assert json.loads(call.function.arguments)["city"] in ("Rome", "Oslo")
    chunks = list(chat(client, stream=True, **options))
    first, *others = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or ()]
    assert (first.index, first.function.name, first.function.arguments) == (0, "weather", "")
    assert {(each.index, each.id, each.function.name) for each in others} == {(0, None, None)}
    assert len(others) > 5
    assert "".join(each.function.arguments for each in others) == call.function.arguments
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
    state = ChatCompletionStreamState()
    for chunk in chunks:
        state.handle_chunk(chunk)
    (assembled,) = state.get_final_completion().choices[0].message.tool_calls
    assert assembled.function.model_dump(include={"name", "arguments"}) == call.function.model_dump()


def test_schemas_of_tools_have_definitions_of_their_own(client: Any) -> None:
    node = {"$ref": "#/$defs/node"}
    schema = {
        "$defs": {"node": {"enum": ["x", "y"]}, "text": {"const": '"$ref": "#'}},
        "type": "object",
        "properties": {"left": node, "text": {"$ref": "#/$defs/text"}},
        "required": ["left", "text"],
        "additionalProperties": False,
    }
    tools = [TOOLS[1], {"type": "function", "function": {"name": "tree", "parameters": schema}}]
    function = {"type": "function", "function": {"name": "tree"}}
    for choice in (function, "required"):
        options = {"tools": tools, "tool_choice": choice, "max_tokens": None, "temperature": 1}
        calls = [chat(client, seed=seed, **options).choices[0].message.tool_calls[0].function for seed in range(3)]
        trees = [json.loads(call.arguments) for call in calls if call.name == "tree"]
        assert all(tree["left"] in ("x", "y") and tree["text"] == '"$ref": "#' for tree in trees)
        assert choice == "required" or len(trees) == 3


def test_tools_are_in_the_prompt_and_texts_without_calls_are_content(client: Any, decoder: TextDecoder) -> None:
    want = decoder.chat(HELLO, tools=TOOLS, max_tokens=12)
    answer = chat(client, tools=TOOLS)
    assert (answer.choices[0].message.content, answer.usage.prompt_tokens) == (want.text, want.prompt_tokens)
    assert answer.choices[0].message.tool_calls is None
    streamed = chat(client, tools=TOOLS, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in streamed) == want.text
    assert chat(client, tools=TOOLS, tool_choice="none").choices == chat(client).choices


@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        ('{"name": "a", "arguments": {"x": 1}}', "", [("a", {"x": 1})]),
        ('{"name": "a", "parameters": {}}', "", [("a", {})]),
        ('[{"name": "a", "arguments": {}}, {"name": "b", "arguments": {"é": 2}}]', "", [("a", {}), ("b", {"é": 2})]),
        ('Well.\n<tool_call>\n{"name": "b", "arguments": {}}\n</tool_call>', "Well.", [("b", {})]),
        ('<tool_call>{"name": "a", "arguments": {}}</tool_call><tool_call>{"name": "b", "arguments": {}}', "",
         [("a", {}), ("b", {})]),
        ('{"name": "a", "arguments": "{}"}', "", [("a", {})]),
        ('{"name": "c", "arguments": {}}', None, []),
        ('{"name": "a"}', None, []),
        ('{"name": ["a"], "arguments": {}}', None, []),
        ("[" * 99999, None, []),
        ("3", None, []),
        ("plain text", None, []),
    ],
    ids=lambda value: repr(value)[:30],
)  # fmt: skip
def test_calls_are_read_from_texts(text: str, content: str | None, calls: list[Any]) -> None:
    got = _calls(text, {"a": {"name": "a"}, "b": {"name": "b"}})
    assert got[0] == (text if content is None else content)
    assert [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in got[1]] == calls
    assert len({call["id"] for call in got[1]}) == len(calls)


CALL = '{"name": "a", "arguments": {"x": [1, {"y": "}"}]}}'


@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        (CALL, "", [("a", '{"x": [1, {"y": "}"}]}')]),
        (f'[{CALL}, {{"name": "b", "parameters": {{}}}}]', "", [("a", '{"x": [1, {"y": "}"}]}'), ("b", "{}")]),
        (f"<tool_call>\n{CALL}\n</tool_call>\n<tool_call>{CALL}", "", [("a", '{"x": [1, {"y": "}"}]}')] * 2),
        (f"Well <now>.\n<tool_call>{CALL}</tool_call> Done.", "Well <now>.", [("a", '{"x": [1, {"y": "}"}]}')]),
        ('{"arguments": {"x":1}, "name": "b"}', "", [("b", '{"x":1}')]),
        ('{"name": "b", "arguments": "{}"}', "", [("b", "{}")]),
        ('{"name": "a", "arguments": {"x": 1', "", [("a", '{"x": 1')]),
        ("One <tool and </tool_call> more ", "One <tool and </tool_call> more ", []),
        ('Well {"name": "a", "arguments": {}}', 'Well {"name": "a", "arguments": {}}', []),
        ('{"name": "c", "arguments": {}}', '{"name": "c", "arguments": {}}', []),
        ("[" * 9999, "[" * 9999, []),
        (" {", " {", []),
    ],
    ids=lambda value: repr(value)[:30],
)
@pytest.mark.parametrize("size", [1, 5, 10_000])
def test_calls_are_read_from_pieces(text: str, content: str, calls: list[tuple[str, str]], size: int) -> None:
    reader = _CallReader({"a": {"name": "a"}, "b": {"name": "b"}})
    deltas = [each for at in range(0, len(text), size) for each in reader.read(text[at : at + size])]
    deltas += reader.rest()
    assert "".join(each.get("content", "") for each in deltas) == content
    parts = [part for each in deltas for part in each.get("tool_calls", ())]
    names = {part["index"]: part["function"]["name"] for part in parts if "id" in part}
    joined = dict.fromkeys(names, "")
    for part in parts:
        joined[part["index"]] += part["function"]["arguments"]
    assert [(names[index], joined[index]) for index in names] == calls
    assert reader.count == len(calls)
    assert reader.is_open == text.endswith('"x": 1')
    if text.startswith(("Well <", "One")) and size == 1:
        assert deltas[0] == {"content": text[0]}


def test_streamed_text_beside_tools_comes_in_pieces(client: Any, decoder: TextDecoder) -> None:
    want = decoder.chat(HELLO, tools=TOOLS, max_tokens=30).text
    pieces = [chunk.choices[0].delta.content or "" for chunk in chat(client, tools=TOOLS, max_tokens=30, stream=True)]
    assert "".join(pieces) == want
    assert len(pieces) > 5


# Completions and embeddings


def test_completions_of_texts_and_tokens(client: Any, decoder: TextDecoder) -> None:
    prompts = ["once", "twice"]
    want = [decoder.generate(prompt, max_tokens=16) for prompt in prompts]
    answer = client.completions.create(model="tiny", prompt=prompts, temperature=0, logprobs=1)
    assert [choice.text for choice in answer.choices] == [each.text for each in want]
    assert answer.usage.prompt_tokens == 9
    logprobs = answer.choices[1].logprobs
    assert logprobs.token_logprobs == [each.logprob for each in want[1].logprobs] or not want[1].logprobs
    assert "".join(logprobs.tokens) == want[1].text or "\ufffd" in "".join(logprobs.tokens)
    assert logprobs.text_offset == [sum(map(len, logprobs.tokens[:i])) for i in range(16)]
    assert all(token in top for token, top in zip(logprobs.tokens, logprobs.top_logprobs, strict=True))
    tokens = client.completions.create(model="tiny", prompt=[decoder.encode(each) for each in prompts], temperature=0)
    assert [choice.text for choice in tokens.choices] == [each.text for each in want]
    streamed = client.completions.create(model="tiny", prompt="once", temperature=0, stream=True)
    assert "".join(chunk.choices[0].text for chunk in streamed) == want[0].text


@pytest.mark.parametrize("has_logprobs", [False, True])
@pytest.mark.parametrize("max_tokens", [0, 5])
def test_prompts_are_echoed(client: Any, decoder: TextDecoder, has_logprobs: bool, max_tokens: int) -> None:
    prompts = ["once upon", "a time", "x" * 200]
    options = {"max_tokens": max_tokens, "temperature": 0, "echo": True, "n": 2}
    options |= {"logprobs": 2} if has_logprobs else {}
    answer = client.completions.create(model="tiny", prompt=prompts, **options)
    texts = [decoder.generate(prompt, max_tokens=max_tokens) for prompt in prompts]
    assert [each.text for each in answer.choices[::2]] == [p + t.text for p, t in zip(prompts, texts, strict=True)]
    assert answer.choices[1].text == answer.choices[0].text
    assert answer.usage.completion_tokens == 6 * max_tokens
    assert {each.finish_reason for each in answer.choices} == {"length"}
    streamed, rows = [""] * 6, [[] for _ in range(6)]  # type: ignore[var-annotated]
    for chunk in client.completions.create(model="tiny", prompt=prompts, stream=True, **options):
        streamed[chunk.choices[0].index] += chunk.choices[0].text
        if chunk.choices[0].logprobs is not None:
            rows[chunk.choices[0].index] += chunk.choices[0].logprobs.token_logprobs
    assert streamed == [each.text for each in answer.choices]
    if not has_logprobs:
        assert answer.choices[0].logprobs is None
        return
    for prompt, choice, listed in zip(prompts, answer.choices[::2], rows[::2], strict=True):
        logprobs, tokens = choice.logprobs, decoder.encode(prompt)
        assert listed == logprobs.token_logprobs
        assert len(logprobs.tokens) == len(logprobs.top_logprobs) == len(tokens) + max_tokens
        assert "".join(logprobs.tokens[: len(tokens)]) == prompt
        assert logprobs.text_offset[: len(tokens) + 1] == [*range(len(prompt) + 1)][: len(logprobs.tokens)]
        assert logprobs.token_logprobs[0] is logprobs.top_logprobs[0] is None
        want = scores(tokens)
        assert logprobs.token_logprobs[1 : len(tokens)] == pytest.approx(
            [s[t] for s, t in zip(want, tokens[1:], strict=False)], abs=1e-5
        )
        tops = [[*each.values()] for each in logprobs.top_logprobs[1 : len(tokens)]]
        assert np.allclose(tops, -np.sort(-want, axis=1)[:-1, :2], atol=1e-5)


def scores(tokens: list[int]) -> Array:
    """Return the log-probabilities of the token after each token: [tokens, vocabulary]."""
    fields = FIELDS | {"max_position_embeddings": 2048}
    config = llama.Config.read(fields)
    graph = llama.build(config, some(llama.shapes(config)), cache=1024, every_token=True)
    (logits,) = InferenceSession().load(graph)(np.array([tokens]), np.array([len(tokens)]))
    exact = logits[0].astype(np.float64)
    return np.asarray(exact - np.log(np.exp(exact).sum(1, keepdims=True)))


def test_prompts_are_scored_in_pieces_beside_others(decoder: TextDecoder) -> None:
    prompts = [decoder.encode(text) for text in ("some words " * 9, "some words " * 9, "a", "ab", "some words")]
    for piece in (1, 4, 64):
        with models.Streams(decoder.model, slots=3, piece=piece) as streams:
            requests = [streams.submit(each, 2, prompt_logprobs=True) for each in prompts]
            others = [streams.submit(each, 9) for each in prompts]
            for prompt, request, other in zip(prompts, requests, others, strict=True):
                assert request.result(PATIENCE).tolist() == other.result(PATIENCE).tolist()[:2]
                assert [each.token for each in request.prompt_logprobs] == prompt[1:]
                want = [row[token] for row, token in zip(scores(prompt), prompt[1:], strict=False)]
                assert [each.logprob for each in request.prompt_logprobs] == pytest.approx(want, abs=1e-5)
            alone = [streams.submit(each, 0, prompt_logprobs=True) for each in prompts]
            assert [each.result(PATIENCE).tolist() for each in alone] == [[]] * 5
            assert [each.prompt_logprobs[-1:] for each in alone] == [each.prompt_logprobs[-1:] for each in requests]
    graph = llama.build(llama.Config.read(FIELDS), cache=32)
    with models.Streams(InferenceSession().load(graph)) as streams, pytest.raises(ModelError, match="last_tokens=True"):
        streams.submit([1, 2], 3, prompt_logprobs=True)


def test_embeddings_as_numbers_and_as_base64(client: Any) -> None:
    texts = ["a", "some words"]
    want = Encoder().embed(texts)
    for coding in ("float", "base64"):
        answer = client.embeddings.create(model="vectors", input=texts, encoding_format=coding)
        rows = [row.embedding for row in answer.data]
        if coding == "base64":
            rows = [np.frombuffer(base64.b64decode(row), "<f4").tolist() for row in rows]
        assert np.array_equal(np.array(rows, np.float32), want)
        assert answer.usage.prompt_tokens == 11
    assert np.allclose(client.embeddings.create(model="vectors", input="a").data[0].embedding, want[0])


# Refusals


def refused(client: Any, **options: Any) -> tuple[int, str, str | None, str | None]:
    with pytest.raises(openai.APIStatusError) as caught:
        chat(client, **options)
    error = caught.value
    return error.status_code, str(error.body["message"]), error.param, error.code


SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "nonsense"}}}
DEEP = {"$ref": "#/$defs/0", "$defs": {**{str(i): {"$ref": f"#/$defs/{i + 1}"} for i in range(4000)}, "4000": {}}}
WIDE = {"type": "array", "prefixItems": [{}] * 10_500}


@pytest.mark.parametrize(
    ("options", "status", "param", "message"),
    [
        ({"extra_body": {"colour": 3}}, 400, "colour", "unknown parameter: 'colour'"),
        ({"extra_body": {"temprature": 3}}, 400, "temprature", "temperature"),
        ({"audio": {"voice": "a", "format": "mp3"}}, 400, "audio", "unknown parameter"),
        ({"model": "big"}, 404, "model", "the model 'big' does not exist"),
        ({"model": "vectors"}, 400, "model", "does not support chat/completions"),
        ({"messages": []}, 400, "messages", "empty"),
        ({"messages": "hi"}, 400, "messages", "a list"),
        ({"messages": [{"role": "robot", "content": "x"}]}, 400, "messages[0].role", "role"),
        ({"messages": [{"role": "user"}]}, 400, "messages[0].content", "a string or parts of text"),
        ({"messages": [*HELLO, {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, 400,
         "messages[1].content", "parts of text"),
        ({"messages": [{"role": "user", "content": "x", "colour": 3}]}, 400, "messages[0].colour", "unknown parameter"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"function": {"arguments": "{"}}]}]}, 400,
         "messages[0].tool_calls", "JSON"),
        ({"messages": [{"role": "user", "content": "x" * 2000}]}, 400, "messages", "do not fit in a context of 1024"),
        ({"max_tokens": 1024}, 400, "messages", "do not fit in a context of 1024"),
        ({"messages": [{"role": "user", "content": "x" * 200_000}]}, 400, "messages", "200018 characters do not fit"),
        ({"max_tokens": 0}, 400, "max_tokens", "from 1 to 1099511627776, got 0"),
        ({"max_tokens": True}, 400, "max_tokens", "an integer"),
        ({"temperature": 3}, 400, "temperature", "a number from 0 to 2"),
        ({"temperature": "hot"}, 400, "temperature", "a number"),
        ({"top_p": 0}, 400, "top_p", "to 1"),
        ({"n": 65}, 400, "n", "from 1 to 64"),
        ({"stop": [""]}, 400, None, "stop must be strings"),
        ({"stop": [3]}, 400, None, "stop must be strings"),
        ({"logit_bias": {"a": 1}}, 400, "logit_bias", "from -100 to 100"),
        ({"logit_bias": {"99999": 1}}, 400, "logit_bias", "by tokens"),
        ({"logit_bias": {"1" * 5000: 1}}, 400, "logit_bias", "by tokens"),
        ({"logit_bias": {"1": 1000}}, 400, "logit_bias", "from -100 to 100"),
        ({"top_logprobs": 21}, 400, "top_logprobs", "from 0 to 20"),
        ({"top_logprobs": 2}, 400, "top_logprobs", "top_logprobs needs logprobs"),
        ({"top_logprobs": 2, "logprobs": False}, 400, "top_logprobs", "top_logprobs needs logprobs"),
        ({"response_format": {"type": "xml"}}, 400, "response_format", "xml"),
        ({"response_format": {"type": "json_schema"}}, 400, "response_format", "json_schema"),
        ({"response_format": {"type": "json_schema", "json_schema": 3}}, 400, "response_format", "json_schema"),
        ({"response_format": SCHEMA}, 400, "response_format", "the grammar is invalid or too large"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": DEEP}}}, 400, "response_format",
         "characters, more than"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": WIDE}}}, 400, "response_format",
         "the grammar is invalid or too large"),
        ({"tools": [{"type": "function"}]}, 400, "tools[0]", "a function with a name"),
        ({"tool_choice": "required"}, 400, "tool_choice", "not one of the tools"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "x"}}}, 400, "tool_choice",
         "not one of the tools"),
        ({"tools": TOOLS, "tool_choice": "sometimes"}, 400, "tool_choice", "not one of the tools"),
    ],
    ids=lambda value: repr(value)[:40],
)  # fmt: skip
def test_invalid_chats_are_refused_with_the_reason(
    client: Any, decoder: TextDecoder, options: dict[str, Any], status: int, param: str | None, message: str
) -> None:
    got = refused(client, **options)
    assert got[0] == status
    assert message in got[1]
    assert got[2] == param
    assert is_idle(decoder)


def test_template_that_loops_is_stopped(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphcore.models.text.chat.MAX_STEPS", 10_000)
    status, message, *_ = refused(client, messages=[{"role": "user", "content": "loop"}])
    assert (status, "exceeds a limit: more than 10000 steps" in message) == (400, True)


def test_codes_of_errors(client: Any) -> None:
    assert refused(client, model="big")[3] == "model_not_found"
    assert refused(client, messages=[{"role": "user", "content": "x" * 2000}])[3] == "context_length_exceeded"
    assert refused(client, extra_body={"colour": 3})[3] == "unknown_parameter"


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("chat/completions", b"{", 400, "not JSON"),
        ("chat/completions", b"[]", 400, "a JSON object"),
        ("chat/completions", b"{}", 400, "missing required parameter: 'model'"),
        ("chat/completions", b'{"model": "tiny"}', 400, "missing required parameter: 'messages'"),
        ("completions", b'{"model": "tiny", "prompt": []}', 400, "0 prompts"),
        ("completions", b'{"model": "tiny", "prompt": [[]]}', 400, "lists of tokens"),
        ("completions", b'{"model": "tiny", "prompt": [99999]}', 400, "not a token"),
        ("completions", b'{"model": "tiny", "prompt": "\\ud800"}', 400, "not a text"),
        ("completions", b'{"model": "tiny", "prompt": "a", "suffix": "b"}', 400, "suffix is not supported: texts are"),
        ("completions", b'{"model": "tiny", "prompt": ["a", "b"], "n": 40}', 400, "are not 1 to 64"),
        ("embeddings", b'{"model": "tiny", "input": "a"}', 400, "does not support embeddings"),
        ("embeddings", b'{"model": "vectors", "input": []}', 400, "1 to 2048 strings"),
        ("embeddings", b'{"model": "vectors", "input": ["a", ""]}', 400, "not empty"),
        ("embeddings", b'{"model": "vectors", "input": [1, 2]}', 400, "strings"),
        ("embeddings", b'{"model": "vectors", "input": "a", "dimensions": 3}', 400, "unknown parameter: 'dimensions'"),
        ("embeddings", b'{"model": "vectors", "input": "a", "encoding_format": "hex"}', 400, "base64"),
        ("images", b"{}", 404, "there is no POST /v1/images"),
    ],
    ids=lambda value: repr(value)[:40],
)  # fmt: skip
def test_invalid_bodies_are_refused(url: str, path: str, body: bytes, status: int, message: str) -> None:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=PATIENCE)
    connection.request("POST", f"/v1/{path}", body)
    response = connection.getresponse()
    error = json.loads(response.read())["error"]
    connection.close()
    assert response.status == status
    assert message in error["message"]
    assert error["type"] == "invalid_request_error"
    assert {*error} == {"message", "type", "param", "code"}


def test_request_ends_at_its_deadline(decoder: TextDecoder) -> None:
    api = OpenAI({"tiny": decoder}, timeout=1e-6)
    body = json.dumps({"model": "tiny", "messages": HELLO, "max_tokens": 900}).encode()
    response = api.respond("POST", "/v1/chat/completions", body).result(PATIENCE)
    assert response.status == 504
    error = json.loads(response.body)["error"]
    assert error["type"] == "server_error"
    assert error["message"].endswith("; ask for less in a request, such as fewer tokens, or try again later")
    response = api.respond("POST", "/v1/chat/completions", body[:-1] + b', "stream": true}').result(PATIENCE)
    assert response.stream is not None
    assert b'"error"' in list(response.stream)[-1]


def test_client_that_leaves_frees_its_streams(url: str, client: Any, decoder: TextDecoder) -> None:
    stream = chat(client, stream=True, max_tokens=900, n=3, logit_bias={str(END): -100})
    next(iter(stream))
    assert not is_idle(decoder)
    stream.close()
    until(lambda: is_idle(decoder))
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=PATIENCE)
    body = {"model": "tiny", "messages": HELLO, "max_tokens": 900, "logit_bias": {str(END): -100}}
    calls = decoder.streams.counts.calls
    connection.request("POST", "/v1/chat/completions", json.dumps(body))
    until(lambda: decoder.streams.counts.calls > calls)
    connection.close()
    until(lambda: is_idle(decoder))


def test_refused_part_of_a_request_cancels_the_rest(decoder: TextDecoder) -> None:
    api = OpenAI({"tiny": decoder})
    body = {"model": "tiny", "prompt": ["a", [99999]], "max_tokens": 900, "logit_bias": {str(END): -100}}
    assert api.respond("POST", "/v1/completions", json.dumps(body).encode()).result(PATIENCE).status == 400
    until(lambda: is_idle(decoder))


def test_decoder_has_metrics_and_generates_tokens(url: str, client: Any, decoder: TextDecoder) -> None:
    chat(client)
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=PATIENCE)
    connection.request("GET", "/metrics")
    assert 'graphcore_streams_requests_submitted_total{model="tiny"}' in connection.getresponse().read().decode()
    connection.request("GET", "/")
    assert "<a href=v1/models>" in connection.getresponse().read().decode()
    body = {"tokens": decoder.encode("once"), "max_new_tokens": 5}
    connection.request("POST", "/v2/models/tiny/generate", json.dumps(body))
    tokens = json.loads(connection.getresponse().read())["tokens"]
    assert tuple(tokens) == decoder.generate("once", max_tokens=5).tokens
    connection.close()


def test_adapters_are_models(decoder: TextDecoder) -> None:
    api = OpenAI({"tiny": decoder})
    decoder.adapters["style"] = {}
    try:
        listed = json.loads(api.respond("GET", "/v1/models").result().body)
        assert [each["id"] for each in listed["data"]] == ["style", "tiny"]
        body = json.dumps({"model": "style", "prompt": "a", "temperature": 0}).encode()
        answer = json.loads(api.respond("POST", "/v1/completions", body).result(PATIENCE).body)
        assert (answer["model"], answer["choices"][0]["text"]) == ("style", decoder.generate("a", max_tokens=16).text)
    finally:
        del decoder.adapters["style"]
