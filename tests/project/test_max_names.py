"""Every name of the MAX Graph API has a counterpart that exists, or a reason why it has none."""

from __future__ import annotations

import inspect
import types
from pathlib import Path
from typing import Any

import pytest

import graphcore as gc
from docs import max_tables
from graphcore.runtime.inspection.profiling import Profile

ROOT = Path(__file__).parents[2]
ROWS = [(section, name) for section, names in max_tables.sections().items() for name in names]


def resolved(path: str) -> Any:
    """Return the object at a path under `graphcore`. Instance attributes count as found."""
    match: Any = Profile if path.startswith("Profile.") else gc
    parts = path.split(".")[match is Profile :]
    for position, part in enumerate(parts):
        is_own = part in vars(object) and isinstance(match, type)
        if hasattr(match, part) and not (is_own and getattr(match, part) is getattr(object, part)):
            match = getattr(match, part)
            continue
        attribute = inspect.unwrap(getattr(match, "__init__", print))
        result = attribute.__code__.co_names if isinstance(attribute, types.FunctionType) else ()
        declared = getattr(match, "__annotations__", {})
        assert position == len(parts) - 1, f"there is no graphcore.{path}"
        assert part in result or part in declared, f"there is no graphcore.{path}"
        return None
    return match


def test_the_list_of_names_is_whole() -> None:
    listed = max_tables.sections()
    assert len(listed) == 28
    assert len(ROWS) == len(set(ROWS)) == 475
    assert "insert_transformation" in {name.split(".")[-1] for name in listed["symbol.mojo"]}


@pytest.mark.parametrize("section", max_tables.sections())
def test_every_name_has_a_counterpart_that_exists_or_a_reason(section: str) -> None:
    for name in max_tables.sections()[section]:
        paths, remark = max_tables.counterpart(section, name)
        for path in paths:
            resolved(path)
        assert paths or len(remark) > 20, f"{section}: {name} has neither counterpart nor reason"


def test_no_counterpart_is_told_of_a_name_that_is_not_listed() -> None:
    listed = max_tables.sections()
    for section, item in max_tables.COUNTERPARTS.items():
        assert set(item) <= set(listed[section]), section
    assert {*max_tables.TITLES, *max_tables.HOMES} <= set(listed)


def test_names_that_do_not_exist_are_found_out() -> None:
    for path in ("ops.insert", "Symbol.nothing", "Model.capture", "Shape.__init__", "nowhere.at.all"):
        with pytest.raises(AssertionError, match="there is no graphcore"):
            resolved(path)
    for path in ("Model.name", "InferenceSession.providers", "quantization.Encoding.block", "Buffer.in_place"):
        resolved(path)


@pytest.mark.docs
def test_the_page_has_the_table_of_the_code() -> None:
    assert (ROOT / "docs" / "max.md").read_text() == max_tables.page(), "run python docs/make_tables.py"
