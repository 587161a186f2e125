"""The tables of decoders: ratios beside peers, what each engine takes, and how far their numbers are apart."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.peers.decoders.asked import (
    AGAIN,
    KINDS,
    LARGE,
    LATER,
    MEMORY,
    MEMORY_AGAIN,
    PREPARED,
    SMALL,
    START,
    most,
    pairs,
)
from benchmarks.profiles import link, section

Figures = Sequence[dict[str, Any]]

PROGRAM = "bench_decoders"
_HEAD = """\
Llama-like models with random weights, the same for all engines, one thread. A step is that of one stream with 256
tokens, or of 8 streams with 128 each; memory is the greatest with 8 streams, each with room for 1024 tokens; a start is
the processor time of a new process to its first token: from the file, with what that start writes beside it, from one
that was prepared, and, in the last two columns, with what an earlier start left in `cache_dir`."""
_APART = """\
How far apart they are: logits after a prompt, as the length of the difference beside their own, and how many greedy
tokens of 8 streams are the same. Logits of random weights lie close together, so 4 bits choose other tokens in all
engines."""
_BY_CLOCK = re.compile(r", \d+ by the clock")  # on a machine that does other work it says little
_NAMES = {SMALL: "100 million weights", LARGE: "1,100 million weights"}


def tables(figures: Figures) -> Iterator[str]:
    """Return the lines of all tables. figures: those of `make bench`."""
    results = [row for row in figures if row["kind"] == "decoders"]
    if not results:
        return
    yield from ("### Decoders", "")
    yield _HEAD
    yield ""
    for shape in (SMALL, LARGE):
        yield from _ratios(shape, [row for row in results if row["shape"] == shape])
    for shape in (SMALL, LARGE):
        yield from _takes(shape, [row for row in results if row["shape"] == shape])
    yield from _agreement([row for row in figures if row["kind"] == "agreement"])


def _ratios(shape: str, result: Figures) -> Iterator[str]:
    values = {(row["what"], row["ours"], row["peer"]): row["value"] for row in result}
    if not values:
        return
    yield from (f"| {_NAMES[shape]} | beside | {' | '.join(KINDS)} | profile |", "|---" * (len(KINDS) + 3) + "|")
    stated: set[str] = set()
    for ours, peer in pairs(shape):
        results = [most(kind, peer) for kind in KINDS]
        family = peer.split(",")[0]
        if any(results) and family not in stated:
            stated.add(family)
            bounds = " | ".join("" if bound is None else f"at most {bound:g}" for bound in results)
            yield f"| *asked for* | *{family}* | {bounds} | |"
        cells, is_above = [], False
        for kind, bound in zip(KINDS, results, strict=True):
            value = values.get((kind, ours, peer))
            above = value is not None and bound is not None and float(f"{value:.3g}") > bound
            is_above |= above
            message = "–" if value is None else f"{value:.2f}"
            cells.append(f"**{message}**" if above else message)
        name = section(PROGRAM) if is_above else ""
        profile = f"[{name}]({link(name)})" if name else ""
        yield f"| {ours.removeprefix('graphcore, ')} | {peer} | {' | '.join(cells)} | {profile} |"
    yield ""


def _takes(shape: str, result: Figures) -> Iterator[str]:
    """Return the memory and the start time of each engine."""
    kinds = (MEMORY, START, LATER, PREPARED, MEMORY_AGAIN, AGAIN)
    sides: dict[str, dict[str, str]] = {}
    for row in result:
        if row["what"] in kinds:
            for name, side in zip((row["ours"], row["peer"]), row["sides"], strict=True):
                sides.setdefault(name, {})[row["what"]] = _BY_CLOCK.sub("", side)
    if not sides:
        return
    yield from (f"| {_NAMES[shape]} | {' | '.join(kinds)} |", "|---" * (len(kinds) + 1) + "|")
    for name, taken in sorted(sides.items()):
        yield f"| {name} | {' | '.join(taken.get(kind, '') for kind in kinds)} |"
    yield ""


def _agreement(rows: Figures) -> Iterator[str]:
    """Return the differences between decoders of the same weights."""
    if not rows:
        return
    yield _APART
    yield from ("", "| | from | logits | tokens the same |", "|---|---|---|---|")
    for row in rows:
        far = "not given" if row["far"] is None else f"{row['far']:.2g}"
        yield f"| {row['shape']}, {row['name']} | {row['from']} | {far} | {row['same']:.0%} |"
    yield ""
