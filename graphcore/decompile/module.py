"""Write a graph as a module of Python."""

from __future__ import annotations

import builtins
import keyword
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graphcore.arrays.casting import Array
from graphcore.checkpoints import safetensors
from graphcore.decompile.fields import FIELDS, encode_fields
from graphcore.decompile.repeats import Folder, Index, Item, Key, Named, Reference, Repeat, Step, Value, named
from graphcore.decompile.templates import MAX_LITERAL, Literal, Templates, gives_list, literal
from graphcore.decompile.text import (
    MARK,
    WIDTH,
    Expr,
    call,
    dict_text,
    display,
    elements,
    is_name,
    lines,
    names_in,
    quoted,
    spaced,
    type_text,
    value,
)
from graphcore.errors import GraphError
from graphcore.ir.definitions import Definition, definition_of, definitions
from graphcore.ir.graph import Graph
from graphcore.ir.names import snake
from graphcore.ir.symbol import Constant, Input, Node, Symbol, root_of
from graphcore.ir.transform.walk import bodies
from graphcore.support.escaping import escaped
from graphcore.types.dtypes import DType

_IMPORTED = ("DType", "Graph", "OptionalType", "SequenceType", "Shape", "Symbol", "TensorType", "load_tensors", "ops")
_RESERVED = frozenset({*_IMPORTED, *"graph tensors onnx w p i j k np Path cache".split()})
_SHORT = {"mat_mul": "product", "gemm": "dense", "layer_normalization": "norm", "reduce_mean": "mean"}
"""Names of values by operators, where they are not the operator's."""
_MAX_NAME = 24
"""The characters of the name of a value, without its number."""
_MAX_INLINE = 50
"""The characters of expressions that are written inside of others."""
_MAX_INPUTS = 8
"""Inputs that have variables of their own; more are read by name."""
_MAX_ELEMENTS = 16
"""The elements of attributes that are literals."""


@dataclass(slots=True)
class _Names:
    """The names of a scope. every: of all scopes. functions: of the module."""

    every: set[str]
    functions: set[str]
    taken: set[str] = field(default_factory=lambda: {*_RESERVED})

    def free(self, hint: str, *, is_function: bool = False) -> str:
        """Return an identifier like `hint` that no other value has; for a function, that no scope has."""
        stem = re.sub(r"[^a-z0-9]+", "_", hint.lower()).strip("_") or "value"
        while len(stem) > _MAX_NAME and "_" in stem:
            stem = stem.partition("_")[2]
        stem = f"_{stem}"[:_MAX_NAME] if stem[:1].isdigit() else stem[:_MAX_NAME] or "value"
        if keyword.iskeyword(stem) or keyword.issoftkeyword(stem) or hasattr(builtins, stem):
            stem += "_"
        taken = self.taken | (self.every if is_function else self.functions)
        name, number = stem, 1
        while name in taken:
            number += 1
            name = f"{stem.rstrip('_')}_{number}"
        (self.functions if is_function else self.taken).add(name)
        self.every.add(name)
        return name


class Writer:
    """Writes one graph. opening: the expression that opens the file of arrays. forced: tokens that `Graph.op` builds.

    fields: of the file, None if they are not encoded yet.
    """

    def __init__(self, graph: Graph, opening: Expr, forced: Set[object], fields: str | None) -> None:
        self.fields = fields
        self.arrays: dict[str, tuple[Array, DType]] = {}
        """The arrays of the file, by name."""
        self.metadata: dict[str, str] = {}
        self.places: list[list[object]] = []
        """The tokens of the nodes that each line builds."""
        self.opening = lines("tensors = ", opening)
        self.graph = graph
        self.forced = forced
        self._weights: dict[int, Symbol] = {}
        self._templates = Templates(graph, self._attribute)
        self._folder = Folder()
        self._functions: list[str] = []
        self._definitions: dict[Definition, str] = {}
        self._built: list[list[object]] = []
        self._prefix = ""
        self._every: set[str] = set()
        self._function_names: set[str] = set()

    def write(self) -> str:
        """Return the text of the module."""
        graph = self.graph
        names = self._names()
        header = self._header()
        env: dict[Key, Expr] = {}
        steps = self._steps(graph)
        outputs = {id(root_of(s)) for s in graph.outputs}
        items = self._folder.fold(steps, outputs)
        inputs = graph.input_symbols
        body: list[str] = []
        if 0 < len(inputs) <= _MAX_INPUTS:
            variables = [names.free(s.name) for s in inputs]
            target = ", ".join(variables) if len(inputs) > 1 else f"({variables[0]},)"
            body += lines(f"{target} = ", Expr("graph.inputs"))
            env |= {id(s): Expr(name) for s, name in zip(inputs, variables, strict=True)}
        else:
            env |= {id(s): call("graph[", [("", Expr(quoted(s.name)))], "]") for s in inputs}
        for definition in definitions(graph):
            body += self._definition(definition, env, names)
        body += self._scope(items, env, names, outputs, 0)
        body += self._output(env)
        for number, symbol in self._weights.items():
            reference = self._refer(symbol)
            assert isinstance(reference, Named)
            name = self._folder.renamed.get(number) or _text(reference.parts)
            self.arrays[name] = symbol.producer.array, symbol.type.dtype  # type: ignore[union-attr]
        if self.fields is None:
            self.fields = encode_fields(graph, self.arrays)
        if self.fields:
            self.metadata[FIELDS] = self.fields
            body.append("graph = graph.with_fields(tensors)")
        weight = self._weight_function() if self._weights else []
        rest = spaced([*header, *weight, *self._functions, *body])
        rows = [*self._imports(rest), *rest]
        self.places = [[t for mark in row.split(MARK)[1:] for t in self._built[int(mark)]] for row in rows]
        return "\n".join([*(row.partition(MARK)[0] for row in rows), ""])

    def _names(self) -> _Names:
        return _Names(self._every, self._function_names)

    # The frame

    def _header(self) -> list[str]:
        graph = self.graph
        types = {s.name: type_text(s.type) for s in graph.input_symbols}
        unknown = next((name for name, text in types.items() if text is None), None)
        if unknown is not None or graph.buffers:
            what = f"input {unknown!r} is a {graph[unknown].type}" if unknown is not None else "it has buffers"
            raise GraphError(
                f"to_python: graph {graph.name!r} has no expression: {what}",
                help="make tensors of them: graph.extract cuts a part, and inputs and outputs stand for buffers",
            )
        arguments = [("", Expr(quoted(graph.name))), ("", dict_text({k: t for k, t in types.items() if t is not None}))]
        if str(graph.promotion) != "max":
            arguments.append(("promotion=", Expr(quoted(str(graph.promotion)))))
        defaults = {name: self._array(name, np.asarray(array)) for name, array in graph.defaults.items()}
        arguments += [("defaults=", dict_text(defaults))] * bool(defaults)
        return lines("graph = ", call("Graph(", arguments))

    def _imports(self, rest: Sequence[str]) -> list[str]:
        """Return the head of the module, with the imports that the rest needs."""
        opening = self.opening if self.arrays or self.metadata else []
        words = names_in(["", *opening, *rest])
        public = [name for name in _IMPORTED if name in words]
        line = f"from graphcore import {', '.join(public)}"
        blocks = [
            ["from functools import cache"] * ("cache" in words) + ["from pathlib import Path"] * ("Path" in words),
            ["import numpy as np"] * ("np" in words),
            [line] if len(line) <= WIDTH else ["from graphcore import (", *(f"    {name}," for name in public), ")"],
        ]
        blocks[-1] += ["from graphcore.ops import onnx"] * ("onnx" in words)
        head = [row for block in blocks if block for row in ("", *block)]
        name = re.sub(r"[^\w .:/-]", "_", self.graph.name)
        return [f'"""The graph {name} as source."""', *head, "", *opening]

    def _weight_function(self) -> list[str]:
        views = {self._folder.renamed.get(n) or s: s for n, s in self._weights.items() if not is_stored(s.type.dtype)}
        array = "tensors[name]"
        dtype = ""
        if views:
            dtype, array = (
                ", dtype: DType | None = None",
                "tensors[name] if dtype is None else tensors[name].view(dtype.numpy)",
            )
        rows = ["@cache", f"def w(name: str{dtype}) -> Symbol:", '    """Return a weight of the file."""']
        return [*rows, *lines("return ", call("graph.weight(", [("", Expr("name")), ("", Expr(array))]), "", 4)]

    def _output(self, env: Mapping[Key, Expr]) -> list[str]:
        outputs = self.graph.outputs.asdict()
        values = {name: self._expr(self._refer(symbol), env) for name, symbol in outputs.items()}
        plain = all(is_name(name) for name in values)
        parts = [(f"{name}=", expr) for name, expr in values.items()] if plain else [("**", dict_text(values))]
        return lines("", call("graph.output(", parts))

    # Nodes

    def _steps(self, graph: Graph) -> list[Step]:
        steps = []
        for node in graph.nodes:
            literals = [None if s is None else literal(s) for s in node.inputs]
            references = [
                None if s is None else own or self._refer(s) for s, own in zip(node.inputs, literals, strict=True)
            ]
            nested = [*bodies(node)]
            captured = tuple(key for body in nested for key in _captured(body))
            token: object = id(node)
            template = None
            if not nested and definition_of(node) is None:
                template = self._templates.of(node, literals, is_forced=_token(node, literals) in self.forced)
                text = template(
                    [None if s is None or own else Expr("_") for s, own in zip(node.inputs, literals, strict=True)]
                )
                kinds = [own.is_weight if isinstance(own, Named) else type(own) for own in references]
                token = text.text, tuple(kinds), len(node.outputs)
            steps.append(Step(node, template, references, tuple(id(s) for s in node.outputs), token, captured))
        return _hoisted(steps, {id(s) for s in graph.input_symbols})

    def _refer(self, symbol: Symbol) -> Reference:
        root = root_of(symbol)
        own = literal(root)
        if own is not None:
            return own
        producer = root.producer
        is_outer = root.graph is self.graph
        if isinstance(producer, Constant):
            self._weights[id(root)] = root
            name = (root.given_name or f"constant.{root.id}") if is_outer else f"{root.graph.name}.{root.name}"
            name = re.sub(r"[\0-\x1f]", "_", name)  # files may have names that no graph can have
            return named(name, id(root), is_weight=True)
        if isinstance(producer, Input) and is_outer and re.search(r"\d", root.name):
            return named(root.name, id(root), is_weight=False)
        return Value(id(root))

    def _attribute(self, node: Node, key: str, item: Any) -> Expr:
        is_long = (
            isinstance(item, (list, tuple)) and len(item) > _MAX_ELEMENTS and not isinstance(item[0], (str, bytes))
        )
        if isinstance(item, np.ndarray) or is_long:
            array = np.asarray(item)
            if array.dtype.kind in "OU":
                return call("np.array(", [("", value(elements(array)) or Expr("[]"))])
            dtype = DType.of(array.dtype)
            if 0 < array.size <= MAX_LITERAL and array.ndim == 1 and dtype in (DType.int64, DType.float32):
                plain = value(elements(array), dtype)
                if plain is not None:
                    return plain if dtype is DType.int64 else call("np.array(", [("", plain), ("", Expr("np.float32"))])
            stored = self._array(f"{node.outputs[0].name}.{key}", array)
            return stored if isinstance(item, np.ndarray) else Expr(f"{stored.text}.tolist()")
        own = value(item)
        if own is None:
            raise GraphError(
                f"to_python: node {node.outputs[0].name!r} ({node.op_type}) has an attribute {key} of type "
                f"{type(item).__name__}, which has no expression",
                help="cut the node off with graph.extract, or replace it",
            )
        return own

    def _array(self, name: str, array: Array) -> Expr:
        self.arrays[name] = array, DType.of(array.dtype)
        return Expr(f"tensors[{quoted(name)}]")

    # Scopes

    def _scope(
        self, items: Sequence[Item], env: dict[Key, Expr], names: _Names, needed: Iterable[Key], indent: int
    ) -> list[str]:
        """Return the lines of a scope, and add its values to `env`.

        A value that one expression reads is written inside of it, if Python then builds nodes in their order.
        """
        counts: Counter[Key] = Counter(dict.fromkeys(needed, 2))
        for item in items:
            counts.update(item.reads())
            counts.update(item.captured if isinstance(item, Step) else item.reads())  # which need a variable
        text: list[str] = []
        pending: list[tuple[Step, Expr, list[Step]]] = []

        def flush() -> None:
            for step, expr, inner in pending:
                text.extend(self._statement(step, expr, inner, env, names, counts, indent))
            pending.clear()

        for item in items:
            if isinstance(item, Repeat):
                flush()
                text += self._loop(item, env, names, indent)
                continue
            waiting = {step.results[0]: expr for step, expr, _ in pending}
            wanted = [own.key for own in item.references if isinstance(own, Value) and own.key in waiting]
            if item.template is None or wanted != [
                step.results[0] for step, _, _ in pending[len(pending) - len(wanted) :]
            ]:
                flush()
                wanted = []
            expr = self._expression(item, {**env, **{key: waiting[key] for key in wanted}}, names, text, indent)
            if wanted and (len(expr.text) + indent + _MAX_NAME // 2 > WIDTH or expr.text.count("(") > 4):
                flush()
                wanted = []
                expr = self._expression(item, env, names, text, indent)
            taken = pending[len(pending) - len(wanted) :]
            del pending[len(pending) - len(wanted) :]
            inner = [step for own, _, more in taken for step in (own, *more)]
            pending.append((item, expr, inner))
            is_short = len(expr.text) < _MAX_INLINE and not expr.text.startswith("graph.op(")
            if len(item.results) != 1 or counts[item.results[0]] != 1 or item.template is None or not is_short:
                flush()
        flush()
        return text

    def _expression(self, step: Step, env: Mapping[Key, Expr], names: _Names, text: list[str], indent: int) -> Expr:
        """Return the expression of a node, after adding the functions of its bodies to `text`."""
        operands = [
            None if own is None or isinstance(own, Literal) else self._expr(own, env) for own in step.references
        ]
        if step.template is not None:
            return step.template(operands)
        definition = definition_of(step.node)
        if definition is not None:
            values = [operand or own.typed for operand, own in zip(operands, step.literals, strict=True)]  # type: ignore[union-attr]
            return call(f"{self._definitions[definition]}(", [("", expr) for expr in values])
        functions = {}
        for key, body in step.node.attributes.items():
            if isinstance(body, Graph):
                functions[key] = names.free(key)
                text += self._function(body, functions[key], env, names, indent)
        return self._templates.with_bodies(step.node, step.literals, functions)(operands)

    def _expr(self, reference: Reference, env: Mapping[Key, Expr]) -> Expr:
        if isinstance(reference, Literal):
            return reference.typed
        assert reference is not None
        if isinstance(reference, Value):
            if reference.key not in env:  # of an iteration before the last one
                reference = self._folder.moved[reference.key]
            expr = env[reference.key]
            return expr if reference.item is None else Expr(f"{expr.text}[{reference.item}]")
        if not reference.is_weight and not reference.counts_up and reference.key in env:
            return env[reference.key]
        renamed = self._folder.renamed.get(reference.key)
        text = renamed if renamed is not None and not reference.counts_up else _text(reference.parts)
        name = f"f{quoted(text)}" if reference.counts_up else quoted(text)
        if not reference.is_weight:
            return call("graph[", [("", Expr(name))], "]")
        rest = text.removeprefix(self._prefix)
        if reference.counts_up and rest != text and not {*"{}"} & {*rest}:
            name = f"p + {quoted(rest)}"
        symbol = self._weights.get(reference.key)
        view = [] if symbol is None or is_stored(symbol.type.dtype) else [("", Expr(f"DType.{symbol.type.dtype.name}"))]
        return call("w(", [("", Expr(name)), *view])

    def _statement(
        self,
        step: Step,
        expr: Expr,
        inner: Sequence[Step],
        env: dict[Key, Expr],
        names: _Names,
        counts: Mapping[Key, int],
        indent: int,
    ) -> list[str]:
        targets = []
        for key in step.results:
            targets.append(names.free(self._hint(step)) if counts.get(key) else "_")
            env[key] = Expr(targets[-1])
        target = ", ".join(targets)
        is_list = expr.text.startswith("graph.op(") or (expr.text.startswith("onnx.") and gives_list(step.node))
        if len(targets) == 1 and is_list:
            target = f"({target},)"
        comment = escaped(str(step.node.outputs[0].type)) if step.node.outputs else ""
        rows = lines(f"{target} = " if target else "", expr, "", indent, comment)
        self._built.append([_token(own.node, own.literals) for own in (step, *inner)])
        return [f"{row}{MARK}{len(self._built) - 1}" for row in rows]

    @staticmethod
    def _hint(step: Step) -> str:
        """Return a name for the results of a node: of the module of its weight, or of the node, or of the operator."""
        for reference in step.references:
            if isinstance(reference, Named) and reference.is_weight:
                words = "".join(part if isinstance(part, str) else "0" for part in reference.parts).split(".")
                if (
                    len(words) > 1
                    and re.fullmatch(r"[A-Za-z_]\w*", words[-2])
                    and words[-2] not in ("constant", "self")
                ):
                    return words[-2]
        name = step.node.outputs[0].given_name or ""
        own = snake(step.node.op_type)
        words = [word for word in name.split("/") if re.fullmatch(r"[A-Za-z_]{2,}", word)]
        words = [w for w in words if w != "self" and not w.lower().startswith(step.node.op_type.lower())]
        return words[-1] if name.startswith("/") and words else _SHORT.get(own, own)

    # Loops

    def _loop(self, loop: Repeat, env: dict[Key, Expr], names: _Names, indent: int) -> list[str]:
        """Return a loop that calls a function, and write the function."""
        inner = self._names()
        inner_env: dict[Key, Expr] = {}
        parameters: list[tuple[str, Expr]] = []
        text: list[str] = []
        variables = [names.free("x" if number == 0 else "state") for number in range(len(loop.states))]
        for own, variable in zip(loop.states, variables, strict=True):
            text += lines(f"{variable} = ", self._expr(own.start, env), "", indent)
            inner_env[own.parameter] = Expr(inner.free(variable.rstrip("_0123456789")))
            parameters.append((f"{inner_env[own.parameter].text}: Symbol", Expr(variable)))
        for key in loop.inner_reads():
            outer = self._expr(Value(key), env)
            inner_env[key] = Expr(inner.free(outer.text if outer.text.isidentifier() else "value"))
            kind = "list[Symbol]" if isinstance(key, tuple) and key[0] == "list" else "Symbol"
            parameters.append((f"{inner_env[key].text}: {kind}", outer))
        indices = loop.indices()
        parameters += [(f"{_index(number)}: int", Expr(_index(number))) for number in indices]
        results = [own.first for own in loop.states] + [first for first, _ in (*loop.returned, *loop.collected)]
        function = inner.free(loop.stem, is_function=True)
        outside, self._prefix = self._prefix, _common_prefix(loop)
        body = [f"    p = f{quoted(self._prefix)}"] if self._prefix else []
        body += self._scope(loop.items, inner_env, inner, results, 4)
        self._prefix = outside
        kind = "Symbol" if len(results) == 1 else f"tuple[{', '.join(['Symbol'] * len(results))}]"
        returned = [inner_env[key] for key in results]
        end = lines("return ", returned[0] if len(returned) == 1 else display(returned, ""), "", 4)
        if len(end[0]) > WIDTH:
            end = lines("return ", display(returned, "()"), "", 4)
        head = lines(f"def {function}", call("(", [("", Expr(name)) for name, _ in parameters]), f" -> {kind}:")
        self._functions += [*head, f'    """Build one of {loop.count} blocks."""', *body, *end]
        targets = [*variables]
        after = []
        env |= {own.last: Expr(variable) for own, variable in zip(loop.states, variables, strict=True)}
        for first, last in loop.returned:
            targets.append(names.free(inner_env[first].text))
            env[last] = Expr(targets[-1])
        for first, listed in loop.collected:
            plural = names.free(f"{inner_env[first].text}s")
            targets.append(names.free(inner_env[first].text))
            env[listed] = Expr(plural)
            text.append(f"{' ' * indent}{plural}: list[Symbol] = []")
            after.append(f"{' ' * indent}    {plural}.append({targets[-1]})")
        index = _index(loop.number) if loop.number in indices else "_"
        text.append(f"{' ' * indent}for {index} in range({loop.count}):")
        arguments = call(f"{function}(", [("", expr) for _, expr in parameters])
        return [*text, *lines(f"{', '.join(targets)} = ", arguments, "", indent + 4), *after]

    # Bodies and functions

    def _function(self, body: Graph, name: str, env: Mapping[Key, Expr], names: _Names, indent: int) -> list[str]:
        """Return the function that builds a body."""
        inner = self._names()
        inner.taken |= names.taken
        inner_env = dict(env)
        for symbol in body.input_symbols:
            inner_env[id(symbol)] = Expr(inner.free(symbol.given_name or "value"))
        steps = self._steps(body)
        outputs = {id(root_of(s)) for s in body.outputs}
        items = self._folder.fold(steps, outputs)
        rows = self._scope(items, inner_env, inner, outputs, indent + 4)
        results = [self._expr(self._refer(s), inner_env) for s in body.outputs]
        parameters = [("", Expr(f"{inner_env[id(s)].text}: Symbol")) for s in body.input_symbols]
        is_one = body.scope.outer is None and len(results) == 1  # of a function
        kind, returned = ("Symbol", results[0]) if is_one else ("list[Symbol]", display(results))
        head = lines(f"def {name}", call("(", parameters), f" -> {kind}:", indent)
        return [*head, *rows, *lines("return ", returned, "", indent + 4)]

    def _definition(self, definition: Definition, env: Mapping[Key, Expr], names: _Names) -> list[str]:
        """Return the function of a definition, and the statement that makes a function of the graph of it."""
        body = definition.body
        function, name = names.free(f"build_{definition.name}"), names.free(definition.name)
        self._definitions[definition] = name
        types = {s.name: type_text(s.type) or Expr("None") for s in body.input_symbols}
        arguments = [("", Expr(quoted(definition.name))), ("", Expr(function)), ("", dict_text(types))]
        return [
            *self._function(body, function, env, names, 0),
            *lines(f"{name} = ", call("graph.subgraph(", arguments)),
        ]


def _captured(body: Graph) -> Iterator[Key]:
    """Yield the values of outer graphs that need a variable for a body."""
    for symbol in body.scope.captured.values():
        root = root_of(symbol)
        if not isinstance(root.producer, Constant):
            yield id(root)
    for node in body.nodes:
        for inner in bodies(node):
            yield from _captured(inner)


def _token(node: Node, literals: Sequence[Literal | None]) -> object:
    """Return a key that is equal for nodes that the same expression builds."""
    attributes = [f"{key}={item!r:.80}" for key, item in node.attributes.items() if not isinstance(item, Graph)]
    return node.domain, node.op_type, *attributes, *(own and own.typed.text for own in literals)


def _hoisted(steps: list[Step], inputs: set[int]) -> list[Step]:
    """Move steps that depend on inputs alone, and that are there once, to the front: blocks stay alike."""
    counts = Counter((step.token, *step.reads()) for step in steps)
    available: set[Key] = {*inputs}
    early: dict[int, Step] = {}
    for step in steps:
        reads = [*step.reads()]
        has_weights = any(isinstance(own, Named) and own.is_weight for own in step.references)
        if reads and not has_weights and available.issuperset(reads) and counts[step.token, *reads] == 1:
            early[id(step)] = step
            available.update(step.results)
    return [*early.values(), *(step for step in steps if id(step) not in early)]


def _common_prefix(loop: Repeat) -> str:
    """Return the start of the names of weights up to the number of a loop, if several have it."""
    counts: Counter[str] = Counter()
    for item in loop.items:
        for own in item.references if isinstance(item, Step) else ():
            if isinstance(own, Named) and own.is_weight and own.counts_up:
                last = max(i for i, part in enumerate(own.parts) if isinstance(part, Index) and part.steps)
                after = own.parts[last + 1] if last + 1 < len(own.parts) else ""
                counts[f"{_text(own.parts[: last + 1])}."] += isinstance(after, str) and after.startswith(".")
    best = max(counts, key=lambda text: counts[text], default="")
    return best if counts[best] > 2 else ""


def _text(parts: Sequence[str | Index]) -> str:
    """Return a name as the text of a literal, of an f-string if numbers count up."""
    if not any(isinstance(part, Index) and part.steps for part in parts):
        return "".join(str(part.first) if isinstance(part, Index) else part for part in parts)
    texts = []
    for part in parts:
        if isinstance(part, str):
            texts.append(part.replace("{", "{{").replace("}", "}}"))
        elif not part.steps:
            texts.append(str(part.first))
        else:
            terms = [_index(number) if step == 1 else f"{step} * {_index(number)}" for number, step in part.steps]
            texts.append("{" + " + ".join([*terms, *([str(part.first)] if part.first else [])]) + "}")
    return "".join(texts)


def _index(number: int) -> str:
    """Return the variable of a loop's index."""
    return "ijk"[number] if number < 3 else f"i{number}"


def is_stored(dtype: DType) -> bool:
    """Return True if safetensors files have a dtype."""
    return dtype in safetensors.NAMES
