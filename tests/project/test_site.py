"""The site of the documents: every public name has a page, and docstrings describe parameters in Google style."""

from __future__ import annotations

import doctest
import inspect
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphcore as gc
from docs.site import hooks, op_examples, reference
from docs.site.public_names import MODULES, names
from graphcore import DType, Graph, TensorType, jit, ops
from graphcore.build.declare import REGISTRY

ROOT = Path(__file__).parents[2]
pages = cache(reference.pages)
NAV = re.findall(r"- ([\w/]+\.md)", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
PAGES = [page for page in NAV if (ROOT / "docs" / page).exists()]


@pytest.mark.docs
def test_every_public_name_has_an_entry_in_the_reference() -> None:
    result = pages()
    for module in MODULES:
        for name in names(module):
            text = result[name.page]
            assert f"::: {name.target}\n" in text or f"{{#{name.target}}}" in text, name.path


@pytest.mark.docs
def test_reference_has_every_op_and_every_name_of_the_package() -> None:
    assert {name.name for name in names("graphcore.ops")} == set(REGISTRY)
    listed = {name.name for name in names("graphcore")}
    modules = {name for name in gc.__all__ if f"graphcore.{name}" in MODULES}
    assert listed | modules | {"scale"} == set(gc.__all__)  # most of its names import Ray


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_example_of_every_op_gives_what_it_shows(name: str) -> None:
    seen = {"np": np, "gc": gc, "ops": ops, "jit": jit, "DType": DType, "Graph": Graph, "TensorType": TensorType}
    example = doctest.DocTestParser().get_doctest(op_examples.examples()[name], seen, name, None, None)
    assert example.examples
    assert f"ops.{name}(" in (example.docstring or "") or f"jit(ops.{name})(" in (example.docstring or "")
    results: list[str] = []
    failed, _ = doctest.DocTestRunner().run(example, out=results.append)
    assert not failed, "".join(results)


@pytest.mark.docs
def test_examples_are_of_ops_alone() -> None:
    assert set(op_examples.examples()) == set(REGISTRY)


@pytest.mark.docs
def test_reference_is_the_same_in_every_process() -> None:
    reference = pages()
    assert "{'dead_code': dead_code, " in reference["reference/passes.md"]
    assert not [page for page, text in reference.items() if re.search(r" at 0x[0-9a-f]+>", text)]


@pytest.mark.docs
def test_index_of_the_reference_links_to_pages_that_are_there() -> None:
    result = pages()
    links = re.findall(r"\]\(\.\./(reference/[^)#]+)", result["reference/index.md"])
    assert len(links) > 500
    assert set(links) <= set(result)


@pytest.mark.docs
def test_navigation_has_every_page_once() -> None:
    written = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert len(NAV) == len(set(NAV))
    assert written <= set(NAV), f"not in mkdocs.yml: {sorted(written - set(NAV))}"


def test_search_leaves_out_source_files() -> None:
    assert hooks.source_page("examples/mlp.py").startswith("---\nsearch:\n  exclude: true\n---\n\n# examples/mlp.py\n")


@pytest.mark.docs
def test_navigation_names_no_page_twice() -> None:
    titles = [re.search(r"^# (.+)$", (ROOT / "docs" / page).read_text("utf-8"), re.MULTILINE) for page in PAGES]
    assert all(titles)
    assert len({title[1] for title in titles if title}) == len(PAGES)


@pytest.mark.docs
@pytest.mark.parametrize("page", NAV)
def test_navigation_leads_somewhere(page: str) -> None:
    names = {*pages(), "architecture.md", "contributing.md", "changes.md"}
    assert (ROOT / "docs" / page).exists() or page in names


def public_functions(module: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the public functions of a module, and the constructors and public methods of its classes."""
    for name in names(module):
        value = name.value
        if inspect.isclass(value):
            yield name.path, value if "__init__" not in vars(value) else value.__init__
            for key, member in inspect.getmembers(value, inspect.isfunction):
                if not key.startswith("_") and member.__module__.startswith(("graphcore.runtime", "graphcore.ir")):
                    yield f"{name.path}.{key}", member
        elif inspect.isroutine(value):
            yield name.path, value


@pytest.mark.docs
@pytest.mark.parametrize("module", MODULES)
def test_docstrings_describe_parameters_in_google_style(module: str) -> None:
    griffe = pytest.importorskip("griffe")  # which renders the site
    for path, function in public_functions(module):
        text = inspect.getdoc(function) or ""
        try:
            parameters = {*inspect.signature(function).parameters}
        except (TypeError, ValueError):
            continue
        for section in griffe.parse_google(griffe.Docstring(text)):
            if section.kind is griffe.DocstringSectionKind.parameters:
                described = {item.name.lstrip("*") for item in section.value}
                assert described <= parameters, f"{path}: {described - parameters}"
        prose = re.split(r"^(?:Args|Attributes|Returns|Raises|Example):$", text, maxsplit=1, flags=re.MULTILINE)[0]
        inline = [line for line in prose.splitlines() if (m := re.match(r"(\w+): [a-z]", line)) and m[1] in parameters]
        assert not inline, f"{path}: {inline}"
