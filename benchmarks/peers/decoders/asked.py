"""The forms that are measured beside each peer of decoders, and the target ratios."""

from __future__ import annotations

from collections.abc import Iterator

PREFILL, STEP, STREAMS = "prefill of 512", "a step at 256", "a step of 8 streams"
MEMORY, START = "memory with 8 streams", "start to the first token"
AGAIN, MEMORY_AGAIN = "a later start, with cache_dir", "memory after it, with 8 streams"
PREPARED, LATER = "start of a prepared file", "a later start"
KINDS = (PREFILL, STEP, STREAMS, MEMORY, START, LATER, PREPARED, MEMORY_AGAIN, AGAIN)

SMALL, LARGE = "100M", "1B"
WIDE = ("graphcore, float32",)
FOUR_BITS = ("graphcore, q4_0", "graphcore, int4 by 128")

OURS = {
    "llama.cpp, float32": WIDE,
    "llama.cpp, Q4_0": FOUR_BITS,
    "llama.cpp, Q4_K_M": FOUR_BITS,
    "onnxruntime-genai, float32": WIDE,
    "onnxruntime-genai, int4": FOUR_BITS,
    "OpenVINO GenAI, Q4_0": FOUR_BITS,
}
"""Peers, and our forms that stand beside them."""

_LLAMA_CPP, _GENAI = (
    dict(zip(KINDS, (0.8, 1.0, 0.9, 1.3, 2.0, 1.5, 2.0, 1.3, 2.0), strict=True)),
    dict.fromkeys(KINDS, 1.0),
)
LIMIT = {
    "llama.cpp, float32": _LLAMA_CPP,
    "llama.cpp, Q4_0": _LLAMA_CPP,
    "onnxruntime-genai, float32": _GENAI,
    "onnxruntime-genai, int4": _GENAI,
}
"""The most that is asked for beside peers. Of the others nothing is asked."""


def pairs(shape: str) -> Iterator[tuple[str, str]]:
    """Return our forms and the peers beside them. shape: such as "100M"; larger ones have no files of some kinds."""
    for peer, ours in OURS.items():
        if shape == SMALL or peer.endswith(("Q4_0", "int4")):
            yield from ((form, peer) for form in ours)


def most(kind: str, peer: str) -> float | None:
    """Return the most that is asked for, None where nothing is."""
    return LIMIT.get(peer, {}).get(kind)


def figure(shape: str, kind: str, ours: str, peer: str) -> str:
    """Return a figure's name. shape: such as "100M"."""
    return f"{shape}: {kind}, {ours} beside {peer}"
