"""The promotion systems beside those of NumPy, JAX and PyTorch, where they are installed.

`python -m tests.promotion.test_peers` prints the table of all pairs.
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
from collections.abc import Callable

import numpy as np
import pytest

from graphcore import DType
from graphcore.promotion import explain

DTYPES = [
    DType.of(name)
    for name in "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64".split()
]
PAIRS = list(itertools.combinations_with_replacement(DTYPES, 2))
SYSTEMS = ("max", "kernel_float", "anvil", "array_api", "allo_cpp")

Peer = Callable[[DType, DType], "str | None"]
"""The dtype in which two meet, by name; None where they do not."""


def _numpy(lhs: DType, rhs: DType) -> str | None:
    try:
        return str(np.promote_types(lhs.numpy, rhs.numpy).name)
    except TypeError:
        return None


def _jax(lhs: DType, rhs: DType) -> str | None:
    jax, jnp = importlib.import_module("jax"), importlib.import_module("jax.numpy")
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    try:
        return str(jnp.promote_types(lhs.numpy, rhs.numpy).name)
    finally:
        jax.config.update("jax_enable_x64", before)


def _torch(lhs: DType, rhs: DType) -> str | None:
    torch = importlib.import_module("torch")
    try:
        return str(torch.promote_types(getattr(torch, lhs.name), getattr(torch, rhs.name))).removeprefix("torch.")
    except RuntimeError:
        return None


KNOWN: dict[str, Peer] = {"numpy": _numpy, "jax": _jax, "torch": _torch}
PEERS = {name: peer for name, peer in KNOWN.items() if importlib.util.find_spec(name) is not None}

# On how many of the 91 pairs a system and a peer agree, differ, and are defined alone: the system, the peer.
COUNTS = {
    ("numpy", "max"): (70, 14, 7, 0),
    ("numpy", "kernel_float"): (58, 10, 7, 16),
    ("numpy", "anvil"): (58, 8, 0, 18),
    ("numpy", "array_api"): (38, 0, 0, 46),
    ("numpy", "allo_cpp"): (64, 20, 7, 0),
    ("jax", "max"): (86, 5, 0, 0),
    ("jax", "kernel_float"): (75, 0, 0, 16),
    ("jax", "anvil"): (62, 4, 0, 25),
    ("jax", "array_api"): (38, 0, 0, 53),
    ("jax", "allo_cpp"): (80, 11, 0, 0),
    ("torch", "max"): (69, 1, 21, 0),
    ("torch", "kernel_float"): (66, 0, 9, 4),
    ("torch", "anvil"): (45, 0, 21, 25),
    ("torch", "array_api"): (24, 0, 14, 46),
    ("torch", "allo_cpp"): (68, 2, 21, 0),
}


def ours(system: str, lhs: DType, rhs: DType) -> str | None:
    dtype = explain(lhs, rhs, system).dtype
    return None if dtype is None else dtype.name


def test_numpy_is_always_compared() -> None:
    assert "numpy" in PEERS


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("peer", PEERS)
def test_system_agrees_with_peer_on_as_many_pairs_as_known(peer: str, system: str) -> None:
    agree = differ = alone = without = 0
    for lhs, rhs in PAIRS:
        own, other = ours(system, lhs, rhs), PEERS[peer](lhs, rhs)
        agree += own == other is not None
        differ += None not in (own, other) and own != other
        alone += own is not None and other is None
        without += own is None and other is not None
    assert (agree, differ, alone, without) == COUNTS[peer, system]


@pytest.mark.parametrize("peer", PEERS)
def test_array_api_never_contradicts_a_peer(peer: str) -> None:
    for lhs, rhs in PAIRS:
        own, other = ours("array_api", lhs, rhs), PEERS[peer](lhs, rhs)
        assert own is None or other in (None, own), (lhs, rhs)


@pytest.mark.parametrize("peer", PEERS)
def test_max_differs_from_peer_where_a_float_would_lose_integers(peer: str) -> None:
    """Outside of float16 with bfloat16 the peers differ from max by keeping more of an integer's values."""
    for lhs, rhs in PAIRS:
        other = PEERS[peer](lhs, rhs)
        if other is None or other == ours("max", lhs, rhs) or {lhs, rhs} == {DType.float16, DType.bfloat16}:
            continue
        assert any(d.is_integer for d in (lhs, rhs))
        wider = DType.of(other)
        assert wider.is_float
        assert wider.bits > DType.of(ours("max", lhs, rhs)).bits


if __name__ == "__main__":
    for lhs, rhs in PAIRS:
        cells = [ours(system, lhs, rhs) for system in SYSTEMS] + [peer(lhs, rhs) for peer in PEERS.values()]
        head = [str(lhs), str(rhs), *(cell or "-" for cell in cells)]
        if lhs is rhs is DType.bool:
            print("".join(name.ljust(14) for name in ("", "", *SYSTEMS, *PEERS)))
        print("".join(cell.ljust(14) for cell in head))
