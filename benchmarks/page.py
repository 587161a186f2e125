"""Write docs/performance.md and its picture from the figures of `make bench`.

python -m benchmarks.page build/figures.jsonl
"""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks import beside, reach
from benchmarks.reach import Found

DOCS = Path(__file__).parent.parent / "docs"
NOTES = Path(__file__).parent / "notes.md"
PACKAGES = (
    "onnxruntime", "onnx", "numpy", "torch", "openvino", "jax", "max", "onnxruntime-genai", "openvino-genai",
    "sentence-transformers",
)  # fmt: skip


def main(path: str) -> int:
    figures = [json.loads(line) for line in Path(path).read_text().splitlines()]
    bounds = [row for row in figures if row["kind"] == "bounds"]
    peers = [row for row in figures if row["kind"] == "peers"]
    asked = reach.found(figures)
    picture = _picture(peers, DOCS / "performance.svg")
    (DOCS / "performance.md").write_text(_page(figures, asked, picture))
    print(*(f"{work}, beside {peer}: {said}" for work, peer, said in beside.rows(figures)), sep="\n")
    print(*reach.lines(asked), sep="\n")
    print(f"docs/performance.md: {len(bounds)} figures with a bound, {len(peers)} beside peers")
    return 0


def _page(figures: list[dict[str, Any]], asked: list[Found], picture: bool) -> str:
    bounds, peers = ([row for row in figures if row["kind"] == kind] for kind in ("bounds", "peers"))
    lines = [
        "# Performance", "",
        "Made by `make bench`, which runs every program of `benchmarks/`. All are ratios of two things that took turns",
        "in one run; ratios carry over to other machines, seconds do not. Lower is better.", "",
        f"This run: {_machine()}; {_versions()}.", "",
    ]  # fmt: skip
    lines += ["## Beside what users would pick instead", ""]
    lines += ["| work | beside | graphcore |", "|---|---|---|"]
    lines += [f"| {work} | {peer} | {said} |" for work, peer, said in beside.rows(figures)]
    lines += ["", *_agreement(figures), *_trained(figures)]
    lines += ["## Bounds", "", f"{reach.summary(asked)}.", "", *_reach(asked)]
    lines += _notes({row.asked.why for row in asked if row.holds is False})
    for case in dict.fromkeys(row["case"] for row in peers):
        lines += [f"## {case}, beside peers", ""]
        lines += ["| | time | quartiles | processor | wall | cosine to graphcore |", "|---|---|---|---|---|---|"]
        for row in (r for r in peers if r["case"] == case):
            low, high = row["quartiles"]
            lines.append(
                f"| {row['name']} | {row['ratio']:.2f} | {low:.2f} to {high:.2f} | {row['cpu_ms']:.1f} ms"
                f" | {row['wall_ms']:.1f} ms | {row['cosine']:.6f} |"
            )
        lines.append("")
    if picture:
        lines += ["![The same as bars](performance.svg)", ""]
    lines += ["## Bounds", "", "What each program holds itself to, and what this run gave.", ""]
    for program in dict.fromkeys(row["program"] for row in bounds):
        lines += [f"### benchmarks.{program}", "", "| | figure | at most | |", "|---|---|---|---|"]
        for row in (r for r in bounds if r["program"] == program):
            held = "" if row["held"] else "**missed**"
            lines.append(f"| {row['what']} | {row['value']:.2f}{row['unit']} | {row['most']:g}{row['unit']} | {held} |")
        lines.append("")
    return "\n".join(lines)


def _agreement(figures: list[dict[str, Any]]) -> Iterator[str]:
    """Return how far decoders of the same weights are from each other."""
    rows = [row for row in figures if row["kind"] == "agreement"]
    if rows:
        yield from ("## Decoders: how far apart they are", "")
        yield "Logits after a prompt, as the length of the difference beside their own, and greedy tokens of 8 streams."
        yield from ("", "| | from | logits | tokens the same |", "|---|---|---|---|")
    for row in rows:
        far = "not given" if row["far"] is None else f"{row['far']:.2g}"
        yield f"| {row['shape']}, {row['name']} | {row['from']} | {far} | {row['same']:.0%} |"
    yield ""


def _trained(figures: list[dict[str, Any]]) -> Iterator[str]:
    """Return the table of models of others."""
    rows = [row for row in figures if row["kind"] == "trained"]
    if rows:
        yield from ("## Models of others, out of packages", "")
        yield "Beside a bare session of onnxruntime; in milliseconds what that takes. The second load has a cache."
        yield from (
            "",
            "| | nodes | load | bare | second | run | bare | outputs |",
            "|---|---|---|---|---|---|---|---|",
        )
    for row in rows:
        same = f"{row['far']:.1g} off" if row["far"] else "equal"
        load = f"{row['load']:.2f} | {row['bare_load'] * 1e3:.1f} ms | {row['second']:.2f}"
        run = f"{row['run']:.2f} | {row['bare_run'] * 1e3:.3f} ms"
        yield f"| {row['label']} | {row['nodes']} | {load} | {run} | {same} |"
    yield ""


def _reach(rows: list[Found]) -> Iterator[str]:
    yield from ("| benchmarks. | figure | asked for | this run | |", "|---|---|---|---|---|")
    for row in rows:
        asked, value = row.asked, "" if row.value is None else f"{row.value:.3g}{row.asked.unit}"
        verdict = row.verdict
        if row.holds is False:
            verdict = f"**[{verdict}](#{asked.why.lower().replace(' ', '-')})**" if asked.why else f"**{verdict}**"
        yield f"| {asked.program} | {asked.figure} | {asked.most:g}{asked.unit} | {value} | {verdict} |"
    yield ""


def _notes(wanted: set[str]) -> Iterator[str]:
    """Return the sections of the notes that explain missed bounds."""
    first, *sections = ("\n" + NOTES.read_text()).split("\n### ")
    kept = [section for section in sections if section.split("\n", 1)[0] in wanted]
    if kept:
        yield first.strip() + "\n"
    yield from (f"### {section.strip()}\n" for section in kept)


def _machine() -> str:
    name = platform.processor() or platform.machine()
    cpu = Path("/proc/cpuinfo")
    if cpu.exists():
        text = cpu.read_text()
        name = next((line.split(":", 1)[1].strip() for line in text.splitlines() if "model name" in line), name)
        found = [flag for flag in ("avx512_vnni", "avx512_bf16", "amx_int8") if flag in text]
        name += f" ({', '.join(found)})" if found else ""
    return name


def _versions() -> str:
    found = []
    for package in PACKAGES:
        try:
            found.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            continue
    return f"Python {platform.python_version()}, {', '.join(found)}"


def _picture(peers: list[dict[str, Any]], path: Path) -> bool:
    """Draw bars of the ratios, where matplotlib is installed."""
    try:
        import matplotlib
    except ImportError:
        return path.exists()
    if not peers:
        return False
    matplotlib.use("svg")
    matplotlib.rcParams["svg.fonttype"] = "none"
    from matplotlib import pyplot

    cases = [*dict.fromkeys(row["case"] for row in peers)]
    down = (len(cases) + 1) // 2
    figure, axes = pyplot.subplots(down, 2, figsize=(12, 3.5 * down), squeeze=False)
    for axis in axes.flat[len(cases) :]:
        axis.remove()
    for case, axis in zip(cases, axes.flat, strict=False):
        rows = [row for row in peers if row["case"] == case][::-1]
        colours = ["#1f77b4" if row["name"].startswith("graphcore") else "#bbbbbb" for row in rows]
        axis.barh([row["name"] for row in rows], [row["ratio"] for row in rows], color=colours)
        axis.set_title(f"{case}: processor time, graphcore's is 1")
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    return True


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
