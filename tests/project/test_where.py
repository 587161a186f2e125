"""Check the table "Where is ..." of CONTRIBUTING.md: each row names a place, and a name that stands in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Where is ...")[2].partition("\n## ")[0]
ROWS = re.findall(r"^\| (.+?) \| \[([^\]]+)\]\(([^)]+)\) \| `([^`]+)` \|$", TEXT, re.MULTILINE)


def test_table_has_a_row_for_each_question() -> None:
    assert len(ROWS) >= 14
    assert len({question for question, *_ in ROWS}) == len(ROWS)
    assert len(ROWS) == len([line for line in TEXT.splitlines() if line.startswith("| ")]) - 1


@pytest.mark.parametrize(("question", "shown", "link", "name"), ROWS, ids=[row[0] for row in ROWS])
def test_row_leads_to_a_place_that_has_what_it_names(question: str, shown: str, link: str, name: str) -> None:
    assert shown.replace("\\", "") == link
    path = ROOT / link
    assert path.exists(), link
    files = [path] if path.is_file() else sorted(path.rglob("*.py"))
    assert any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", file.read_text(encoding="utf-8")) for file in files), name
