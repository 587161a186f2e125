"""The documents are true: their tables are those of the code, and the README's code does what it shows."""

from __future__ import annotations

import contextlib
import io
import linecache
import re
import runpy
import warnings
from pathlib import Path
from typing import Any

import pytest

from docs import make_architecture
from graphcore.build.declare import REGISTRY
from graphcore.cli import main
from graphcore.errors import GraphcoreError

ROOT = Path(__file__).parents[2]
TABLES = runpy.run_path(str(ROOT / "docs" / "make_tables.py"))


def test_ops_page_lists_every_op_when_made_anew() -> None:
    assert (ROOT / "docs" / "ops.md").read_text() == TABLES["ops_page"](), "run python docs/make_tables.py"


def test_dtypes_page_says_what_lowering_does_when_made_anew() -> None:
    assert (ROOT / "docs" / "dtypes.md").read_text() == TABLES["dtypes_page"](), "run python docs/make_tables.py"


def test_onnx_page_has_the_tables_of_the_code() -> None:
    assert (ROOT / "docs" / "onnx.md").read_text() == TABLES["onnx_page"](), "run python docs/make_tables.py"


def test_promotion_pages_have_the_tables_of_the_code() -> None:
    for path, text in TABLES["promotion_pages"]().items():
        assert (ROOT / "docs" / path).read_text() == text, f"{path}: run python docs/make_tables.py"
        assert re.search(r"<!-- end .* -->", text)
        assert not re.search(r"<!-- (.*) -->\n<!-- end \1 -->", text), f"{path}: a table is missing"


def test_promotion_page_shows_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"```\n\$ graphcore (.*?)\n(.*?)```", (ROOT / "docs" / "promotion.md").read_text(), re.DOTALL)
    assert main(block[0].split()) == 0
    assert capsys.readouterr().out == block[1]


def test_architecture_has_the_tables_and_the_picture_of_the_code() -> None:
    again = "run PYTHONPATH=. python docs/make_architecture.py"
    assert (ROOT / "ARCHITECTURE.md").read_text() == make_architecture.page(), again
    assert (ROOT / "docs" / "architecture.svg").read_text() == make_architecture.picture(), again


PAGES = [
    ROOT / "README.md",
    ROOT / "ARCHITECTURE.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("**/*.md")),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_of_documents_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_docstring_of_every_op_begins_with_a_sentence(name: str) -> None:
    summary = REGISTRY[name].summary
    assert summary.endswith("."), f"{name}: {summary!r}"
    assert "|" not in summary


def test_readme_code_prints_what_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```(python|text)\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) >= 8
    namespace: dict[str, Any] = {}
    printed, shown = "", ""
    code = "".join(block for kind, block in blocks if kind == "python")
    # The lines that `str(graph)` and errors name are those of the README's code read as one file.
    linecache.cache["readme.py"] = (len(code), None, code.splitlines(keepends=True), "readme.py")
    number = 0
    for kind, block in blocks:
        if kind == "text":
            shown += block
            continue
        out = io.StringIO()
        try:
            with contextlib.redirect_stdout(out), warnings.catch_warnings():
                exec(compile("\n" * number + block, "readme.py", "exec"), namespace)
        except GraphcoreError as error:
            out.write(f"{type(error).__module__}.{type(error).__name__}: {error}\n")
        number += block.count("\n")
        printed += out.getvalue()
    assert printed == shown
    assert (tmp_path / "scale.onnx").exists()


@pytest.mark.parametrize(
    ("page", "count"),
    [("", 7), ("/max", 3), ("/kernel_float", 3), ("/anvil", 3), ("/array_api", 3), ("/allo", 5)],
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
