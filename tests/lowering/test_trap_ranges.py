"""The releases in which a trap is avoided, and ranges of releases from measurements."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from graphcore import DType, Graph, TensorType
from graphcore.runtime.lowering import lower
from graphcore.runtime.lowering.decompositions.rows import rows_of
from graphcore.runtime.lowering.targets import traps
from graphcore.runtime.lowering.targets.legality import legality
from graphcore.runtime.lowering.targets.releases import ANY, ReleaseRange, Runtime, table_of
from graphcore.runtime.lowering.targets.traps import TrapRanges
from tools.kernel_probe import campaign, tables
from tools.kernel_probe.probing import NONE, RIGHT, WRONG

SEEN = TrapRanges(
    ("1.24.4", "1.27.0", "1.30.0", "1.32.0"),
    {
        "always": ReleaseRange(),
        "old": ReleaseRange("", "1.24.4"),
        "middle": ReleaseRange("1.27.0", "1.30.0"),
        "new": ReleaseRange("1.32.0", ""),
    },
)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traps, "trap_ranges", lambda: SEEN)


@pytest.mark.usefixtures("seen")
@pytest.mark.parametrize(
    ("version", "wanted"),
    [
        ("1.24.4", "always old"),
        ("1.27.0", "always middle"),
        ("1.30.0", "always middle"),
        ("1.32.0", "always new"),
        ("1.24.9", "always old middle"),  # between two: the traps of both
        ("1.28.1", "always middle"),
        ("1.31.0", "always middle new"),
        ("99.0", "always new"),  # newer than all: those of the newest
        ("1.20.1", "always old"),  # older than all: those of the oldest
        ("1.32.0+cu12", "always new"),
        ("1.33.0.dev20270101", "always new"),
        ("", "always middle new"),  # files for every supported release
    ],
)
def test_traps_of_a_release_are_its_own_or_those_of_its_neighbours(version: str, wanted: str) -> None:
    runtime = Runtime(version) if version else ANY
    assert [name for name in SEEN.ranges if traps.in_force(name, runtime)] == wanted.split()
    assert traps.in_force("a trap that was not measured", runtime)


@pytest.mark.usefixtures("seen")
def test_trap_that_is_switched_off_is_not_avoided_meanwhile() -> None:
    with traps.switched_off("always"):
        assert not traps.in_force("always", ANY)
        with traps.switched_off("old"):
            assert not any(traps.in_force(name, Runtime("1.24.4")) for name in ("always", "old"))
        assert traps.in_force("old", Runtime("1.24.4"))
    assert traps.in_force("always", ANY)


def test_newer_release_than_all_keeps_every_trap_of_the_newest() -> None:
    newest = traps.trap_ranges().releases[-1]
    for name, item in traps.trap_ranges().ranges.items():
        assert traps.in_force(name, Runtime("99.0")) == item.includes(newest), name


@pytest.mark.parametrize(("version", "op_types"), [("1.31.1", 2), ("1.32.0", 1), ("99.0", 1), ("", 2)])
def test_decomposition_is_used_only_when_the_trap_was_seen(version: str, op_types: int) -> None:
    graph = Graph("signs", {"x": TensorType(DType.int64, ["n"])})
    graph.output(*graph.op("Sign", [graph["x"]]))
    changed = lower(graph, "cpu", runtime=Runtime(version) if version else None)
    assert ("Sign" in {node.op_type for node in changed.nodes}) is (op_types == 1)
    rules = legality("cpu", Runtime(version) if version else None)
    assert (("Sign", DType.int64) in rows_of(rules).rows) is (op_types == 2)


# How measurements become ranges


def states(**result: str) -> Mapping[str, Mapping[str, str]]:
    """By release, oldest first: x wrong, . right, - without a kernel."""
    results = {"x": WRONG, ".": RIGHT, "-": NONE}
    return {
        release: {name: results[letters[place]] for name, letters in result.items()}
        for place, release in enumerate(("1.24.4", "1.27.0", "1.30.0", "1.32.0"))
    }


@pytest.mark.parametrize(
    ("letters", "wanted"),
    [
        ("xxxx", "-"),
        ("x...", "-1.24.4"),
        (".xx.", "1.27.0-1.30.0"),
        ("...x", "1.32.0-"),
        ("x.x.", "-1.30.0"),  # from the first to the last
        ("xx--", "-"),  # nothing tells that it is gone
        ("-xx-", "-"),
        ("-x-.", "-1.30.0"),
        (".-x.", "1.27.0-1.30.0"),
    ],
)
def test_range_goes_from_the_first_release_to_the_last_and_over_what_tells_nothing(letters: str, wanted: str) -> None:
    result = campaign.merged_ranges(None, states(trap=letters))
    assert str(result.ranges["trap"]) == wanted
    assert result.releases == SEEN.releases


def test_trap_that_was_seen_in_no_release_has_no_range() -> None:
    assert campaign.merged_ranges(None, states(trap="....", other="--.-")).ranges == {}


def test_recorded_range_only_grows() -> None:
    recorded = campaign.merged_ranges(None, states(trap=".x.."))
    assert str(recorded.ranges["trap"]) == "1.27.0-1.27.0"
    assert campaign.merged_ranges(recorded, states(trap="....")) == recorded
    assert str(campaign.merged_ranges(recorded, states(trap="..x.")).ranges["trap"]) == "1.27.0-1.30.0"
    assert str(campaign.merged_ranges(recorded, {"1.29.0": {"trap": WRONG}}).ranges["trap"]) == "1.27.0-1.29.0"


def test_new_release_ends_a_range_where_the_machine_shows_the_trap_alone() -> None:
    recorded = campaign.merged_ranges(None, states(trap="xxxx"))
    silent = campaign.merged_ranges(recorded, {"1.33.0": {"trap": RIGHT}})
    assert str(silent.ranges["trap"]) == "-"
    message = campaign.merged_ranges(recorded, {"1.32.0": {"trap": WRONG}, "1.33.0": {"trap": RIGHT}})
    assert str(message.ranges["trap"]) == "-1.32.0"


def test_document_is_read_as_it_was_written() -> None:
    read = json.loads(campaign.traps_document(SEEN))
    assert tuple(read["releases"]) == SEEN.releases
    assert {name: ReleaseRange.parse(text) for name, text in read["traps"].items()} == SEEN.ranges


def test_facts_of_a_table_make_the_table_again() -> None:
    shipped = json.loads(Path(traps.__file__).with_name("cpu.json").read_text())
    assert json.loads(tables.document(tables.merged(tables.facts_of(shipped)))) == shipped


# The page


def test_page_has_every_release_and_every_trap() -> None:
    text = (Path(__file__).parents[2] / "docs" / "development" / "releases.md").read_text()
    for release in table_of("cpu").releases:
        assert f"| {release.version} |" in text
    rows = "\n".join(campaign.trap_rows(traps.trap_ranges()))
    assert rows in text, "run python -m tools.kernel_probe --releases ... --only-probes"
