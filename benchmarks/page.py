"""Write benchmarks/results.md and its picture from the figures of `make bench`.

python -m benchmarks.page build/figures.jsonl
"""

from __future__ import annotations

import json
import math
import os
import platform
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks import beside, decoder_tables, profiles, reach
from benchmarks.reach import TargetFigure

DOCS = Path(__file__).parent.parent / "docs" / "development"
PACKAGES = (
    "onnxruntime", "onnx", "numpy", "torch", "openvino", "jax", "max", "onnxruntime-genai", "openvino-genai",
    "sentence-transformers", "onnxslim", "transformers", "timm",
)  # fmt: skip

_HEAD = """\
Made by `make bench`, which runs every program of `benchmarks/`. Ratios are those of two things that took turns in one
run; they carry over to other machines, seconds do not. Below 1 graphcore is faster. Times are those of the processor,
most of one thread, since other programs may run on the machine; where a time is one by the clock, it says so. A figure
above what is asked for stands in bold, with the profile that says where its time goes."""


def main(path: str) -> int:
    figures = [json.loads(line) for line in Path(path).read_text().splitlines()]
    bounds = [row for row in figures if row["kind"] == "bounds"]
    peers = [row for row in figures if row["kind"] == "peers"]
    requested = reach.compare(figures)
    picture = _picture(peers, DOCS / "performance.svg")
    Path(__file__).with_name("results.md").write_text(_page(figures, requested, picture))
    print(*(f"{row.work}, beside {row.peer}: {row.result}" for row in beside.rows(figures)), sep="\n")
    print(*decoder_tables.tables(figures), sep="\n")
    print(*reach.lines(requested), sep="\n")
    missed = [f"{row.request.program}: {row.request.figure}" for row in requested if row.holds is False and not row.why]
    missed += [f"{row['program']}: {row['what']}" for row in bounds if not row["held"] and not _why(row)]
    print(*(f"no profile in notes.md, {what}" for what in missed), sep="\n")
    print(f"benchmarks/results.md: {len(bounds)} figures with a bound, {len(peers)} beside peers")
    return 0


def _page(figures: list[dict[str, Any]], requested: list[TargetFigure], picture: bool) -> str:
    bounds, peers = ([row for row in figures if row["kind"] == kind] for kind in ("bounds", "peers"))
    lines = [
        "# Performance", "",
        _HEAD,
        "", f"This run: {_machine()}; {_versions()}.", "",
    ]  # fmt: skip
    lines += ["## Beside what users would pick instead", ""]
    lines += ["| work | beside | asked for, at most | graphcore | profile |", "|---|---|---|---|---|"]
    first = [*beside.rows(figures)]
    lines += [f"| {row.work} | {row.peer} | {row.limit} | {row.result} | {_link(row.why)} |" for row in first]
    lines += ["", *decoder_tables.tables(figures), *_trained(figures), *_architectures(figures)]
    lines += ["## Targets", "", f"{reach.summary(requested)}.", "", *_reach(requested)]
    missed = {row.why for row in requested if row.holds is False} | {_why(row) for row in bounds if not row["held"]}
    lines += _notes(missed | {row.why for row in first})
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
        lines += ["![The same as bars](../docs/development/performance.svg)", ""]
    lines += ["## Bounds of the programs", "", "What each program holds itself to, against regressions.", ""]
    for program in dict.fromkeys(row["program"] for row in bounds):
        lines += [f"### benchmarks.{program}", "", "| | figure | at most | profile |", "|---|---|---|---|"]
        for row in (r for r in bounds if r["program"] == program):
            value = f"{row['value']:.3g}{row['unit']}"
            shown = value if row["held"] else f"**{value}**"
            profile = "" if row["held"] else _link(_why(row))
            most = "–" if row["most"] == math.inf else f"{row['most']:g}{row['unit']}"
            lines.append(f"| {row['what']} | {shown} | {most} | {profile} |")
        lines.append("")
    return "\n".join(lines)


def _trained(figures: list[dict[str, Any]]) -> Iterator[str]:
    """Return the table of third-party models."""
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


def _architectures(figures: list[dict[str, Any]]) -> Iterator[str]:
    """Return the table of PyTorch's exports."""
    rows = sorted((row for row in figures if row["kind"] == "architectures"), key=lambda row: row["ratio"])
    if rows:
        yield from ("## Exports of PyTorch that docs/development/exports.md does not have", "")
        versions = " and ".join(sorted({row["torch"] for row in rows}))
        yield f"Exported by PyTorch {versions}. A call beside bare onnxruntime, what that takes, and the greatest"
        yield "difference of an output as a part of its greatest number."
        yield from ("", "| | call | bare | differs by |", "|---|---|---|---|")
    for row in rows:
        same = f"{row['difference']:.0e}" if row["difference"] else "equal"
        yield f"| {row['name']} | {row['ratio']:.2f} | {row['ms']:.2f} ms | {same} |"
    yield ""


def _reach(rows: list[TargetFigure]) -> Iterator[str]:
    yield from ("| benchmarks. | figure | asked for, at most | this run | |", "|---|---|---|---|---|")
    for row in rows:
        requested, value = row.request, "" if row.value is None else f"{row.value:.3g}{row.request.unit}"
        shown = f"**{value}**" if row.holds is False else value
        verdict = f"{row.verdict}: {_link(row.why)}" if row.holds is False else row.verdict
        yield f"| {requested.program} | {requested.figure} | {requested.most:g}{requested.unit} | {shown} | {verdict} |"
    yield ""


def _why(row: dict[str, Any]) -> str:
    """Return the section with the profile of a figure that has a bound."""
    whys = (item.why for item in reach.ROWS if (item.program, item.figure) == (row["program"], row["what"]))
    return profiles.section(row["program"], next(whys, ""))


def _link(name: str) -> str:
    return f"[{name}]({profiles.link(name)})" if name else ""


def _notes(wanted: set[str]) -> Iterator[str]:
    """Return the sections of the notes that explain figures above what is asked for."""
    results = [text for name, text in profiles.sections().items() if name in wanted]
    if results:
        yield from ("## Where the time goes", "", profiles.introduction() + "\n")
    yield from (f"### {text}\n" for text in results)


def _machine() -> str:
    name = platform.processor() or platform.machine()
    cpu = Path("/proc/cpuinfo")
    if cpu.exists():
        text = cpu.read_text()
        name = next((line.split(":", 1)[1].strip() for line in text.splitlines() if "model name" in line), name)
        results = [flag for flag in ("avx512_vnni", "avx512_bf16", "amx_int8") if flag in text]
        name += f" ({', '.join(results)})" if results else ""
    load = f", a load of {os.getloadavg()[2]:.0f} at the end" if hasattr(os, "getloadavg") else ""
    return f"{name}, {os.cpu_count()} processors{load}"


def _versions() -> str:
    results = []
    for package in PACKAGES:
        try:
            results.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            continue
    return f"Python {platform.python_version()}, {', '.join(results)}"


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
