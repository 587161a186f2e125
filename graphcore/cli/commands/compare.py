"""`graphcore compare`: errors and times of forms of a model, compared with the exact one on the CPU."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from graphcore import runtime
from graphcore.analysis.sizes import bytes_of
from graphcore.cli import output
from graphcore.cli.arguments.options import links
from graphcore.cli.commands.bench import Latency, in_turns, ratio, share_of
from graphcore.cli.distances import OutputDistance, distance, feeds_of
from graphcore.errors import GraphcoreError
from graphcore.ir.graph import Graph, Precision
from graphcore.ir.symbol import Constant
from graphcore.runtime.ort.options import installed

_DTYPES = ("float16", "bfloat16")
_SCHEMES = ("int8_dynamic", "int8", "int4")


@dataclass(frozen=True, slots=True)
class ModelForm:
    """A way to run the model. kind: "precision", "dtype" or "scheme". name: its value."""

    provider: str
    kind: str
    name: str

    @property
    def label(self) -> str:
        return f"{self.provider} {self.name}"

    def graph(self, graph: Graph) -> Graph:
        """Return the graph in this form. Raises as `Graph.astype` and `quantize` do."""
        if self.kind == "dtype":
            return graph.astype(self.name)
        return runtime.quantize(graph, self.name).graph if self.kind == "scheme" else graph

    @property
    def precision(self) -> Precision | None:
        if self.kind != "precision":
            return None
        return "fast" if self.name == "fast" else "exact"


@dataclass(frozen=True, slots=True)
class FormResult:
    """The result of a form.

    weights: the bytes of its weights and constants. beside: the latency of the exact model in the same rounds.
    reason: why the form has no results, or "".
    """

    form: ModelForm
    weights: int = 0
    latency: Latency | None = None
    beside: Latency | None = None
    outputs: Mapping[str, OutputDistance] | None = None
    reason: str = ""

    @property
    def largest(self) -> float | None:
        """The largest absolute error of an output."""
        return max((d.absolute for d in (self.outputs or {}).values() if d.absolute is not None), default=None)

    @property
    def cosine(self) -> float | None:
        """The smallest cosine similarity of an output to the exact one."""
        return min((d.cosine for d in (self.outputs or {}).values() if d.cosine is not None), default=None)

    @property
    def ratio(self) -> float | None:
        """The time of a call divided by that of the exact model."""
        return None if self.latency is None or self.beside is None else ratio(self.latency, self.beside)

    def as_dict(self) -> dict[str, Any]:
        return {
            "provider": self.form.provider,
            "kind": self.form.kind,
            "name": self.form.name,
            "reason": self.reason,
            "weights": self.weights or None,
            "absolute": self.largest,
            "cosine": self.cosine,
            "outputs": {name: each.as_dict() for name, each in (self.outputs or {}).items()},
            "latency": None if self.latency is None else self.latency.as_dict(),
            "ratio": self.ratio,
        }


def compare(args: argparse.Namespace) -> int:
    with output.working(f"loading {args.model}"):
        graph = Graph.load(args.model, **links(args))
        exact = _session(args, ModelForm("cpu", "precision", "exact")).load(graph)
    feeds = feeds_of("compare", exact.name, exact.inputs, args, fills=True)
    expected = dict(zip(exact.outputs, exact(**feeds), strict=True))
    forms = _forms(args)
    rows: list[FormResult] = []
    with output.progress(f"comparing {args.model}") as advance:
        for number, form in enumerate(forms):
            tell = share_of(advance, number, len(forms), args.seconds)
            rows.append(_row(args, form, graph, lambda: exact(**feeds), feeds, expected, tell))
    if args.json:
        head = {"model": args.model, "seconds": args.seconds, "weights": _weights(graph)}
        output.document(head | {"forms": [row.as_dict() for row in rows]})
        return 0
    _print(rows)
    return 0


def _forms(args: argparse.Namespace) -> list[ModelForm]:
    """Return the requested forms on each provider, by default all."""
    requested = {"precision": args.precision or [], "dtype": args.dtype or [], "scheme": args.scheme or []}
    if not any(requested.values()):
        requested = {"precision": ["fast"], "dtype": [*_DTYPES], "scheme": [*_SCHEMES]}
    requested["precision"] = ["exact", *(name for name in requested["precision"] if name != "exact")]
    providers = dict.fromkeys(args.provider or installed())
    return [
        ModelForm(provider, kind, name)
        for provider in providers
        for kind, names in requested.items()
        for name in dict.fromkeys(names)
    ]


def _session(args: argparse.Namespace, form: ModelForm) -> runtime.InferenceSession:
    options = {} if args.threads is None else {"intra_op_num_threads": args.threads}
    return runtime.InferenceSession(form.provider, precision=form.precision, **options)


def _row(
    args: argparse.Namespace,
    form: ModelForm,
    graph: Graph,
    exact: Callable[[], list[Any]],
    feeds: Mapping[str, Any],
    expected: Mapping[str, Any],
    tell: Callable[[float], None],
) -> FormResult:
    try:
        variant = form.graph(graph)
        model = _session(args, form).load(variant)
        results = dict(zip(model.outputs, model(**feeds), strict=True))
        latency, beside = in_turns([lambda: model(**feeds), exact], args.seconds, tell)
    except GraphcoreError as error:
        return FormResult(form, reason=error.summary)
    distances = {name: distance(array, results[name]) for name, array in expected.items()}
    return FormResult(form, _weights(variant), latency, beside, distances)


def _weights(graph: Graph) -> int:
    """Return the bytes of weights and constants in a file."""
    return sum(bytes_of(s) for s in graph.symbols if isinstance(s.producer, Constant))


def _print(rows: list[FormResult]) -> None:
    head = ("form", "max abs", "cosine", "differ", "p50 ms", "beside exact", "weights")
    table, reasons = [], []
    for row in rows:
        if row.reason:
            reasons.append(f"{row.form.label}: {row.reason}")
            table.append((row.form.label, "-", "-", "-", "-", "-", "-"))
            continue
        assert row.latency is not None
        assert row.outputs is not None
        differing = sum(each.differing for each in row.outputs.values())
        table.append(
            (
                row.form.label,
                "-" if row.largest is None else f"{row.largest:.3g}",
                "-" if row.cosine is None else f"{row.cosine:.6f}",
                str(differing),
                f"{row.latency.percentile(50) * 1e3:.4g}",
                "-" if row.ratio is None else f"{row.ratio:.3f}",
                output.size(row.weights),
            )
        )
    output.table(table, head=head, numbers=range(1, 7))
    for reason in reasons:
        output.line(reason)
