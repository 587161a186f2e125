"""Metrics of several models as one text of Prometheus' format, in which the lines of a metric stand together."""

from __future__ import annotations

from collections.abc import Iterable


def merged(texts: Iterable[str]) -> str:
    """Return the texts as one: each metric's HELP and TYPE once, then the samples of all models."""
    heads: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for text in texts:
        name = ""
        for line in text.splitlines():
            if line.startswith("# "):
                _, kind, name, _ = line.split(" ", 3)
                known = heads.setdefault(name, [])
                if not any(each.startswith(f"# {kind} ") for each in known):
                    known.append(line)
            elif line:
                samples.setdefault(name, []).append(line)
    lines = [line for name, head in heads.items() for line in (*head, *samples.get(name, ()))]
    return "".join(f"{line}\n" for line in lines)
