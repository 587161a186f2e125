"""Models that PyTorch exports, loaded beside bare onnxruntime: fusions, differences of results, and times of calls.

`python -m benchmarks.exports` needs torch, transformers, timm, torchvision and onnxscript, and takes hours.

    python -m benchmarks.exports --models BERT Llama   # some of them, in rows on the screen
    python -m benchmarks.exports --folder exports   # keeps the files and what was measured with this onnxruntime
    python -m benchmarks.exports --folder exports --page docs/development/exports.md

With the same folder and the Python of another environment, another release of onnxruntime is measured on the same
files, without torch; the page has a column for each release that the folder has figures of.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import gc as collector
import json
import logging
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

import graphcore as gc
from benchmarks.peers import architectures
from benchmarks.peers.exported import CASES, EXPORTERS, Case, export, feeds
from benchmarks.timing import compare
from graphcore import Graph

ATTENTIONS = ("eager", "sdpa")
LAST = "sdpa"
"""The one in which models beyond the first table are exported."""
LOOKED_FOR = ("Attention", "RMSNormalization", "LayerNormalization", "RotaryEmbedding")
ROUNDS = 21
LEAST = 0.02
"""Seconds that are timed at once."""
LONG = 1.0
"""Milliseconds above which a call is long."""
LIMIT, LIMIT_SHORT = 1.03, 1.1
"""The most that is asked for, of long calls and of others."""

Array = np.ndarray[Any, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--folder", type=Path, help="where exported files and figures are kept, and found again")
    parser.add_argument("--models", nargs="*", help="names of models; all by default")
    parser.add_argument("--page", type=Path, help="the page to write")
    value = parser.parse_args()
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as spare:
        folder = value.folder or Path(spare)
        folder.mkdir(parents=True, exist_ok=True)
        rows = []
        for case, exporter, attention in _cases(value.models):
            row = _exported(case, exporter, attention, folder)
            rows.append(row)
            print(_line(row), flush=True)
        slow = [f"{row['model']} ({row['exporter']}) {row['ratio']:.2f}" for row in rows if _is_slow(row)]
        print("slower than the file as it is:", ", ".join(slow) or "none")
        if value.page:
            value.page.write_text(page(folder))


def _cases(models: Sequence[str] | None = None) -> Iterator[tuple[Case, str, str]]:
    """Yield models, each with its exporter and its attention. models: their names; all by default."""
    for cases, attentions in ((CASES, ATTENTIONS), (architectures.CASES, (LAST,))):
        for case in cases:
            for exporter in EXPORTERS if not models or case.name in models else ():
                for attention in attentions:
                    yield case, exporter, attention


def _is_slow(row: dict[str, Any]) -> bool:
    """Return True if calls take longer than bare onnxruntime's, by more than what small models are allowed."""
    return row.get("ratio") is not None and row["ratio"] > (LIMIT if row["ms"] > LONG else LIMIT_SHORT)


def _exported(case: Case, exporter: str, attention: str, folder: Path) -> dict[str, Any]:
    """Return the row of a model, measured once for a folder."""
    path = folder / f"{_stem(case, exporter, attention)}.onnx"
    figures = _figures(path, onnxruntime.__version__)
    if figures.exists():
        data: dict[str, Any] = json.loads(figures.read_text())
        return data
    row: dict[str, Any] = {"model": case.name, "exporter": exporter, "attention": attention}
    if not path.exists():
        try:
            with _quiet():
                export(case, exporter, attention, path)
        except Exception as error:  # any error of an exporter
            path.unlink(missing_ok=True)
            row["not exported"] = type(error).__name__
    if "not exported" not in row:
        row |= measured(case, path)
    figures.write_text(json.dumps(row))
    return row


def _stem(case: Case, exporter: str, attention: str) -> str:
    return f"{case.name.replace(' ', '_').replace(',', '')}.{exporter}.{attention}"


def _figures(path: Path, release: str) -> Path:
    """Return the file of what was measured of an exported one with a release of onnxruntime."""
    return path.with_suffix(f".{release}.json")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress all output, that of PyTorch's C++ code too, which prints whole graphs that it cannot write."""
    results = [(number, os.dup(number)) for number in (1, 2)]
    sys.stdout.flush()
    with open(os.devnull, "w") as nowhere:
        for number, _ in results:
            os.dup2(nowhere.fileno(), number)
        try:
            yield
        finally:
            sys.stdout.flush()
            for number, copy in results:
                os.dup2(copy, number)
                os.close(copy)


def measured(case: Case, path: Path, rounds: int = ROUNDS) -> dict[str, Any]:
    """Measure loading a file and calling it beside bare onnxruntime."""
    try:
        model = gc.InferenceSession(intra_op_num_threads=1).load(path)
    except gc.errors.GraphcoreError as error:
        return {"not loaded": str(error).splitlines()[0]}
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    try:
        bare = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception:  # onnxruntime raises several kinds of its own
        return {"not loaded": "bare onnxruntime refuses it"}
    names = {i.name for i in bare.get_inputs()}
    differences, odd, runs = [], [], []
    shapes = _shapes(case)
    for batch, length, mask in shapes:
        arrays = {name: a for name, a in feeds(case, batch, length, mask).items() if name in names}
        at = f"{batch} x {length}, {mask}"
        try:
            want = bare.run(None, arrays)[0]
        except Exception:  # onnxruntime raises several kinds of its own
            continue
        runs.append((batch, length, mask))
        try:
            got = model.execute(**arrays)[0]
        except gc.errors.GraphcoreError as error:
            odd.append(f"fails at {at}: {str(error).splitlines()[0]}")
            continue
        difference = _difference(got, want)
        if difference is None:
            odd.append(f"differs at {at}")
        else:
            differences.append(difference)
    if not runs:
        return {"not loaded": "bare onnxruntime runs it at no shape"}
    if len(runs) < len(shapes):
        odd.append(f"bare onnxruntime fails at {len(shapes) - len(runs)} of {len(shapes)} shapes")
    before, after = (collections.Counter(_operators(g)) for g in (Graph.load(path), model._lowered))
    batch, length, mask = runs[0]
    arrays = {name: a for name, a in feeds(case, batch, length, mask).items() if name in names}
    ratio, each = None, 1
    if not any(text.startswith("fails") for text in odd):
        collector.freeze()  # scanning PyTorch's objects takes long in each round
        start = time.process_time()
        bare.run(None, arrays)
        each = max(1, round(LEAST / (time.process_time() - start)))
        ours, theirs = (lambda: model.execute(**arrays)), (lambda: bare.run(None, arrays))
        ratio = compare(_often(ours, each), _often(theirs, each), rounds, clock=time.process_time)
    return {
        "difference": max(differences, default=None),
        "odd": odd,
        "found": {name: after[name] - before[name] for name in LOOKED_FOR if after[name] > before[name]},
        "left": {name: after[name] for name in ("Softmax",) if after[name]},
        "ratio": None if ratio is None else ratio.value,
        "ms": None if ratio is None else ratio.peer * 1e3 / each,
    }


def _often(function: Callable[[], object], count: int) -> Callable[[], object]:
    def run() -> None:
        for _ in range(count):
            function()

    return run


def _shapes(case: Case) -> list[tuple[int, int, str]]:
    """Return batch, length and kind of mask; the first that runs is timed. The last is that of the export."""
    if not any("s" in dims for dims in case.inputs.values()):
        return [(1, 1, "whole"), (3, 1, "whole")]
    shapes = [(1, 128, "whole"), (2, 128, "whole"), (1, 7, "whole"), (1, 1, "whole")]
    is_masked = any(name.endswith("mask") for name in case.inputs)
    shapes += [(3, 33, "padded"), (2, 20, "empty")] if is_masked else [(3, 33, "whole")]
    return [*shapes, (2, 16, "whole")]


def _difference(got: Array, want: Array) -> float | None:
    """Return the largest difference relative to the largest number; None where shapes or positions of NaN differ."""
    if got.shape != want.shape or (np.isnan(got) != np.isnan(want)).any():
        return None
    expected = ~np.isnan(want)
    if not expected.any():
        return 0.0
    return float(np.abs(got[expected] - want[expected]).max() / max(1e-30, np.abs(want[expected]).max()))


def _operators(graph: Graph | None) -> Iterator[str]:
    for node in () if graph is None else graph.nodes:
        yield node.op_type
        for value in node.attributes.values():
            if isinstance(value, Graph):
                yield from _operators(value)


def _line(row: dict[str, Any]) -> str:
    what = f"{row['model']:<28} {row['exporter']:<7} {row['attention']:<6}"
    for reason in ("not exported", "not loaded"):
        if reason in row:
            return f"{what} {reason}: {row[reason]}"
    ratio = "    " if row["ratio"] is None else f"{row['ratio']:.2f}"
    difference = "" if row["difference"] is None else f"{row['difference']:.0e}"
    return f"{what} {ratio}  {difference:<6} {_verdict(row)} {'; '.join(row['odd'])}".rstrip()


def _verdict(row: dict[str, Any]) -> str:
    remaining = row["left"].get("Softmax", 0)
    counts = [f"{n} {name}" for name, n in row["found"].items()]
    return ", ".join([*counts, *([f"{remaining} Softmax left"] if remaining else [])])


# The page

HEAD = """# Models that PyTorch exports

Made by `python -m benchmarks.exports --page docs/development/exports.md`, with PyTorch {torch}, transformers
{transformers} and timm {timm} on the CPU provider of onnxruntime {releases}. Small models with random weights are
exported by
both of `torch.onnx.export`'s exporters (`dynamo=True` and `False`) with dims that change. Each file is loaded by
`gc.InferenceSession().load(path)` and by bare onnxruntime.

- **Time**: processor time of a call, divided by that of bare onnxruntime on the same file; one row of 128 tokens or one
  image, one thread, the median of {rounds} rounds in which both take turns. A difference of 0.02 is noise, one of 0.05
  for models that take less than 5 ms. Where the exporter wrote sizes as numbers, so that onnxruntime fails at others,
  the sizes of the export, 2 rows of 16. A dash: not measured.
- **Differs by**: the largest difference over batches of 1 to 3, lengths of 1, 7, 20, 33 and 128, masks that hide the
  ends of rows and masks that hide a whole row, as a part of the largest number of the result.
- **Fusions**: what replaces primitives ([Fusions](../howto/optimize.md#fusions)). Softmax is left where a bias follows
  from the queries (DeBERTa, SAM), where scores are capped (Gemma 2) and where attention has three axes (Bloom).

"""

FIRST = """## Transformers

Of four layers, 384 wide. Two times: of attention written as products (`eager`), then of
`scaled_dot_product_attention` (`sdpa`), as transformers writes either.

"""

SECOND = """## Further architectures

Of transformers, timm and torchvision, as the packages make them; those of transformers with `sdpa`.

"""


def page(folder: Path) -> str:
    """Return the page of all figures that a folder has."""
    import timm  # these three are installed where files are exported
    import torch
    import transformers

    items = (re.search(rf"\.(?:{'|'.join(ATTENTIONS)})\.(.+)\.json$", path.name) for path in folder.glob("*.json"))
    releases = sorted({match[1] for match in items if match}, key=_number)
    head = HEAD.format(
        torch=torch.__version__.split("+")[0], transformers=transformers.__version__, timm=timm.__version__,
        releases=" and ".join(releases), rounds=ROUNDS,
    )  # fmt: skip
    results: dict[str, dict[str, dict[str, Any]]] = {release: {} for release in releases}
    for case, exporter, attention in _cases():
        stem = _stem(case, exporter, attention)
        for release in releases:
            figures = _figures(folder / f"{stem}.onnx", release)
            if figures.exists():
                results[release][stem] = json.loads(figures.read_text())
    tables = _table(FIRST, CASES, ATTENTIONS, results), _table(SECOND, architectures.CASES, (LAST,), results)
    return head + "".join(tables) + "\n".join(map(_summary, results.items()))


def _number(release: str) -> list[int]:
    return [-int(part) for part in release.split(".")]


def _table(
    text: str, cases: Sequence[Case], attentions: Sequence[str], figures: Mapping[str, Mapping[str, dict[str, Any]]]
) -> str:
    """Return a table, with a column of times for each release; what else it says is of the newest that has figures."""
    columns = ["model", "exporter", *figures, "differs by", "fusions"]
    lines = [text + f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    for case in cases:
        for exporter in EXPORTERS:
            stems = [_stem(case, exporter, attention) for attention in attentions]
            rows = [next((rows[s] for rows in figures.values() if s in rows), None) for s in stems]
            results = [row for row in rows if row is not None]
            done = [row for row in results if "ratio" in row]
            if not results:
                continue
            name = f"{case.name} | {exporter}"
            if not done:
                reason = next(f"{k}: {row[k]}" for row in results for k in ("not exported", "not loaded") if k in row)
                lines.append(f"| {name} {'| ' * (len(figures) + 1)}| {reason} |")
                continue
            times = " | ".join([", ".join([_time(rows.get(s)) for s in stems]) for rows in figures.values()])
            differences = [row["difference"] for row in done if row["difference"] is not None]
            worst = f"{max(differences):.0e}" if any(differences) else "0"
            items = list(dict.fromkeys([_verdict(row) for row in done]))
            odd = list(dict.fromkeys(text for row in done for text in row["odd"]))
            lines.append(f"| {name} | {times} | {worst} | {'; '.join([t for t in (*items, *odd) if t])} |")
    return "\n".join(lines) + "\n\n"


def _time(row: dict[str, Any] | None) -> str:
    ratio = None if row is None else row.get("ratio")
    return "–" if ratio is None else f"{ratio:.2f}"


def _summary(item: tuple[str, Mapping[str, dict[str, Any]]]) -> str:
    release, rows = item
    ratios = sorted(row["ratio"] for row in rows.values() if row.get("ratio") is not None)
    unloaded = [f"{row['model']} ({row['exporter']})" for row in rows.values() if "not loaded" in row]
    slow = [f"{row['model']} ({row['exporter']}) {row['ratio']:.2f}" for row in rows.values() if _is_slow(row)]
    return (
        f"onnxruntime {release}: {len(ratios)} files were timed, the middle of the times is {np.median(ratios):.2f},"
        f" from {ratios[0]:.2f} to {ratios[-1]:.2f}. Above {LIMIT:g}, or {LIMIT_SHORT:g} for calls below {LONG:g} ms:"
        f" {', '.join(slow) or 'none'}. Files that do not load: {', '.join(unloaded) or 'none'}.\n"
    )


if __name__ == "__main__":
    main()
