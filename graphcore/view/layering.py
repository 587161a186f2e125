"""A layered layout: vertices in ranks, ordered so that few edges cross, long edges around what is between.

Ranks by longest paths, dummy vertices along long edges, orders by barycentres, and places by isotonic regression
towards neighbours. Sugiyama, Tagawa and Toda 1981, doi:10.1109/TSMC.1981.4308636.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

_SWEEPS = 12
_DUMMY_WIDTH = 14.0
_GAP = 22.0
_STIFF = 8.0
"""The weight of a place on a long edge, which should be straight, against that of a vertex."""


@dataclass(frozen=True, slots=True)
class Layout:
    """ranks: of each vertex, from 0. centres: of each along its rank. routes: for each edge where it passes the ranks
    between its ends, in order. width: of the whole."""

    ranks: tuple[int, ...]
    centres: tuple[float, ...]
    routes: tuple[tuple[float, ...], ...]
    width: float


@dataclass(slots=True)
class _Layers:
    """Vertices and dummies: their ranks and widths, those before and after each, and the order in each rank."""

    ranks: list[int]
    widths: list[float]
    before: list[list[int]]
    after: list[list[int]]
    orders: list[list[int]] = field(default_factory=list)


def layout(widths: Sequence[float], edges: Sequence[tuple[int, int]]) -> Layout:
    """Return places for vertices of these widths. edges: from a vertex to one with a greater number."""
    ranks = _ranks(len(widths), edges)
    layers = _Layers(ranks, [*widths], [[] for _ in widths], [[] for _ in widths])
    chains = [_chain(layers, start, end) for start, end in edges]
    layers.orders = [[] for _ in range(max(layers.ranks, default=-1) + 1)]
    for vertex, rank in enumerate(layers.ranks):
        layers.orders[rank].append(vertex)
    _reduce_crossings(layers)
    centres = _centres(layers)
    left = min((c - w / 2 for c, w in zip(centres, layers.widths, strict=True)), default=0.0)
    centres = [centre - left for centre in centres]
    width = max((c + w / 2 for c, w in zip(centres, layers.widths, strict=True)), default=0.0)
    routes = tuple(tuple(centres[dummy] for dummy in chain) for chain in chains)
    return Layout(tuple(ranks[: len(widths)]), tuple(centres[: len(widths)]), routes, width)


def _ranks(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Return ranks by the longest path to each vertex; what has none before it stands just before what reads it."""
    ranks = [0] * count
    before: list[list[int]] = [[] for _ in range(count)]
    for start, end in edges:
        before[end].append(start)
    for vertex in range(count):
        ranks[vertex] = 1 + max((ranks[other] for other in before[vertex]), default=-1)
    nearest: dict[int, int] = {}
    for start, end in edges:
        nearest[start] = min(nearest.get(start, ranks[end]), ranks[end])
    return [nearest[v] - 1 if not before[v] and v in nearest else rank for v, rank in enumerate(ranks)]


def _chain(layers: _Layers, start: int, end: int) -> list[int]:
    """Join two vertices by way of a dummy in each rank between them; return the dummies."""
    made: list[int] = []
    last = start
    for rank in range(layers.ranks[start] + 1, layers.ranks[end]):
        dummy = len(layers.ranks)
        layers.ranks.append(rank)
        layers.widths.append(_DUMMY_WIDTH)
        layers.before.append([last])
        layers.after.append([])
        layers.after[last].append(dummy)
        made.append(dummy)
        last = dummy
    layers.after[last].append(end)
    layers.before[end].append(last)
    return made


def _reduce_crossings(layers: _Layers) -> None:
    """Order each rank by the means of its neighbours' places, down and up, and keep the best order met."""
    best = [[*order] for order in layers.orders]
    fewest = _crossings(layers)
    for sweep in range(_SWEEPS):
        if not fewest:
            break
        down = sweep % 2 == 0
        ranks = range(1, len(layers.orders)) if down else range(len(layers.orders) - 2, -1, -1)
        for rank in ranks:
            beside = layers.orders[rank - 1 if down else rank + 1]
            places = {vertex: place for place, vertex in enumerate(beside)}
            _sort(layers.orders[rank], layers.before if down else layers.after, places)
        found = _crossings(layers)
        if found < fewest:
            fewest, best = found, [[*order] for order in layers.orders]
    layers.orders = best


def _sort(order: list[int], neighbours: Sequence[Sequence[int]], places: dict[int, int]) -> None:
    """Sort a rank by the means of neighbours' places; a vertex without neighbours goes with the one before it."""
    keys: dict[int, float] = {}
    last = -1.0
    for vertex in order:
        beside = [places[other] for other in neighbours[vertex]]
        last = sum(beside) / len(beside) if beside else last
        keys[vertex] = last
    order.sort(key=keys.__getitem__)


def _crossings(layers: _Layers) -> int:
    """Return how many pairs of edges between neighbouring ranks cross."""
    total = 0
    for upper, lower in zip(layers.orders, layers.orders[1:], strict=False):
        places = {vertex: place for place, vertex in enumerate(lower)}
        ends: list[int] = []
        for vertex in upper:
            ends += sorted(places[other] for other in layers.after[vertex])
        total += _inversions(ends)
    return total


def _inversions(values: list[int]) -> int:
    """Return how many pairs stand in falling order. values: from 0; is sorted as it is counted."""
    if len(values) < 2:
        return 0
    half = len(values) // 2
    left, right = values[:half], values[half:]
    count = _inversions(left) + _inversions(right)
    merged, at = [], 0
    for value in left:
        while at < len(right) and right[at] < value:
            merged.append(right[at])
            at += 1
        merged.append(value)
        count += at
    values[:] = merged + right[at:]
    return count


def _centres(layers: _Layers) -> list[float]:
    centres = [0.0] * len(layers.ranks)
    for order in layers.orders:
        place = 0.0
        for vertex in order:
            centres[vertex] = place + layers.widths[vertex] / 2
            place += layers.widths[vertex] + _GAP
    for sweep in range(2 * _SWEEPS):
        down = sweep % 2 == 0
        for order in layers.orders if down else layers.orders[::-1]:
            _pull(layers, order, layers.before if down else layers.after, centres)
    return centres


def _pull(layers: _Layers, order: Sequence[int], neighbours: Sequence[Sequence[int]], centres: list[float]) -> None:
    """Move a rank as near to its neighbours as its order and its gaps allow: least squares, by pooling."""
    offsets, offset = [], 0.0
    for position, vertex in enumerate(order):
        if position:
            offset += (layers.widths[order[position - 1]] + layers.widths[vertex]) / 2 + _GAP
        offsets.append(offset)
    pools: list[list[float]] = []  # weighted sum, weight, vertices
    for vertex, own in zip(order, offsets, strict=True):
        beside = [centres[other] for other in neighbours[vertex]]
        wanted = sum(beside) / len(beside) if beside else centres[vertex]
        weight = _STIFF if layers.widths[vertex] == _DUMMY_WIDTH else 1.0 if beside else 0.1
        pools.append([(wanted - own) * weight, weight, 1])
        while len(pools) > 1 and pools[-2][0] / pools[-2][1] >= pools[-1][0] / pools[-1][1]:
            total, weight, count = pools.pop()
            pools[-1] = [pools[-1][0] + total, pools[-1][1] + weight, pools[-1][2] + count]
    moved = (total / weight for total, weight, count in pools for _ in range(int(count)))
    for vertex, own, place in zip(order, offsets, moved, strict=True):
        centres[vertex] = place + own
