"""Tests assert nothing about the clock or the memory of the machine, which differ from machine to machine."""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parents[1]

READS = {
    "time": ("time", "monotonic", "perf_counter", "process_time", "thread_time"),
    "resource": ("getrusage",),
    "os": ("times", "getloadavg"),
    "psutil": (),
}
"""By module: the functions that read a clock or the memory of the machine, none for all."""

FILES = ("/proc/self/statm", "/proc/self/status", "smaps")
"""Files with the memory that a process has in use."""

SUSPECTED = re.compile(r"import time|from time|resource|psutil|getloadavg|os\.times|/proc/self|smaps")
"""Text of modules that can assert a reading: others are not parsed."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Module:
    """A module, and what is read from the machine in it."""

    def __init__(self, source: str) -> None:
        self.tree = ast.parse(source)
        self._modules: dict[str, str] = {}
        self._functions: set[str] = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                self._modules |= {each.asname or each.name: each.name for each in node.names if each.name in READS}
            elif isinstance(node, ast.ImportFrom) and node.module in READS:
                own = {each.asname or each.name for each in node.names if _reads(node.module, each.name)}
                self._functions |= own
        helpers = {f.name for f in ast.walk(self.tree) if isinstance(f, Function) and self._returns_a_reading(f)}
        self._functions |= helpers

    def faults(self) -> list[int]:
        """Return the lines of assertions about the clock or the memory of the machine."""
        return self._lines(lambda node: [node.test] if isinstance(node, ast.Assert) else [])

    def printed(self) -> list[int]:
        """Return the lines that print something of the clock or the memory, for another process to look at."""
        return self._lines(lambda node: node.args if _is_print(node) else [])

    def _lines(self, looked_at: Callable[[Any], list[ast.expr]]) -> list[int]:
        lines: set[int] = set()
        for scope in [self.tree, *(f for f in ast.walk(self.tree) if isinstance(f, Function))]:
            names = self._readings(scope)
            for node in ast.walk(scope):
                if any(self._is_reading(expression, names) for expression in looked_at(node)):
                    lines.add(node.lineno)  # type: ignore[attr-defined]
        return sorted(lines)

    def _returns_a_reading(self, function: Function) -> bool:
        names = self._readings(function)
        returned = (node.value for node in _own(function) if isinstance(node, ast.Return) and node.value is not None)
        return any(self._is_reading(value, names) for value in returned)

    def _readings(self, scope: ast.AST) -> set[str]:
        """Return the names of a function that have a reading, or what is computed from one."""
        names: set[str] = set()
        while True:
            before = len(names)
            for node in _own(scope):
                target, value = _assigned(node)
                if value is not None and self._is_reading(value, names):
                    names |= _names(target)
            if len(names) == before:
                return names

    def _is_reading(self, expression: ast.expr, names: set[str]) -> bool:
        for node in ast.walk(expression):
            match node:
                case ast.Name(id=name) if name in names:
                    return True
                case ast.Call(func=ast.Name(id=name)) if name in self._functions:
                    return True
                case ast.Call(func=ast.Attribute(value=ast.Name(id=module), attr=name)) if module in self._modules:
                    if _reads(self._modules[module], name):
                        return True
                case ast.Constant(value=str(text)) if any(file in text for file in FILES):
                    return True
        return False


def _reads(module: str, function: str) -> bool:
    return not READS[module] or function.removesuffix("_ns") in READS[module]


def _is_print(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"


def faults(source: str) -> list[int | str]:
    """Return the lines of a module with faults, and lines of the programs in its texts."""
    if not SUSPECTED.search(source):
        return []
    module = Module(source)
    results: list[int | str] = [*module.faults()]
    for script in _scripts(module.tree):
        within, lines = Module(script), script.splitlines()
        results += [lines[line - 1] for line in sorted({*within.faults(), *within.printed()})]
    return results


def _own(scope: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a function or module, those of functions in it left out."""
    for node in ast.iter_child_nodes(scope):
        yield node
        if not isinstance(node, Function):
            yield from _own(node)


def _assigned(node: ast.AST) -> tuple[ast.expr | None, ast.expr | None]:
    """Return the target of an assignment, and its value."""
    match node:
        case ast.Assign(targets=[target], value=value) | ast.AugAssign(target=target, value=value):
            return target, value
        case ast.AnnAssign(target=target, value=value) | ast.NamedExpr(target=target, value=value):
            return target, value
        case ast.Call(func=ast.Attribute(value=target, attr="append" | "add"), args=[value]):
            return target, value
    return None, None


def _names(target: ast.expr | None) -> set[str]:
    """Return the names that get a value; attributes are left out."""
    match target:
        case ast.Name(id=name):
            return {name}
        case ast.Subscript(value=value) | ast.Starred(value=value):
            return _names(value)
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            return set().union(*map(_names, elements))
    return set()


def _scripts(tree: ast.Module) -> Iterator[str]:
    """Yield the programs of several lines that are text of a module, as those that other processes run."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" in node.value:
            with contextlib.suppress(SyntaxError, ValueError):
                ast.parse(node.value)
                yield node.value


TEST = """
import time
def test():
    begun = time.thread_time()
    work()
    assert 0 < time.thread_time() - begun
"""

HELPER = """
import time
def took():
    begun = time.monotonic()
    work()
    return time.monotonic() - begun
def test():
    seconds = took()
    assert seconds < 2
"""

LISTED = """
import time
def test():
    times = []
    for _ in range(3):
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    assert min(times) < 2
"""

BEST = """
import time
def test():
    best = [9, 9]
    for number in range(2):
        begun = time.perf_counter()
        best[number] = min(best[number], time.perf_counter() - begun)
    assert best[0] < best[1]
"""

MEMORY = """
def used():
    return int(open("/proc/self/smaps_rollup").read().split()[1])
def test():
    before = used()
    work()
    assert used() - before < 2
"""


@pytest.mark.parametrize(
    "source",
    [
        TEST,
        HELPER,
        LISTED,
        BEST,
        MEMORY,
        "import time\nassert time.monotonic() < 2",
        "import time as clock\nassert clock.perf_counter_ns() < 2",
        "from time import monotonic\nassert monotonic() < 2",
        "from time import process_time as now\nassert now() < 2",
        "import time\nbegun = time.time()\ntook = time.time() - begun\nassert took < 2",
        "import resource\nassert resource.getrusage(0).ru_maxrss < 2",
        "import psutil\nassert psutil.Process().memory_info().rss < 2",
        "assert int(open('/proc/self/statm').read().split()[1]) < 2",
    ],
)
def test_assertion_of_the_clock_or_memory_is_a_fault(source: str) -> None:
    assert faults(source) == [len(source.splitlines())]


def test_time_that_a_program_prints_is_a_fault() -> None:
    program = "import time\nbegun = time.time()\nprint('took', time.time() - begun)\n"
    assert faults(f"PROGRAM = {program!r}") == ["print('took', time.time() - begun)"]


FLAG = """
import time
end = time.monotonic() + 60
while not ready() and time.monotonic() < end:
    time.sleep(0.1)
assert ready()
"""

WAITING = """
import time
def wait():
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if ready():
            return True
    return False
assert wait()
"""

OTHER = """
import time
def begin():
    start = time.monotonic()
    other.deadline = start + 1
def test():
    start = 1
    assert start
    assert other.deadline
"""


@pytest.mark.parametrize(
    "source",
    [
        FLAG,
        WAITING,
        OTHER,
        "import time\ntime.sleep(1)\nassert ready()",
        "from datetime import time\nassert time(1)",
        "import os\nassert os.getpid()",
    ],
)
def test_waiting_for_something_is_not_a_fault(source: str) -> None:
    assert faults(source) == []


def test_tests_assert_nothing_of_the_clock_or_memory() -> None:
    paths = sorted(path for path in TESTS.rglob("*.py") if path.name != Path(__file__).name)
    results = {str(path.relative_to(TESTS)): faults(path.read_text(encoding="utf-8")) for path in paths}
    assert {path: lines for path, lines in results.items() if lines} == {}
