"""Write a graph as a module of Python."""

from __future__ import annotations

import builtins
import keyword
import re
from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field

import numpy as np

from graphcore.arrays.casting import Array
from graphcore.checkpoints import safetensors
from graphcore.decompile.repeats import Folder, Item, Key, Named, Reference, Repeat, Step, Value, index, named
from graphcore.decompile.templates import NAMESPACE, Templates, literal
from graphcore.decompile.text import WIDTH, Expr, call, display, keywords, lines, quoted, unpacked, value
from graphcore.errors import GraphError
from graphcore.ir.definitions import Definition, definition_of, definitions
from graphcore.ir.graph import Graph
from graphcore.ir.names import snake
from graphcore.ir.symbol import Constant, Input, Symbol, present, root_of
from graphcore.ir.transform.walk import bodies, outside
from graphcore.onnx.schemas.catalogue import entry
from graphcore.support.escaping import escaped
from graphcore.surgery.diff.records import array_of
from graphcore.types.dtypes import DType

_RESERVED = frozenset({*NAMESPACE, *"graph tensors w p i j k Path".split()})
_SHORT = {"mat_mul": "product", "gemm": "dense", "layer_normalization": "norm", "reduce_mean": "mean"}
"""Names of values by operators, where they are not the operator's."""
_MAX_NAME = 24
"""The characters of the name of a value, without its number."""
_MAX_INLINE = 50
"""The characters of expressions that are written inside of others."""
_MAX_INPUTS = 8
"""Inputs that have variables of their own; more are read by name."""


@dataclass(slots=True)
class _Names:
    """The names of a scope. every: of all scopes. functions: of the module."""

    every: set[str] = field(default_factory=set)
    functions: set[str] = field(default_factory=set)
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


@dataclass(slots=True)
class Writer:
    """Writes one graph. declared: texts of nodes that `Graph.op` builds with declared types instead.

    weights: those that are read, with their names, by identity. built: the texts of the nodes that each row builds.
    """

    graph: Graph
    templates: Templates
    declared: Set[str]
    weights: dict[int, tuple[Symbol, str]] = field(default_factory=dict)
    built: dict[str, set[str]] = field(default_factory=dict)
    folder: Folder = field(default_factory=Folder)
    functions: list[str] = field(default_factory=list)
    definitions: dict[Definition, str] = field(default_factory=dict)

    def write(self) -> list[str]:
        """Return the rows of the module after its imports, with a blank one before and after each function."""
        graph = self.graph
        header = self._header()
        scope = _Scope(self, _Names(), {})
        outputs = {id(root_of(s)) for s in graph.outputs}
        items = self.folder.fold(self.steps(graph), outputs)
        if 0 < len(graph.inputs) <= _MAX_INPUTS:
            targets = [scope.declare(id(s), s.name) for s in graph.inputs]
            scope.text += lines(_targets(targets, is_list=True), Expr("graph.inputs"))
        for definition in definitions(graph):
            scope.define(definition)
        body = scope.write(items, outputs)
        values = {name: scope.expr(self.refer(symbol)) for name, symbol in graph.outputs.asdict().items()}
        body += lines("", call("graph.output(", keywords(values)))
        weight = self._weight_function() if self.weights else []
        return [*header, *weight, *self.functions, *body]

    def arrays(self) -> dict[str, tuple[Array, DType]]:
        """Return the arrays of the file, by name."""
        weights = {
            self.folder.renamed.get(key, name): (present(array_of(symbol)), symbol.dtype)
            for key, (symbol, name) in self.weights.items()
        }
        return {name: (array, DType.of(array.dtype)) for name, array in self.templates.arrays.items()} | weights

    def _header(self) -> list[str]:
        graph = self.graph
        types = {s.name: value(s.type) for s in graph.input_symbols}
        unknown = next((name for name, text in types.items() if text is None), None)
        if unknown is not None or graph.buffers:
            what = f"input {unknown!r} is a {graph[unknown].type}" if unknown is not None else "it has buffers"
            raise GraphError(
                f"to_python: graph {graph.name!r} has no expression: {what}",
                help="make tensors of them: graph.extract cuts a part, and inputs and outputs stand for buffers",
            )
        named = {} if str(graph.promotion) == "max" else {"promotion": Expr(quoted(str(graph.promotion)))}
        if graph.defaults:
            arrays = {name: self.templates.array(name, np.asarray(array)) for name, array in graph.defaults.items()}
            named["defaults"] = display(arrays)
        inputs = display({name: text for name, text in types.items() if text is not None})
        return lines("graph = ", call("Graph(", [Expr(quoted(graph.name)), inputs, *keywords(named)]))

    def _weight_function(self) -> list[str]:
        dtype, array = "", "tensors[name]"
        if any(symbol.dtype not in safetensors.NAMES for symbol, _ in self.weights.values()):
            dtype = ", dtype: DType | None = None"
            array = "tensors[name] if dtype is None else tensors[name].view(dtype.numpy)"
        rows = ["", "@cache", f"def w(name: str{dtype}) -> Symbol:", '    """Return a weight of the file."""']
        return [*rows, *lines("return ", call("graph.weight(", [Expr("name"), Expr(array)]), "", 4), ""]

    def steps(self, graph: Graph) -> list[Step]:
        """Return the nodes of a graph, in the order in which they are written."""
        steps = []
        for node in graph.nodes:
            references = [None if s is None else self.refer(s) for s in node.inputs]
            outer = [root_of(s) for body in bodies(node) for s in outside(body)]
            captured = tuple(id(s) for s in outer if not isinstance(s.producer, Constant))
            template, text = None, f"node {id(node)}"
            if not bodies(node) and definition_of(node) is None:
                template = self.templates.of(node, [own if isinstance(own, Expr) else None for own in references])
                operands = [own if own is None or isinstance(own, Expr) else Expr("_") for own in references]
                text = template(operands).text
                if text in self.declared:
                    template = self.templates.declared(node)
                    text = template(operands).text
            steps.append(Step(node, template, references, tuple(id(s) for s in node.outputs), text, captured))
        return _hoisted(steps, {id(s) for s in graph.input_symbols})

    def refer(self, symbol: Symbol) -> Reference:
        """Return the reference to a value of the graph, or of a body or function in it."""
        root = root_of(symbol)
        own = literal(root)
        if own is not None:
            return own
        is_outer = root.graph is self.graph
        if isinstance(root.producer, Constant):
            name = (root.given_name or f"constant.{root.id}") if is_outer else f"{root.graph.name}.{root.name}"
            name = re.sub(r"[\0-\x1f]", "_", name)  # files may have names that no graph can have
            self.weights[id(root)] = root, name
            return named(name, id(root), is_weight=True)
        is_named = len(self.graph.inputs) > _MAX_INPUTS or re.search(r"\d", root.name)
        if isinstance(root.producer, Input) and is_outer and is_named:
            return named(root.name, id(root), is_weight=False)
        return Value(id(root))


@dataclass(slots=True)
class _Scope:
    """Writes a scope to `text`. env: the expressions of its values. prefix: of names of weights, which is `p`.

    pending: values that may be written inside of the next expression, in order. counts: how often values are read.
    """

    writer: Writer
    names: _Names
    env: dict[Key, Expr]
    indent: int = 0
    prefix: str = ""
    text: list[str] = field(default_factory=list)
    pending: dict[Key, tuple[Step, Expr, Set[str]]] = field(default_factory=dict)
    counts: Counter[Key] = field(default_factory=Counter)

    def write(self, items: Sequence[Item], needed: Iterable[Key]) -> list[str]:
        """Write the items, and return the text. needed: values that are used after them.

        A value that one expression reads is written inside of it, if Python then builds nodes in their order.
        """
        self.counts.update(dict.fromkeys(needed, 2))
        for item in items:
            self.counts.update(item.reads())
            self.counts.update(item.captured if isinstance(item, Step) else item.reads())  # which need a variable
        for item in items:
            if isinstance(item, Repeat):
                self._flush()
                self._loop(item)
            else:
                self._step(item)
        self._flush()
        return self.text

    def declare(self, key: Key, hint: str) -> str:
        """Give a value a variable, and return its name."""
        self.env[key] = Expr(self.names.free(hint))
        return self.env[key].text

    def _flush(self) -> None:
        for step, expr, built in self.pending.values():
            self._statement(step, expr, built)
        self.pending.clear()

    def _step(self, step: Step) -> None:
        wanted = [own.key for own in step.references if isinstance(own, Value) and own.key in self.pending]
        if step.template is None or wanted != [*self.pending][len(self.pending) - len(wanted) :]:
            self._flush()
        expr = self._expression(step)
        is_long = len(expr.text) + self.indent + _MAX_NAME // 2 > WIDTH or expr.text.count("(") > 4
        if wanted and self.pending and is_long:
            self._flush()
            expr = self._expression(step)
        built = {step.text}.union(*(self.pending.pop(key)[2] for key in wanted if key in self.pending))
        is_short = len(expr.text) < _MAX_INLINE and not expr.text.startswith("graph.op(")
        if len(step.results) == 1 == self.counts[step.results[0]] and step.template is not None and is_short:
            self.pending[step.results[0]] = step, expr, built
            self.env[step.results[0]] = expr
        else:
            self._flush()
            self._statement(step, expr, built)

    def _statement(self, step: Step, expr: Expr, built: Set[str]) -> None:
        targets = [self.declare(key, _hint(step)) if self.counts[key] else "_" for key in step.results]
        gives_list = expr.text.startswith("onnx.") and entry(step.node.op_type, step.node.domain).gives_list
        is_list = gives_list or expr.text.startswith("graph.op(")
        comment = escaped(str(step.node.outputs[0].type))
        for row in lines(_targets(targets, is_list=is_list), expr, "", self.indent, comment):
            self.writer.built.setdefault(row, set()).update(built)
            self.text.append(row)

    def _expression(self, step: Step) -> Expr:
        """Return the expression of a node, after writing the functions of its bodies."""
        node = step.node
        definition = definition_of(node)
        if definition is not None:
            name = self.writer.definitions[definition]
            return call(f"{name}(", [self.expr(own) for own in step.references])
        template = step.template
        if template is None:
            functions = {k: self.function(body, k) for k, body in node.attributes.items() if isinstance(body, Graph)}
            template = self.writer.templates.with_bodies(node, functions)
        return template([None if own is None else self.expr(own) for own in step.references])

    def expr(self, reference: Reference) -> Expr:
        """Return the expression of a value."""
        assert reference is not None
        folder = self.writer.folder
        if isinstance(reference, Expr):
            return reference
        if isinstance(reference, Value):
            if reference.key in self.env:
                return self.env[reference.key]
            key, position = folder.items[reference.key]
            return Expr(f"{self.env[key].text}[{position}]")
        text = reference.text
        if reference.loops:
            rest = text.removeprefix(self.prefix)
            name = f"f{quoted(text)}" if rest == text or {*"{}"} & {*rest} else f"p + {quoted(rest)}"
        else:
            name = quoted(folder.renamed.get(reference.key, text))
        if reference.is_weight:
            dtype = self.writer.weights[reference.key][0].dtype
            return call("w(", [Expr(name), *[Expr(f"DType.{dtype.name}")] * (dtype not in safetensors.NAMES)])
        if reference.key in self.env and not reference.loops:
            return self.env[reference.key]
        return call("graph[", [Expr(name)], "]")

    def _loop(self, loop: Repeat) -> None:
        """Write a loop that calls a function, and the function."""
        names = _Names(self.names.every, self.names.functions)
        inner = _Scope(self.writer, names, {}, 4, _common_prefix(loop))
        blank = " " * self.indent
        targets: list[str] = []
        parameters: dict[str, Expr] = {}
        for own in loop.states:
            targets.append(self.declare(own.last, "state" if targets else "x"))
            self.text += lines(f"{targets[-1]} = ", self.expr(own.start), "", self.indent)
            name = inner.declare(own.parameter, targets[-1].rstrip("_0123456789"))
            parameters[f"{name}: Symbol"] = self.env[own.last]
        for key in loop.inner_reads():
            outer = self.expr(Value(key))
            name = inner.declare(key, outer.text if outer.text.isidentifier() else "value")
            parameters[f"{name}: Symbol"] = outer
        indices = loop.indices()
        parameters |= {f"{index(number)}: int": Expr(index(number)) for number in indices}
        results = [*(own.first for own in loop.states), *(first for first, _ in loop.returned)]
        function = names.free(loop.stem, is_function=True)
        rows = [f'    """Build one of {loop.count} blocks."""']
        rows += [f"    p = f{quoted(inner.prefix)}"] * bool(inner.prefix)
        rows += inner.write(loop.items, results)
        kind = "Symbol" if len(results) == 1 else f"tuple[{', '.join(['Symbol'] * len(results))}]"
        returned = unpacked(inner.expr(Value(key)) for key in results)
        self.writer.functions += _function(function, parameters, kind, rows, returned)
        after = []
        for first, last in loop.returned:
            name = inner.expr(Value(first)).text
            if isinstance(last, tuple):  # a list of those of all iterations
                self.text.append(f"{blank}{self.declare(last, f'{name}s')}: list[Symbol] = []")
                targets.append(self.names.free(name))
                after.append(f"{blank}    {self.env[last].text}.append({targets[-1]})")
            else:
                targets.append(self.declare(last, name))
        variable = index(loop.number) if loop.number in indices else "_"
        arguments = call(f"{function}(", parameters.values())
        self.text.append(f"{blank}for {variable} in range({loop.count}):")
        self.text += [*lines(_targets(targets), arguments, "", self.indent + 4), *after]

    def function(self, body: Graph, hint: str) -> str:
        """Write the function that builds a body, and return its name."""
        name = self.names.free(hint)
        names = _Names(self.names.every, self.names.functions, {*self.names.taken})
        inner = _Scope(self.writer, names, dict(self.env), self.indent + 4, self.prefix)
        parameters = [f"{inner.declare(id(s), s.given_name or 'value')}: Symbol" for s in body.input_symbols]
        outputs = {id(root_of(s)) for s in body.outputs}
        rows = inner.write(self.writer.folder.fold(self.writer.steps(body), outputs), outputs)
        results = [inner.expr(self.writer.refer(s)) for s in body.outputs]
        is_one = body.scope.outer is None and len(results) == 1  # of a function
        kind, returned = ("Symbol", results[0]) if is_one else ("list[Symbol]", display(results))
        self.text += _function(name, parameters, kind, rows, returned, self.indent)
        return name

    def define(self, definition: Definition) -> None:
        """Write the function of a definition, and the statement that makes a function of the graph of it."""
        function = self.function(definition.body, f"build_{definition.name}")
        name = self.writer.definitions[definition] = self.names.free(definition.name)
        types = {s.name: value(s.type) or Expr("None") for s in definition.body.input_symbols}
        arguments = [Expr(quoted(definition.name)), Expr(function), display(types)]
        self.text += lines(f"{name} = ", call("graph.subgraph(", arguments))


def _targets(targets: Sequence[str], *, is_list: bool = False) -> str:
    """Return the start of an assignment. is_list: one target is the only element of a list."""
    return f"({targets[0]},) = " if is_list and len(targets) == 1 else f"{', '.join(targets)} = "


def _function(
    name: str, parameters: Iterable[str], kind: str, rows: Sequence[str], returned: Expr, indent: int = 0
) -> list[str]:
    head = lines(f"def {name}", call("(", map(Expr, parameters)), f" -> {kind}:", indent)
    return ["", *head, *rows, *lines("return ", returned, "", indent + 4), ""]


def _hint(step: Step) -> str:
    """Return a name for the results of a node: of the module of its weight, or of the node, or of the operator."""
    for reference in step.references:
        if isinstance(reference, Named) and reference.is_weight:
            words = "".join(part if isinstance(part, str) else "0" for part in reference.parts).split(".")
            if len(words) > 1 and re.fullmatch(r"[A-Za-z_]\w*", words[-2]) and words[-2] not in ("constant", "self"):
                return words[-2]
    name = step.node.outputs[0].given_name or ""
    own = snake(step.node.op_type)
    words = [word for word in name.split("/") if re.fullmatch(r"[A-Za-z_]{2,}", word)]
    words = [w for w in words if w != "self" and not w.lower().startswith(step.node.op_type.lower())]
    return words[-1] if name.startswith("/") and words else _SHORT.get(own, own)


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
    texts = [own.text for item in loop.items for own in item.references if isinstance(own, Named) and own.is_weight]
    starts = Counter(match[0] for text in texts if (match := re.match(r".*[^{]\{[^{}]*\}\.", text)))
    return next((start for start, count in starts.most_common(1) if count > 2), "")
