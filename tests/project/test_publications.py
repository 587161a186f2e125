"""docs/development/publications.md: every statement and feature has a number of its own and a test that exists."""

from __future__ import annotations

import ast
import itertools
import re
from functools import cache
from pathlib import Path

import pytest

import graphcore

ROOT = Path(__file__).parents[2]
PAGE, _, AROUND = (
    (ROOT / "docs" / "development" / "publications.md").read_text("utf-8").partition("## The features around")
)
FEATURES = re.findall(r"^\| ([A-Z])(\d+) \| (.+) \| (.+) \| `(\S+)` \|$", AROUND, re.MULTILINE)
ROWS = re.findall(r"^\| ([A-Z])(\d+) \| (.+) \| `(\S+)` \|$", PAGE, re.MULTILINE)


@cache
def functions_of(path: Path) -> frozenset[str]:
    """Return the names of the functions of a file of tests."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def test_every_line_of_the_tables_is_a_statement_with_a_test() -> None:
    lines = [line for line in PAGE.splitlines() if line.startswith("|") and not line.startswith(("|---", "| | "))]
    assert len(lines) == len(ROWS) > 200


def test_statements_are_numbered_in_order() -> None:
    for letter, rows in itertools.groupby(ROWS, key=lambda row: row[0]):
        assert [int(number) for _, number, _, _ in rows] == list(range(1, sum(r[0] == letter for r in ROWS) + 1))
    assert list(dict.fromkeys(row[0] for row in ROWS)) == list("MKNPA")


def test_features_are_numbered_in_order() -> None:
    lines = [line for line in AROUND.splitlines() if line.startswith("|") and not line.startswith(("|---", "| | "))]
    assert len(lines) == len(FEATURES) > 70
    for letter, rows in itertools.groupby(FEATURES, key=lambda row: row[0]):
        assert [int(row[1]) for row in rows] == list(range(1, sum(r[0] == letter for r in FEATURES) + 1))
    assert list(dict.fromkeys(row[0] for row in FEATURES)) == list("FVLX")


@pytest.mark.parametrize("name", sorted({name for row in FEATURES for name in re.findall(r"`([^`]+)`", row[3])}))
def test_name_of_a_feature_exists(name: str) -> None:
    result: object = graphcore
    for part in name.split("."):
        result = getattr(result, part)
    assert callable(result)


@pytest.mark.parametrize("named", sorted({row[-1] for row in (*ROWS, *FEATURES)}))
def test_test_that_shows_a_statement_exists(named: str) -> None:
    path, _, function = named.partition("::")
    assert function.startswith("test_")
    assert function in functions_of(ROOT / path)
