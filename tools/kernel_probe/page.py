"""`docs/releases.md`: which release of onnxruntime has which trap, and what is right there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from graphcore.runtime.lowering.targets.releases import Range, table_of
from graphcore.runtime.lowering.targets.traps import Seen
from tools.kernel_probe.probes import traps

Answers = Mapping[str, Mapping[str, Any]]
"""The findings, by release and measurement."""

_HEAD = """\
# Releases of onnxruntime

Made by `python -m tools.kernel_probe --releases ...`, which runs every probe of
`tools/kernel_probe/probes`, the 2,397 cells of `tests/support/every/score.py` and ONNX's own tests of nodes in an
environment of each release. What lowering goes by is `runtime/lowering/targets/cpu.json` and `traps.json`.

A release that was not measured is lowered for by the kernels that it lists and the nearest measured table. It has the
traps of both measured releases next to it; a newer one than all has every trap of the newest.

## Correct results by release

"right" counts cells, and node tests that pass through a session of graphcore at ONNX's own tolerances. opset and IR are
the newest that graphcore writes for the release.

"""

_TRAPS = """\

## Traps

A trap is a kernel that gives other numbers than docs/numbers.md promises, that refuses what ONNX allows or that ends
the process, or an optimiser that changes numbers. Lowering does something about each in the releases that have it:
**x**. With that, all probes are right in all of these releases{but}.

"""


def page(seen: Seen, found: Answers) -> str:
    """Return the page."""
    parts = [
        _HEAD,
        "\n".join(_scores(found)),
        "\n",
        _TRAPS.format(but=_broken(seen, found)),
        "\n".join(_rows(seen)),
        "\n",
    ]
    return "".join(parts)


def _broken(seen: Seen, found: Answers) -> str:
    """Return in which releases some probes are wrong all the same."""
    told = []
    for release in seen.releases:
        wrong = found.get(release, {}).get("traps", {}).get("broken", {})
        names = sorted({place.rpartition(", probe")[0] for place in wrong})
        if names:
            told.append(f"{_joined(names)} in {release}")
    return f", but for some of {' and '.join(told)}" if told else ""


def _scores(found: Answers) -> Iterable[str]:
    yield "| onnxruntime | opset | IR | cells right | of | node tests right | of | files written for it |"
    yield "|---|---|---|---|---|---|---|---|"
    for release in table_of("cpu").releases:
        made = found.get(release.version, {})
        scores = [cell for what in ("cells", "suite") for cell in _score(made.get(what))]
        files = made.get("files")
        told = "" if files is None else "all run" if files["is_right"] else files["said"]
        yield f"| {release.version} | {release.opset} | {release.ir} | {' | '.join(scores)} | {told} |"


def _score(found: Mapping[str, Any] | None) -> tuple[str, str]:
    if found is None:
        return "", ""
    return f"{found['count'] - len(found['wrong']):,}", f"{found['count']:,}"


def _rows(seen: Seen) -> Iterable[str]:
    yield f"| trap | {' | '.join(seen.releases)} | what is wrong |"
    yield f"|---|{'---|' * len(seen.releases)}---|"
    groups: dict[tuple[str, str], list[str]] = {}
    for name, trap in traps().items():
        if name in seen.ranges:
            groups.setdefault((" ".join(trap.what), str(seen.ranges[name])), []).append(name)
    for (what, text), names in sorted(groups.items(), key=lambda item: item[1]):
        found = Range.parse(text)
        marks = " | ".join("**x**" if found.includes(release) else "" for release in seen.releases)
        yield f"| {_joined(names)} | {marks} | {what} |"


def _joined(names: Iterable[str]) -> str:
    """Return names of kernels with an operator's dtypes after it: "Div int8 int16, Mod int8"."""
    made: dict[str, list[str]] = {}
    for name in names:
        operator, _, dtype = name.partition(" ")
        if dtype and " " not in dtype and operator[:1].isupper():
            made.setdefault(operator, []).append(dtype)
        else:
            made.setdefault(name, [])
    return ", ".join(" ".join([f"`{head}`", *dtypes]) for head, dtypes in made.items())
