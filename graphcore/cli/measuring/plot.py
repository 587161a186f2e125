"""A picture of a benchmark, as SVG: latency and throughput of each row, both sides side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from graphcore.cli.measuring.latency import Latency
from graphcore.support.escaping import escaped

_WIDTH = 760
_LEFT, _RIGHT = 170, 90
_BAR, _GAP, _TOP = 14, 16, 64
_OURS, _ALONE = "#2563eb", "#9ca3af"


@dataclass(frozen=True, slots=True)
class Bars:
    """One row of the picture. alone: of onnxruntime alone, if that runs. batch: the rows that a call takes."""

    label: str
    batch: int
    ours: Latency
    alone: Latency | None


def svg(title: str, rows: Sequence[Bars]) -> str:
    """Return the picture: for each row a bar up to the median and a whisker to the 99th percentile, in milliseconds,
    and then bars of the rows of the batch a second."""
    lines = [f'<text x="12" y="24" font-size="15" font-weight="bold">{_text(title)}</text>', _legend()]
    y = _TOP
    latency = [[_side(each.ours), _side(each.alone)] for each in rows]
    rates = [[_rate(each.batch, each.ours), _rate(each.batch, each.alone)] for each in rows]
    labels = [each.label for each in rows]
    y = _panel(lines, y, "latency of a call, milliseconds: median, and 99th percentile as a line", labels, latency)
    y = _panel(lines, y, "throughput, rows of the batch a second", labels, rates)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{y}" viewBox="0 0 {_WIDTH} {y}" '
        'font-family="system-ui, sans-serif" font-size="12" fill="#111827">'
    )
    return "\n".join([head, f'<rect width="{_WIDTH}" height="{y}" fill="#ffffff"/>', *lines, "</svg>", ""])


def _side(latency: Latency | None) -> tuple[float, float] | None:
    return None if latency is None else (latency.percentile(50) * 1e3, latency.percentile(99) * 1e3)


def _rate(batch: int, latency: Latency | None) -> tuple[float, float] | None:
    return None if latency is None else (batch / latency.mean, 0.0)


def _legend() -> str:
    x = _WIDTH - 300
    return (
        f'<rect x="{x}" y="34" width="12" height="12" fill="{_OURS}"/><text x="{x + 18}" y="44">graphcore</text>'
        f'<rect x="{x + 110}" y="34" width="12" height="12" fill="{_ALONE}"/>'
        f'<text x="{x + 128}" y="44">onnxruntime alone</text>'
    )


def _panel(
    lines: list[str],
    y: int,
    title: str,
    labels: Sequence[str],
    rows: Sequence[Sequence[tuple[float, float] | None]],
) -> int:
    """Add a panel; return where the next one begins."""
    lines.append(f'<text x="12" y="{y}" font-weight="bold">{_text(title)}</text>')
    y += 12
    most = max((max(side) for row in rows for side in row if side is not None), default=0.0) or 1.0
    scale = (_WIDTH - _LEFT - _RIGHT) / most
    for label, row in zip(labels, rows, strict=True):
        lines.append(f'<text x="12" y="{y + _BAR + 4}">{_text(label)}</text>')
        for number, (side, colour) in enumerate(zip(row, (_OURS, _ALONE), strict=True)):
            top = y + number * (_BAR + 2)
            if side is None:
                lines.append(f'<text x="{_LEFT}" y="{top + 11}" fill="#6b7280">refused</text>')
                continue
            value, whisker = side
            end = _LEFT + value * scale
            lines.append(f'<rect x="{_LEFT}" y="{top}" width="{value * scale:.1f}" height="{_BAR}" fill="{colour}"/>')
            if whisker > value:
                middle, end = top + _BAR / 2, _LEFT + whisker * scale
                start = _LEFT + value * scale
                lines.append(f'<path d="M{start:.1f} {middle}H{end:.1f}" stroke="{colour}" stroke-width="2"/>')
            lines.append(f'<text x="{end + 6:.1f}" y="{top + 11}">{value:.4g}</text>')
        y += 2 * (_BAR + 2) + _GAP
    return y + _GAP


def _text(text: str) -> str:
    return escape(escaped(text))
