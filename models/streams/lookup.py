"""Prompt look-up: what followed the last tokens where they stood before in a text is proposed to follow them again.

Saxena 2023, "Prompt Lookup Decoding"; the check of several tokens in one call is that of Leviathan et al. 2023,
arXiv:2211.17192, for proposals that are certain.
"""

from __future__ import annotations

import numpy as np

from graphcore.arrays.casting import Array

_LENGTHS = (3, 2)
"""Tokens that must be the same, the longer first. One alone would propose too much that does not come."""


def proposed(tokens: Array, most: int) -> list[int]:
    """Return up to `most` tokens that may follow: those after the latest place where the last tokens stood before.

    A place with `most` tokens after it is preferred, which in a text that repeats itself is some periods back. tokens:
    int64[count], the whole text.
    """
    if most < 1:
        return []
    for length in _LENGTHS:
        starts = len(tokens) - length
        if starts < 1:
            continue
        same = tokens[:starts] == tokens[-length]
        for place in range(1, length):
            same &= tokens[place : place + starts] == tokens[place - length]
        found = np.flatnonzero(same)
        if found.size:
            whole = found[found <= starts - most]
            begin = int(whole[-1] if whole.size else found[0]) + length
            return [int(token) for token in tokens[begin : begin + most]]
    return []
