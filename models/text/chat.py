"""Chat templates: jinja2 in a sandbox, with limits on steps, sizes and time."""

from __future__ import annotations

import functools
import json
import math
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import jinja2
import jinja2.ext
from jinja2 import nodes
from jinja2.compiler import CodeGenerator
from jinja2.sandbox import ImmutableSandboxedEnvironment

from graphcore.errors import FeedError, ModelError

MAX_STEPS = 1_000_000
"""Maximum number of steps of a rendering: turns of loops, calls, filters and operators."""

MAX_CHARACTERS = 10_000_000
"""Maximum length of a prompt, and of any text or list in a template."""

_MAX_PRODUCT = 100 * MAX_CHARACTERS
"""Maximum product of the lengths of texts that are replaced or joined."""

MAX_SECONDS = 10.0

MAX_BITS = 10_000
"""Maximum size of an integer in a template."""


@dataclass(slots=True)
class _Budget:
    deadline: float
    steps: int = 0


_BUDGET: ContextVar[_Budget] = ContextVar("_BUDGET")


class _Limit(Exception):
    """A limit of a rendering is exceeded."""


def _step() -> None:
    budget = _BUDGET.get(None)
    if budget is None:  # constants, while the template is compiled
        return
    budget.steps += 1
    if budget.steps > MAX_STEPS:
        raise _Limit(f"more than {MAX_STEPS} steps")
    if time.monotonic() > budget.deadline:
        raise _Limit(f"more than {MAX_SECONDS:g} seconds")


def _require_size(size: int) -> None:
    if size > MAX_CHARACTERS:
        raise _Limit(f"a value of more than {MAX_CHARACTERS} characters")


def _check(values: Sequence[Any], numbers: Iterable[Any]) -> None:
    """Raise for arguments that make large values: long texts together, wide formats, and numbers such as widths."""
    if math.prod(len(value) for value in values if value and isinstance(value, (str, list, tuple))) > _MAX_PRODUCT:
        raise _Limit(f"a value of more than {MAX_CHARACTERS} characters")
    for value in values:
        if isinstance(value, str) and len(value) < 1000 and re.search(r"[%{][^\w{}]*[.\d]*\d{7}", value):
            raise _Limit("a format that is too wide")
    for value in numbers:
        _require_size(abs(value) if isinstance(value, int) else 0)


def _bounded(function: Callable[..., Any]) -> Callable[..., Any]:
    first = 2 if hasattr(function, "jinja_pass_arg") else 1  # after the value, and the context before it

    @functools.wraps(function)  # keeps the attribute by which jinja2 passes the context
    def bounded(*args: Any, **options: Any) -> Any:
        _step()
        values = (*args[first - 1 :], *options.values())
        _check(values, values[1:])
        return _sized(function(*args, **options))

    return bounded


def _sized(value: Any) -> Any:
    if isinstance(value, (str, list, tuple)):
        _require_size(len(value))
    return value


def _join(parts: Iterable[Any]) -> str:
    texts, size = [], 0
    for part in parts:
        texts.append(str(part))
        size += len(texts[-1])
        _require_size(size)
    return "".join(texts)


class _Generator(CodeGenerator):
    """Adds a step to each turn of a loop, and bounds `~`."""

    def visit_For(self, node: nodes.For, frame: Any) -> None:  # noqa: N802
        node.body.insert(0, nodes.ExprStmt(_call("step", [])))
        super().visit_For(node, frame)

    def visit_Concat(self, node: nodes.Concat, frame: Any) -> None:  # noqa: N802
        self.visit(_call("join", node.nodes), frame)


def _call(name: str, arguments: list[nodes.Expr]) -> nodes.Call:
    """Return a call of an attribute of the environment, which a template cannot replace."""
    return nodes.Call(nodes.EnvironmentAttribute(name), arguments, [], None, None)


class _Environment(ImmutableSandboxedEnvironment):
    """Counts each turn of a loop, call, filter and operator, and bounds the values they make."""

    intercepted_binops = frozenset(["*", "**", "%", "+"])
    code_generator_class = _Generator
    concat = staticmethod(_join)
    step = staticmethod(_step)
    join = staticmethod(lambda *parts: _join(parts))

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols, _Generation])
        self.filters = {name: _bounded(function) for name, function in self.filters.items()}
        self.filters["tojson"] = _tojson
        self.globals |= {"raise_exception": _raise, "strftime_now": _now}

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        _step()
        sizes = [len(side) if isinstance(side, Sequence) else None for side in (left, right)]
        ints = [side.bit_length() if isinstance(side, int) else 0 for side in (left, right)]
        if operator == "+" and None not in sizes:
            _require_size(sum(size or 0 for size in sizes))
        elif operator == "*" and sizes != [None, None]:
            (count,) = [side for side in (left, right) if isinstance(side, int)] or [1]
            _require_size(count * max(size or 0 for size in sizes))
        elif operator == "%" and isinstance(left, str):
            _check([left], right if isinstance(right, tuple) else [right])
        elif (operator == "*" and sum(ints) > MAX_BITS) or (
            operator == "**" and all(ints) and ints[0] * right > MAX_BITS
        ):
            raise _Limit(f"an integer of more than {MAX_BITS} bits")
        return super().call_binop(context, operator, left, right)

    def call(self, context: Any, obj: Any, *args: Any, **options: Any) -> Any:
        _step()
        owner = getattr(getattr(obj, "__wrapped__", obj), "__self__", None)
        if isinstance(owner, str):
            _check((owner, *args, *options.values()), (*args, *options.values()))
        return _sized(super().call(context, obj, *args, **options))


class _Generation(jinja2.ext.Extension):
    """`{% generation %}`, which marks the text of the assistant in templates for training: the content alone."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Any) -> Any:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _tojson(
    value: Any, ensure_ascii: bool = False, indent: int | None = None, separators: Any = None, sort_keys: bool = False
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)


def _now(format: str) -> str:
    return datetime.now().strftime(format)


class ChatTemplate:
    """The chat template of a model. variables: its special tokens by name, such as `bos_token`."""

    def __init__(self, name: str, source: str, variables: Mapping[str, str]) -> None:
        self._name = name
        self._variables = dict(variables)
        try:
            self._template = _Environment().from_string(source)
        except (jinja2.TemplateError, RecursionError, _Limit) as error:
            raise ModelError(
                f"{name}: the chat template is invalid: {error}",
                help="correct chat_template in the folder of the model",
            ) from None

    def render(self, **variables: Any) -> str:
        """Return the text of messages. Raises `FeedError` if the template refuses them, or exceeds a limit."""
        token = _BUDGET.set(_Budget(time.monotonic() + MAX_SECONDS))
        try:
            return _join(self._template.generate(**self._variables, **variables))
        except _Limit as error:
            reason = f"exceeds a limit: {error}"
        except Exception as error:  # of the template, which may do anything
            reason = f"refuses the messages: {error}"
        finally:
            _BUDGET.reset(token)
        raise FeedError(
            f"{self._name}: the chat template {reason}", help="check the roles and contents of the messages"
        )
