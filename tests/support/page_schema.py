"""A check of JSON against the interfaces of `graphcore/view/frontend/src/model.ts`, read as they stand there."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import graphcore.view

MODEL = Path(graphcore.view.__file__).parent / "frontend" / "src" / "model.ts"

_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_TOKEN = re.compile(r'\s*("[^"]*"|\d+|\w+\??|[{}()\[\]:;,|=])')


@dataclass
class _Reader:
    tokens: list[str]
    at: int = 0

    @property
    def next(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take(self, wanted: str = "") -> str:
        token = self.next
        assert not wanted or token == wanted, f"{wanted} expected, {self.tokens[self.at : self.at + 8]} found"
        self.at += 1
        return token

    def union(self) -> Any:
        while self.next == "|":
            self.take()
        options = [self.array()]
        while self.next == "|":
            self.take()
            options.append(self.array())
        return options[0] if len(options) == 1 else ("union", options)

    def array(self) -> Any:
        result = self.single()
        while self.next == "[":
            self.take()
            self.take("]")
            result = ("array", result)
        return result

    def single(self) -> Any:
        token = self.take()
        if token == "{":
            return self.fields()
        if token == "[":
            return self.tuple()
        if token == "(":
            result = self.union()
            self.take(")")
            return result
        return (
            ("literal", token[1:-1]) if token.startswith('"') else ("literal", int(token)) if token.isdigit() else token
        )

    def fields(self) -> Any:
        results = {}
        while self.next != "}":
            name = self.take()
            self.take(":")
            results[name] = self.union()
            if self.next in (";", ","):
                self.take()
        self.take("}")
        return ("object", results)

    def tuple(self) -> Any:
        parts = []
        while self.next != "]":
            if self.at + 1 < len(self.tokens) and self.tokens[self.at + 1] == ":":
                self.at += 2  # the name of the part
            parts.append(self.union())
            if self.next == ",":
                self.take()
        self.take("]")
        return ("tuple", parts)


def declarations(text: str) -> dict[str, Any]:
    """Return the interfaces and types that a file of TypeScript exports, by name."""
    reader = _Reader(_TOKEN.findall(_COMMENT.sub("", text)))
    results: dict[str, Any] = {}
    while reader.next:
        reader.take("export")
        kind, name = reader.take(), reader.take()
        assert kind in ("interface", "type")
        if kind == "type":
            reader.take("=")
            results[name] = reader.union()
            reader.take(";")
        else:
            reader.take("{")
            results[name] = reader.fields()
    return results


SCHEMA = declarations(MODEL.read_text(encoding="utf-8"))


def faults(value: Any, type_: Any = "Page", place: str = "page") -> list[str]:
    """Return where a value is not of a type of the model, at most a few places."""
    if isinstance(type_, str):
        if type_ in SCHEMA:
            return faults(value, SCHEMA[type_], place)
        is_one = {
            "string": isinstance(value, str),
            "number": isinstance(value, (int, float)) and not isinstance(value, bool),
            "boolean": isinstance(value, bool),
            "null": value is None,
        }[type_]
        return [] if is_one else [f"{place}: {value!r:.60} is not a {type_}"]
    kind, inner = type_
    if kind == "literal":
        return [] if value == inner else [f"{place}: {value!r:.60} is not {inner!r}"]
    if kind == "union":
        results = [faults(value, option, place) for option in inner]
        return [] if not all(results) else results[0]
    if kind == "array":
        if not isinstance(value, list):
            return [f"{place}: {value!r:.60} is not a list"]
        return [fault for i, each in enumerate(value) for fault in faults(each, inner, f"{place}[{i}]")][:5]
    if kind == "tuple":
        if not isinstance(value, list) or len(value) != len(inner):
            return [f"{place}: {value!r:.60} has not {len(inner)} parts"]
        pairs = enumerate(zip(value, inner, strict=True))
        return [fault for i, (each, own) in pairs for fault in faults(each, own, f"{place}[{i}]")]
    if not isinstance(value, dict):
        return [f"{place}: {value!r:.60} is not an object"]
    names = {name.rstrip("?") for name in inner}
    found_in = [f"{place}: {key} is not in the model" for key in value if key not in names]
    for name, own in inner.items():
        key = name.rstrip("?")
        if key in value:
            found_in += faults(value[key], own, f"{place}.{key}")
        elif not name.endswith("?"):
            found_in.append(f"{place}: {key} is missing")
    return found_in[:5]


def dangling(page: dict[str, Any]) -> list[str]:
    """Return where a page refers to what it has not, or names two nodes alike."""
    graphs = [page["graph"], *(entry["graph"] for entry in page["lowered"])]
    wrong = [text for i, graph in enumerate(graphs) for text in _dangling_in(graph, i - 1)]
    for node in page["graph"]["nodes"]:
        for entry in node.get("lowered", ()):
            count = len(page["lowered"][entry["target"]]["graph"]["nodes"])
            wrong += [f"{node['name']}: lowered node {i}" for i in entry["nodes"] if not 0 <= i < count]
    for overlay in page["overlays"]:
        count = len(graphs[overlay["of"] + 1]["nodes"])
        rows = [*overlay.get("numbers", ()), *overlay.get("words", ())]
        wrong += [f"overlay {overlay['name']}: node {row[0]}" for row in rows if not 0 <= row[0] < count]
        if len({row[0] for row in rows}) != len(rows):
            wrong.append(f"overlay {overlay['name']}: a node has two entries")
    return wrong


def _dangling_in(graph: dict[str, Any], which: int) -> list[str]:
    nodes, values, groups = graph["nodes"], graph["values"], graph["groups"]
    wrong = []
    names = [node["name"] for node in nodes]
    if len(set(names)) != len(names):
        wrong.append(f"graph {which}: names of nodes are not unique")
    results: set[int] = set()
    for node in nodes:
        wrong += [f"{node['name']}: operand {i}" for i in node["operands"] if not -1 <= i < len(values)]
        wrong += [f"{node['name']}: result {i}" for i in node["results"] if not 0 <= i < len(values) or i in results]
        results.update(node["results"])
        if len(node["operandNames"]) != len(node["operands"]):
            wrong.append(f"{node['name']}: names of operands")
        if not -1 <= node["group"] < len(groups):
            wrong.append(f"{node['name']}: group {node['group']}")
        wrong += [f"{node['name']}: body {i}" for i in node["bodies"] if groups[i]["kind"] == "layer"]
    for i, group in enumerate(groups):
        if not -1 <= group["parent"] < i:
            wrong.append(f"group {group['name']}: parent {group['parent']}")
        if (group["kind"] == "body") is not (0 <= group["owner"] < len(nodes)):
            wrong.append(f"group {group['name']}: owner {group['owner']}")
        wrong += [
            f"group {group['name']}: value {v}"
            for v in (*group.get("inputs", ()), *group.get("outputs", ()))
            if v >= len(values)
        ]
    wrong += [
        f"value {i} is made by no node" for i, v in enumerate(values) if (v["kind"] == "result") is not (i in results)
    ]
    return wrong + [f"end {i}" for i in (*graph["inputs"], *graph["outputs"]) if not 0 <= i < len(values)]
