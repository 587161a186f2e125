"""The longest common subsequence of two sequences that are mostly the same."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

_MOST = 3_000_000
"""Steps before it is given up: of sequences of thousands that have little in common."""


def common(old: Sequence[Hashable], new: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Return pairs of positions of equal elements, in order and as many as there can be; none after too many steps.

    Source: Myers, "An O(ND) difference algorithm and its variations", Algorithmica 1 (1986).
    """
    m, n = len(old), len(new)
    ends = {1: 0}
    trail: list[dict[int, int]] = []
    for edits in range(min(m + n, _MOST // (m + n + 1)) + 1):
        trail.append(dict(ends))
        for k in range(-edits, edits + 1, 2):
            down = k == -edits or (k != edits and ends[k - 1] < ends[k + 1])
            x = ends[k + 1] if down else ends[k - 1] + 1
            while x < m and x - k < n and old[x] == new[x - k]:
                x += 1
            ends[k] = x
            if x >= m and x - k >= n:
                return [*_path(trail, m, n)][::-1]
    return []


def _path(trail: list[dict[int, int]], x: int, y: int) -> Iterator[tuple[int, int]]:
    """Yield the pairs of equal elements on the way back from the end."""
    for edits in range(len(trail) - 1, -1, -1):
        ends, k = trail[edits], x - y
        down = k == -edits or (k != edits and ends[k - 1] < ends[k + 1])
        before = k + 1 if down else k - 1
        start = ends[before] if edits else 0
        first = start if down or not edits else start + 1
        while x > first and y > 0 and x > 0:
            x, y = x - 1, y - 1
            yield x, y
        x, y = start, start - before
