"""The OpenAI API for models that take text: chats, completions and embeddings. See docs/howto/serve.md."""

from __future__ import annotations

import base64
import itertools
import json
import math
import re
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeAlias
from urllib.parse import unquote

import numpy as np

from graphcore.errors import FeedError
from graphcore.models.grammars import Penalties
from graphcore.models.streams.sampling import TokenLogprob
from graphcore.scale.protocol.endpoint import answered, later
from graphcore.scale.protocol.infer import from_text
from graphcore.scale.protocol.tensors import ProtocolError, Response, as_json, event, problem, streamed
from graphcore.support.escaping import suggestion

Fields: TypeAlias = "dict[str, Any]"

MAX_TEXTS = 2048
"""Maximum number of inputs of a request for embeddings."""

MAX_CHOICES = 64
"""Maximum number of texts of a request, of all prompts together."""

_MAX_TOKEN_CHARACTERS = 128
"""Longer texts than this for each token of the context are refused before they are split into tokens, which takes a
second for some millions of characters."""


class _Refused(ProtocolError):
    """An invalid request, with the name of the parameter and a code of the OpenAI API."""

    def __init__(
        self, summary: str, param: str | None = None, code: str = "invalid_value", *, status: int = 400, help: str = ""
    ) -> None:
        super().__init__(summary, status=status, help=help)
        self.param = param
        self.code = code


class OpenAI:
    """Serves text: `api.respond("POST", "/v1/chat/completions", body)` returns a future of a Response.

    models: `TextDecoder` and `TextEncoder` by name. The adapters of a decoder are models too. timeout: the maximum
    number of seconds of a request.
    """

    def __init__(self, models: Mapping[str, Any], *, timeout: float | None = None) -> None:
        self._models = dict(models)
        self._timeout = timeout
        self._created = int(time.time())

    def respond(self, method: str, path: str, body: bytes = b"") -> Future[Response]:
        """Return a future of the response, as `Endpoint.respond`. Errors have the form of the OpenAI API."""
        return answered(lambda: self._route(method.upper(), unquote(path.partition("?")[0].strip("/")), body), failure)

    def _route(self, method: str, path: str, body: bytes) -> Response | Future[Response]:
        deadline = None if self._timeout is None else time.monotonic() + self._timeout
        match path.split("/"):
            case ["v1", "models"] if method == "GET":
                return as_json({"object": "list", "data": [*map(self._card, self._served())]})
            case ["v1", "models", *name] if method == "GET":
                self._find("/".join(name))
                return as_json(self._card("/".join(name)))
        kind = path.removeprefix("v1/")
        if kind not in _PARAMETERS or not path.startswith("v1/") or method != "POST":
            raise _Refused(
                f"there is no {method:.10} /{path:.100}", None, "unknown_url", status=404,
                help=f"the paths are /v1/models, and by POST /v1/{', /v1/'.join(_PARAMETERS)}",
            )  # fmt: skip
        fields = _checked(from_text(body, "send a JSON object"), kind)
        model, adapter = self._find(fields["model"])
        if not hasattr(model, "embed" if kind == "embeddings" else "submit"):
            raise _Refused(f"the model {fields['model']!r} does not support {kind}", "model")
        if kind == "embeddings":
            return _later(partial(_embed, model, fields))
        return _Texts(model, adapter, fields, deadline).respond()

    def _served(self) -> dict[str, tuple[Any, str | None]]:
        """Return models, and adapters of models, by name."""
        adapters = {each: (model, each) for model in self._models.values() for each in getattr(model, "adapters", ())}
        return adapters | {name: (model, None) for name, model in self._models.items()}

    def _find(self, name: str) -> tuple[Any, str | None]:
        """Return a model and the name of its adapter. Raises `_Refused`."""
        served = self._served()
        if name not in served:
            fix = f"{suggestion(name, served)}the models are {', '.join(served)}"
            raise _Refused(f"the model {name!r:.80} does not exist", "model", "model_not_found", status=404, help=fix)
        return served[name]

    def _card(self, name: str) -> Fields:
        return {"id": name, "object": "model", "created": self._created, "owned_by": "graphcore"}


def _embed(model: Any, fields: Fields) -> Response:
    texts = [fields["input"]] if isinstance(fields["input"], str) else fields["input"]
    if not 0 < len(texts) <= MAX_TEXTS or not all(isinstance(text, str) and text for text in texts):
        raise _Refused(f"input must be 1 to {MAX_TEXTS} strings that are not empty", "input")
    coding = fields.get("encoding_format", "float")
    if coding not in ("float", "base64"):
        raise _Refused(f"encoding_format is {coding!r:.40}, not float or base64", "encoding_format")
    vectors = np.asarray(model.embed(texts), "<f4")
    rows = [row.tolist() if coding == "float" else base64.b64encode(row.tobytes()).decode() for row in vectors]
    data = [{"object": "embedding", "index": i, "embedding": row} for i, row in enumerate(rows)]
    usage = dict.fromkeys(("prompt_tokens", "total_tokens"), sum(map(len, model.tokenizer.encode_batch(texts))))
    return as_json({"object": "list", "data": data, "model": fields["model"], "usage": usage})


class _Texts:
    """The texts of one request: for each prompt n choices."""

    def __init__(self, decoder: Any, adapter: str | None, fields: Fields, deadline: float | None) -> None:
        """Submit them."""
        self._decoder, self._fields = decoder, fields
        self._is_chat = "messages" in fields
        self._tools = {} if fields.get("tool_choice") == "none" else _tools(fields.get("tools", []))
        prompts = self._chat() if self._is_chat else self._prompts()
        self._prompt_tokens, count = sum(len(tokens) for _, tokens in prompts), fields.get("n", 1)
        if not 0 < len(prompts) * count <= MAX_CHOICES:
            raise _Refused(f"{len(prompts)} prompts of {count} texts are not 1 to {MAX_CHOICES}", "n")
        wanted = fields.get("logprobs", False)
        if wanted is False and "top_logprobs" in fields:
            raise _Refused("top_logprobs needs logprobs", "top_logprobs", help='send "logprobs": true too')
        self._top_count = None if wanted is False else fields.get("top_logprobs", 0) if wanted is True else wanted
        max_tokens = fields.get("max_completion_tokens", fields.get("max_tokens", None if self._is_chat else 16))
        options = {
            "max_tokens": max_tokens,
            "temperature": fields.get("temperature"),
            "top_p": fields.get("top_p") if fields.get("temperature") != 0 else None,
            "stop": fields.get("stop", ()),
            "logprobs": 0 if self._top_count is None else max(self._top_count, 1),
            "prompt_logprobs": self._top_count is not None and fields.get("echo", False),
            "constraints": self._constraints(),
            "adapter": adapter,
        }
        self._requests: list[Any] = []
        self._texts = [prompt for prompt in prompts for _ in range(count)]
        try:
            for place, (_, tokens) in enumerate(self._texts):
                if len(tokens) + (max_tokens or 1) - 1 > decoder.context:
                    raise self._no_room(f"{len(tokens)} tokens of the prompt and {max_tokens or 1} new ones")
                options["timeout"] = None if deadline is None else max(deadline - time.monotonic(), 1e-3)
                options["seed"] = None if fields.get("seed") is None else fields["seed"] % (1 << 63) + place % count
                self._requests.append(decoder.submit(tokens, **options))
        except BaseException:
            self.cancel()
            raise

    def cancel(self) -> None:
        for request in self._requests:
            request.cancel()

    def respond(self) -> Response | Future[Response]:
        if self._fields.get("stream"):
            return streamed(self._events(), self.cancel)
        return _later(self._whole, self.cancel)

    # Prompts and constraints

    def _prompts(self) -> list[tuple[str, list[int]]]:
        """Return the text and the tokens of each prompt."""
        prompt = self._fields["prompt"]
        prompts = [prompt] if isinstance(prompt, str) or (prompt and type(prompt[0]) is int) else prompt
        for each in prompts:
            is_tokens = isinstance(each, list) and each and all(type(token) is int for token in each)
            if not is_tokens and not isinstance(each, str):
                raise _Refused(f"prompt must be texts or lists of tokens, got {each!r:.80}", "prompt")
        return [
            (each, self._encode(each, True)) if isinstance(each, str) else (self._decoder.decode(each), each)
            for each in prompts
        ]

    def _chat(self) -> list[tuple[str, list[int]]]:
        messages = [_message(each, f"messages[{i}]") for i, each in enumerate(self._fields["messages"])]
        if not messages:
            raise _Refused("messages is an empty list", "messages", help='send [{"role": "user", "content": "Hello"}]')
        tools = [{"type": "function", "function": each} for each in self._tools.values()]
        prompt = self._decoder.chat_prompt(messages, tools=tools or None)
        return [(prompt, self._encode(prompt, False))]

    def _encode(self, text: str, add_special_tokens: bool) -> list[int]:
        if len(text) > _MAX_TOKEN_CHARACTERS * self._decoder.context:
            raise self._no_room(f"{len(text)} characters")
        tokens: list[int] = self._decoder.encode(text, add_special_tokens=add_special_tokens)
        return tokens

    def _no_room(self, what: str) -> _Refused:
        return _Refused(
            f"{what} do not fit in a context of {self._decoder.context} tokens",
            "messages" if self._is_chat else "prompt", "context_length_exceeded",
            help="send a shorter prompt, or a smaller max_tokens",
        )  # fmt: skip

    def _constraints(self) -> list[Any]:
        bias, results, end = self._fields.get("logit_bias", {}), [], self._decoder.tokenizer.get_vocab_size()
        penalties = {name: self._fields.get(f"{name}_penalty", 0) for name in ("frequency", "presence")}
        if bias or any(penalties.values()):
            if not all(re.match(r"\d{1,9}$", t) and int(t) < end and _fits(bias[t], (float, -100, 100)) for t in bias):
                raise _Refused("logit_bias must have numbers from -100 to 100 by tokens", "logit_bias")
            results.append(Penalties(bias={int(token): bias[token] for token in bias}, **penalties))
        schema, param = self._schema()
        if schema is not None:
            try:
                results.append(self._decoder.grammars.json_schema(schema))
            except FeedError as error:
                raise _Refused(error.summary, param, "invalid_schema", help=error.help) from None
        return results

    def _schema(self) -> tuple[Any, str]:
        """Return the JSON schema of the text, None if it is free, and the parameter that has it."""
        choice, format = self._fields.get("tool_choice", "auto"), self._fields.get("response_format", {"type": "text"})
        if choice not in ("auto", "none"):
            function = choice.get("function") if isinstance(choice, dict) else None
            names: list[Any] = [function.get("name")] if isinstance(function, dict) else [*self._tools]
            if not names or not {*names} <= {*self._tools} or (function is None and choice != "required"):
                raise _Refused(f"tool_choice is {choice!r:.80}, which is not one of the tools", "tool_choice")
            return {"anyOf": [_call_schema(self._tools[name], f"#/anyOf/{i}") for i, name in enumerate(names)]}, "tools"
        schema = format["json_schema"] if isinstance(format.get("json_schema"), dict) else {}
        schema = {"json_object": {"type": "object"}, "json_schema": schema.get("schema")}.get(str(format.get("type")))
        if schema is None and format.get("type") != "text":
            fix = 'send {"type": "json_schema", "json_schema": {"name": "x", "schema": {...}}}'
            raise _Refused(f"response_format is {format!r:.80}", "response_format", help=fix)
        return schema, "response_format"

    # Responses

    def _head(self, suffix: str = "") -> Fields:
        prefix, kind = ("chatcmpl", "chat.completion" + suffix) if self._is_chat else ("cmpl", "text_completion")
        id = f"{prefix}-{uuid.uuid4().hex}"
        return {"id": id, "object": kind, "created": int(time.time()), "model": self._fields["model"]}

    def _usage(self, results: Iterable[Any]) -> Fields:
        prompt, count = self._prompt_tokens, sum(len(result.tokens) for result in results)
        return {"prompt_tokens": prompt, "completion_tokens": count, "total_tokens": prompt + count}

    def _pieces(self, index: int) -> Iterator[tuple[str, Sequence[Any]]]:
        """Yield a text in pieces with their log-probabilities; before it the prompt, if it is echoed."""
        request, (prompt, tokens) = self._requests[index], self._texts[index]
        pieces = iter(request)
        first = next(pieces, None)  # then the prompt is read
        if self._fields.get("echo"):
            yield prompt, [TokenLogprob(tokens[0], math.nan, ()), *request.prompt_logprobs]
        for piece in itertools.chain([] if first is None else [first], pieces):
            yield piece.text, [each for each in piece.logprobs if each.token not in self._decoder.eos]

    def _whole(self) -> Response:
        results, choices = [request.result() for request in self._requests], []
        for index, result in enumerate(results):
            pieces = [*self._pieces(index)]
            text, logprobs = "".join(text for text, _ in pieces), [each for _, part in pieces for each in part]
            content, calls = _calls(text, self._tools) if self._tools else (text, [])
            answer: Fields = {"content": content or None, "tool_calls": calls} if calls else {"content": content}
            reason = "tool_calls" if calls else result.finish_reason
            message = {"role": "assistant", "refusal": None, **answer}
            fields = {"message": message} if self._is_chat else {"text": text}
            choices.append({"index": index, **fields, "logprobs": self._logprobs(logprobs), "finish_reason": reason})
        return as_json({**self._head(), "choices": choices, "usage": self._usage(results)})

    def _events(self) -> Iterator[bytes]:
        """Yield the events of the choices, one after the other, and for an error as the last one."""
        head, results = self._head(".chunk"), []
        has_usage = self._fields.get("stream_options", {}).get("include_usage") is True

        def chunk(index: int, delta: Fields, reason: str | None = None, logprobs: Any = None) -> bytes:
            content = {"delta": delta} if self._is_chat else {"text": delta.get("content", "")}
            choice = {"index": index, **content, "logprobs": logprobs, "finish_reason": reason}
            content = {**head, "choices": [choice], **({"usage": None} if has_usage else {})}
            return event(json.dumps(content).encode())

        try:
            for index, request in enumerate(self._requests):
                offset, reader = 0, _CallReader(self._tools)
                yield chunk(index, {"role": "assistant", "content": ""})
                for text, logprobs in self._pieces(index):
                    deltas = reader.read(text) if self._tools else [{"content": text}]
                    for delta in deltas:
                        yield chunk(index, delta, None, None if self._tools else self._logprobs(logprobs, offset))
                    offset += len(text)
                results.append(request.result())
                for delta in reader.rest():
                    yield chunk(index, delta)
                is_called = reader.count and not reader.is_open
                yield chunk(index, {}, "tool_calls" if is_called else results[-1].finish_reason)
            if has_usage:
                yield event(json.dumps({**head, "choices": [], "usage": self._usage(results)}).encode())
            yield event(b"[DONE]")
        except Exception as error:
            yield event(failure(error).body)

    def _logprobs(self, logprobs: Sequence[Any], offset: int = 0) -> Fields | None:
        if self._top_count is None:
            return None

        def pair(token: int, logprob: float) -> tuple[str, float | None]:
            name = self._decoder.tokenizer.decode([token], skip_special_tokens=False)
            return name, None if math.isnan(logprob) else logprob

        def entry(name: str, logprob: float | None) -> Fields:
            return {"token": name, "logprob": logprob, "bytes": [*name.encode()]}

        pairs = [pair(row.token, row.logprob) for row in logprobs]
        tops = [[pair(*each) for each in row.top[: self._top_count]] for row in logprobs]
        if self._is_chat:
            listed = zip(pairs, tops, strict=True)
            content = [{**entry(*each), "top_logprobs": [entry(*one) for one in top]} for each, top in listed]
            return {"content": content, "refusal": None}
        lengths = (len(self._decoder.decode([row.token])) for row in logprobs)  # 0 for special tokens
        return {
            "tokens": [name for name, _ in pairs],
            "token_logprobs": [logprob for _, logprob in pairs],
            "top_logprobs": [dict(top) if row.top else None for top, row in zip(tops, logprobs, strict=True)],
            "text_offset": [*itertools.accumulate(lengths, initial=offset)][:-1],
        }


# Calls of tools, which models write as JSON objects with a name and arguments.

_MARK = "<tool_call>"
"""The mark of Hermes and Qwen; others write the objects alone."""

_CALL = re.compile(r"<tool_call>(.*?)(?:</tool_call>|$)", re.DOTALL)
_ARGUMENTS = re.compile(r'"(?:arguments|parameters)"\s*:\s*')
_BEGIN = re.compile(
    r'[\s,\]}]*(?:</tool_call>\s*)?(<tool_call>)?[\s\[]*{\s*"name"\s*:\s*"([^"\\]*)"\s*,\s*'
    rf"{_ARGUMENTS.pattern}(?={{)"
)
"""The text before the arguments of a call, with the text after those of the call before."""

_JSON = json.JSONDecoder()


def _tools(tools: list[Any]) -> dict[str, Fields]:
    """Return functions by name. Raises `_Refused`."""
    functions = [tool.get("function") if isinstance(tool, dict) else None for tool in tools]
    for place, function in enumerate(functions):
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise _Refused("a tool must have a function with a name", f"tools[{place}]")
    return {function["name"]: function for function in functions if function is not None}


def _call_schema(function: Fields, place: str) -> Fields:
    """Return the schema of a call. place: of the schema, for references in that of the arguments."""
    text = json.dumps(function.get("parameters") or {"type": "object"})
    arguments = json.loads(text.replace('"$ref": "#', f'"$ref": "{place}/properties/arguments'))
    properties = {"name": {"const": function["name"]}, "arguments": arguments}
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


def _calls(text: str, tools: Mapping[str, Fields]) -> tuple[str, list[Fields]]:
    """Return the text before the calls, and the calls; none unless all are calls of the tools."""
    marked, calls = _CALL.findall(text), []
    try:
        for source in marked or [text]:
            value, end = json.loads(source), 0
            for call in value if isinstance(value, list) else [value]:
                arguments = call["arguments"] if "arguments" in call else call["parameters"]
                place = _ARGUMENTS.search(source, end)
                if place is not None and not isinstance(arguments, str):  # as the model wrote them
                    end = _JSON.raw_decode(source, place.end())[1]
                    arguments = source[place.end() : end]
                calls.append(_call(tools[call["name"]]["name"], arguments))
    except (KeyError, TypeError, ValueError, RecursionError):
        return text, []
    return text.partition("<tool_call>")[0].strip() if marked else "", calls


def _call(name: str, arguments: str) -> Fields:
    function = {"name": name, "arguments": arguments}
    return {"id": f"call_{uuid.uuid4().hex[:24]}", "type": "function", "function": function}


class _CallReader:
    """Finds the calls of tools in a text that comes in pieces: yields deltas of a message as soon as they are certain.

    count: the number of calls so far. is_open: the arguments of the last one are not complete.
    """

    def __init__(self, tools: Mapping[str, Fields]) -> None:
        self._tools = tools
        self._text = ""  # what no delta has; of arguments that are not complete all
        self._sent = 0  # the characters of arguments that deltas have
        self._has_content = False
        self.count = 0
        self.is_open = False

    def read(self, piece: str) -> Iterator[Fields]:
        """Add a piece of the text."""
        self._text += piece
        while True:
            if not self.is_open:
                name = self._next_name()
                if name is None:
                    break
                yield {"tool_calls": [{"index": self.count, **_call(name, "")}]}
                self.count, self.is_open, self._sent = self.count + 1, True, 0
            try:
                end, self.is_open = _JSON.raw_decode(self._text)[1], False
            except (ValueError, RecursionError):
                end = len(self._text)
            arguments = self._text[self._sent : end]
            yield {"tool_calls": [{"index": self.count - 1, "function": {"arguments": arguments}}]}
            if self.is_open:
                self._sent = end
                return
            self._text = self._text[end:]
        may_be_call = self.count or (not self._has_content and self._text.lstrip()[:1] in ("", "{", "["))
        starts = (n for n in range(len(self._text)) if _MARK.startswith(self._text[n : n + len(_MARK)]))
        end = 0 if may_be_call else len(self._text[: next(starts, None)].rstrip())
        if end:
            yield {"content": self._text[:end]}
            self._text, self._has_content = self._text[end:], True

    def _next_name(self) -> str | None:
        """Return the name of the call whose arguments follow, and remove what is before them; None for no call."""
        match = _BEGIN.match(self._text)
        if match is None or match[2] not in self._tools or (self._has_content and not match[1]):
            return None
        self._text = self._text[match.end() :]
        return match[2]

    def rest(self) -> Iterator[Fields]:
        """Yield the deltas of the rest when the text has ended."""
        content, calls = ("", []) if self.is_open else _calls(self._text, self._tools)
        if content and not self.count:
            yield {"content": content}
        for call in calls:
            yield {"tool_calls": [{"index": self.count, **call}]}
            self.count += 1


# Parameters of requests: their types, for numbers with the least and the greatest.

_COMMON = {
    "model": str, "max_tokens": (int, 1, 1 << 40), "temperature": (float, 0, 2), "top_p": (float, 1e-9, 1),
    "seed": (int, -(1 << 63), 1 << 63), "stop": str | list, "n": (int, 1, MAX_CHOICES), "stream": bool,
    "stream_options": dict, "frequency_penalty": (float, -2, 2), "presence_penalty": (float, -2, 2),
    "logit_bias": dict, "user": object, "metadata": object,
}  # fmt: skip
_PARAMETERS: dict[str, dict[str, Any]] = {
    "chat/completions": _COMMON | {
        "messages": list, "max_completion_tokens": (int, 1, 1 << 40), "logprobs": bool, "top_logprobs": (int, 0, 20),
        "response_format": dict, "tools": list, "tool_choice": str | dict,
        **dict.fromkeys("parallel_tool_calls prompt_cache_key safety_identifier service_tier store".split(), object),
    },
    "completions": _COMMON | {
        "prompt": str | list, "logprobs": (int, 0, 5), "max_tokens": (int, 0, 1 << 40), "echo": bool, "suffix": object,
    },
    "embeddings": {"model": str, "input": str | list, "encoding_format": str, "user": object},
}  # fmt: skip
_REQUIRED = ("model", "messages", "prompt", "input")
_NAMES = {int: "an integer", float: "a number", str: "a string", bool: "a boolean", dict: "an object", list: "a list"}


def _fits(value: object, kind: Any) -> bool:
    if not isinstance(kind, tuple):
        return isinstance(value, kind)
    of_type = type(value) is int or (type(value) is float and kind[0] is float)
    return of_type and bool(kind[1] <= value <= kind[2])


def _checked(fields: object, path: str) -> Fields:
    """Return the parameters of a request without null. Raises `_Refused` for unknown, missing and invalid ones."""
    if not isinstance(fields, dict):
        raise _Refused("the body must be a JSON object", None)
    parameters = _PARAMETERS[path]
    for name, value in fields.items():
        if name not in parameters:
            raise _Refused(
                f"unknown parameter: {name!r:.80}", name[:80], "unknown_parameter", help=suggestion(name, parameters)
            )
        kind = parameters[name]
        if value is not None and not _fits(value, kind):
            types = [kind[0]] if isinstance(kind, tuple) else getattr(kind, "__args__", [kind])
            limits = f" from {kind[1]} to {kind[2]}" if isinstance(kind, tuple) else ""
            text = " or ".join(_NAMES[each] for each in types) + limits
            raise _Refused(f"{name} must be {text}, got {value!r:.80}", name)
    if fields.get("suffix") is not None:
        raise _Refused(
            "suffix is not supported: texts are generated from left to right", "suffix", "unsupported_parameter",
            help="send the prompt of the model with its tokens for fill-in-the-middle",
        )  # fmt: skip
    for name in _REQUIRED:
        if name in parameters and fields.get(name) is None:
            raise _Refused(f"missing required parameter: {name!r}", name, "missing_required_parameter")
    return {name: value for name, value in fields.items() if value is not None}


_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
_MESSAGE = frozenset({"role", "content", "name", "tool_calls", "tool_call_id", "refusal"})


def _message(message: Any, place: str) -> Fields:
    """Return a message for a chat template: with text as content, and the arguments of calls as objects."""
    if not isinstance(message, dict) or message.get("role") not in [*_ROLES]:
        raise _Refused(f"{place} must be an object with a role of {', '.join(_ROLES)}", f"{place}.role")
    for name in message:
        if name not in _MESSAGE:
            raise _Refused(f"unknown parameter: '{place}.{name:.40}'", f"{place}.{name:.40}", "unknown_parameter")
    parts = message.get("content")
    may_be_empty = message["role"] == "assistant" and parts is None
    parts = [{"text": parts or ""}] if may_be_empty or isinstance(parts, str) else parts
    if not isinstance(parts, list) or not all(isinstance(p, dict) and isinstance(p.get("text"), str) for p in parts):
        raise _Refused(f"{place}.content must be a string or parts of text", f"{place}.content")
    result = {**message, "role": _ROLES[message["role"]], "content": "".join(part["text"] for part in parts)}
    try:
        for call in message.get("tool_calls") or []:
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    except (KeyError, TypeError, ValueError, RecursionError):
        raise _Refused(f"{place}.tool_calls are not calls with arguments in JSON", f"{place}.tool_calls") from None
    return {name: value for name, value in result.items() if value is not None}


# Responses


def failure(error: BaseException) -> Response:
    """Return the response for an error, in the form of the OpenAI API."""
    status, body = problem(error)
    kind = "invalid_request_error" if status < 500 else "server_error"
    param, code = getattr(error, "param", None), getattr(error, "code", None)
    return as_json(
        {"error": {"message": json.loads(body)["error"], "type": kind, "param": param, "code": code}}, status
    )


_later = partial(later, failed=failure)
