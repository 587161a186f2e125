"""Messages of onnxruntime in words: which node failed, why, and what to do."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

_RUNNING = re.compile(
    r"^[^\n]*?Non-zero status code returned while running (?P<op>\S+) node\. "
    r"Name:'(?P<node>[^\n]*?)' Status Message: (?P<said>.*)$",
    re.DOTALL,
)
_OTHER = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : (?P<said>.*)$", re.DOTALL)
_PLACE = re.compile(r"(?:/[\w.+-]+)*/?[\w.+-]+\.(?:h|hpp|cc|cpp|cu|cuh):\d+ ")

_SIZES = "see the shapes of this run: feed arrays whose sizes fit, or build the graph for these"

_WORDS: tuple[tuple[str, str, str], ...] = (
    (
        r"k argument \[(-?\d+)\] should not be greater than specified axis dim value \[(\d+)\]",
        "k is {0}, and the axis has {1} elements",
        "ask for fewer elements, or feed a longer axis",
    ),
    (
        r"Attempting to broadcast an axis by a dimension other than 1\. (\d+) by (\d+)",
        "shapes do not broadcast: {0} and {1} along one axis",
        _SIZES,
    ),
    (
        r"Input shape:\s*\{([\d,]*)\}, requested shape:\s*\{([-\d,]*)\}",
        "[{0}] cannot be reshaped to [{1}]",
        "the numbers of elements must be the same",
    ),
    (
        r"idx=(-?\d+) must be within the inclusive range \[(-?\d+),(-?\d+)\]",
        "index {0} is outside of {1} to {2}",
        "give indices within the axis",
    ),
    (r"MatMul dimension mismatch", "the inner dimensions of the product differ", _SIZES),
    (
        r"Non concat axis dimensions must match: Axis (\d+) has mismatched dimensions of (\d+) and (\d+)",
        "what is joined has {1} and {2} elements along axis {0}",
        "join along the axis in which they differ",
    ),
    (
        r"Split split attribute.*sum.*?(\d+).*?(\d+)",
        "the sizes of the parts do not add up to the axis",
        "give sizes whose sum is the size of the axis",
    ),
    (
        r"(Q|KV) sequence length must be greater than 0",
        "the kernel takes no sequence of length 0",
        "feed a longer sequence",
    ),
    (
        r"dim0_offset < dim0_size was false",
        "the axis that it goes along has no elements",
        "feed one or more steps: onnxruntime's Scan takes no axis of length 0",
    ),
    (r"[Ii]nteger divi\w+ by zero|[Dd]ivision by zero", "integers are divided by zero", "leave out zeros"),
    (r"[Ff]ailed to allocate memory|bad_alloc|bad allocation", "there is not enough memory", "feed smaller arrays"),
)
"""Messages of the runtime: a pattern, its meaning, and the fix."""


@dataclass(frozen=True, slots=True)
class Said:
    """A message of the runtime. node: the name of the node that failed, or "". why, help: in words. raw: the message
    without the places in its source."""

    node: str
    why: str
    help: str
    raw: str

    @classmethod
    def of(cls, text: str) -> Self:
        """Return what a message says."""
        running = _RUNNING.match(text.strip())
        other = running or _OTHER.match(text.strip())
        said = _without_places(other["said"] if other is not None else text)
        where = f"{running['op']} {running['node']!r}: " if running is not None else ""
        raw = f"onnxruntime: {where}{said}"
        node = running["node"] if running is not None else ""
        for pattern, why, help in _WORDS:
            found = re.search(pattern, text, re.DOTALL)
            if found is not None:
                groups = [", ".join(g.split(",")) if g else "" for g in found.groups()]
                return cls(node, why.format(*groups), help, raw)
        return cls(node, said, "sizes that only the run knows may not fit together, or an operand may hold what the "
                   "kernel does not take", raw if where else "")  # fmt: skip


def _without_places(text: str) -> str:
    """Return a message without files of the runtime's source, signatures of its functions and line breaks."""
    while (found := _PLACE.search(text)) is not None:
        text = text[: found.start()] + _without_signature(text[found.end() :])
    return " ".join(text.split())


def _without_signature(text: str) -> str:
    """Return what stands after the signature of a function: `void f(int, T) [with T = int] const`."""
    opened = text.find("(")
    if opened < 0 or "\n" in text[:opened] or "." in text[:opened]:
        return text
    end = _closed(text, opened)
    while True:
        rest = text[end:].lstrip()
        if rest.startswith("const "):
            end = len(text) - len(rest) + len("const ")
        elif rest.startswith("[with "):
            end = _closed(text, text.index("[with ", end))
        elif rest.startswith("::") and "(" in rest:  # of a function inside of another
            end = _closed(text, text.index("(", end))
        else:
            return rest


def _closed(text: str, opened: int) -> int:
    """Return the place after the bracket that closes the one at `opened`."""
    depth = 0
    for place in range(opened, len(text)):
        depth += (text[place] in "([{") - (text[place] in ")]}")
        if not depth:
            return place + 1
    return len(text)
