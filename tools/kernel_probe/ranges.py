"""In which releases each trap was seen: what is recorded, and what was found on this machine, as ranges of releases."""

from __future__ import annotations

import json
from collections.abc import Mapping

from graphcore.runtime.lowering.targets.releases import Range, ordered
from graphcore.runtime.lowering.targets.traps import Seen
from tools.kernel_probe.probing import RIGHT, WRONG

States = Mapping[str, str]
"""The outcome of each trap in one release, by name."""


def merged(recorded: Seen | None, found: Mapping[str, States]) -> Seen:
    """Return the ranges of all traps that were ever seen. found: by release, on this machine.

    Some traps depend on the processor. So what is recorded stays, and a release without a trap ends its range only
    where another release has it here: a processor that does not show a trap at all tells nothing of it.
    """
    old = recorded or Seen((), {})
    releases = tuple(sorted({*old.releases, *found}, key=ordered))
    ranges = {}
    for name in sorted({*old.ranges, *(name for states in found.values() for name in states)}):
        before = old.ranges.get(name)
        here = {release for release, states in found.items() if states.get(name) == WRONG}
        seen = here | {r for r in old.releases if before is not None and before.includes(r)}
        free = {release for release, states in found.items() if here and states.get(name) == RIGHT} - seen
        free |= {r for r in old.releases if before is not None} - seen
        if seen:
            ranges[name] = _range(releases, seen, free)
    return Seen(releases, ranges, old.files)


def _range(releases: tuple[str, ...], seen: set[str], free: set[str]) -> Range:
    """Return the range from the first to the last release that has it, and on to the next that certainly has not."""
    places = [releases.index(release) for release in seen]
    before = [p for p in map(releases.index, free) if p < min(places)]
    after = [p for p in map(releases.index, free) if p > max(places)]
    return Range(releases[max(before) + 1] if before else "", releases[min(after) - 1] if after else "")


def document(seen: Seen) -> str:
    """Return the JSON of traps.json, a trap a line."""
    releases = json.dumps(list(seen.releases))
    return f'{{\n "releases": {releases},\n "files": {_lines(seen.files)},\n "traps": {_lines(seen.ranges)}\n}}\n'


def _lines(ranges: Mapping[str, Range]) -> str:
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(str(found))}" for name, found in sorted(ranges.items()))
    return f"{{\n{lines}\n }}"
