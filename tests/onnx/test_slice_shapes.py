"""Dims of values that models slice, pad, repeat, join and resize by computed sizes."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.onnx.test_shape_values import SIZES, check, read
from tests.sampling import drawn


def constants(**values: list[int]) -> str:
    text = "{name} = Constant<value = int64[{count}] {{{numbers}}}>()"
    return " ".join([text.format(name=n, count=len(v), numbers=str(v)[1:-1]) for n, v in values.items()])


CUT = {
    "from a place to the end": (constants(a=[5], e=[2**63 - 1], ax=[2]) + " y = Slice(x, a, e, ax)", "batch, seq, 7"),
    "the end of it": (constants(a=[-3], e=[2**63 - 1], ax=[-1]) + " y = Slice(x, a, e, ax)", "batch, seq, 3"),
    "every second": (constants(a=[1], e=[99], ax=[2], st=[2]) + " y = Slice(x, a, e, ax, st)", "batch, seq, 6"),
    "backwards": (constants(a=[-1], e=[-(2**63)], ax=[2], st=[-1]) + " y = Slice(x, a, e, ax, st)", "batch, seq, 12"),
    "nothing": (constants(a=[20], e=[30], ax=[2]) + " y = Slice(x, a, e, ax)", "batch, seq, 0"),
    "half of what is there": (
        "s = Shape<start = 2>(x)" + constants(z=[0], k=[2], ax=[2]) + " h = Div(s, k) y = Slice(x, z, h, ax)",
        "batch, seq, 6",
    ),
    "rows after one": (
        constants(a=[1], e=[2**63 - 1], ax=[1]) + " y = Slice(x, a, e, ax)", "batch, max(seq - 1, 0), 12",
    ),
    "all rows but one": (constants(a=[0], e=[-1], ax=[1]) + " y = Slice(x, a, e, ax)", "batch, max(seq - 1, 0), 12"),
    "padded": (constants(p=[0, 1, 0, 0, 2, 3]) + " y = Pad(x, p)", "batch, seq + 3, 15"),
    "padded by pairs that are turned round": (
        constants(p=[3, 0, 2, 1, 0, 0], to=[-1, 2], flat=[-1], a=[-1], e=[-(2**63)], ax=[0], st=[-1])
        + " q = Reshape(p, to) r = Slice(q, a, e, ax, st) t = Transpose(r) u = Reshape(t, flat) y = Pad(x, u)",
        "batch, seq + 3, 15",
    ),
    "repeated": (constants(r=[2, 1, 3]) + " y = Tile(x, r)", "2 * batch, seq, 36"),
    "repeated by a dim": (
        "s = Shape<start = 1, end = 2>(x)" + constants(one=[1]) + " r = Concat<axis = 0>(one, one, s) y = Tile(x, r)",
        "batch, seq, 12 * seq",
    ),
    "joined": ("y = Concat<axis = 1>(x, x, x)", "batch, 3 * seq, 12"),
    "resized": (
        "s = Shape<end = 2>(x)" + constants(k=[5]) + """ to = Concat<axis = 0>(s, k)
            y = Resize<mode = "linear">(x, , , to) """,
        "batch, seq, 5",
    ),
    "resized by whole numbers": (
        "f = Constant<value = float[3] {1.0, 1.0, 2.0}>() y = Resize<mode = \"nearest\">(x, f0, f)".replace("f0", ""),
        "batch, seq, 24",
    ),
    "heads in front of rows": (
        "s = Shape<end = 1>(x)" + constants(six=[6], m=[-1], two=[2])
        + " n = Mul(s, six) to = Concat<axis = 0>(n, m, two) y = Reshape(x, to)",
        "6 * batch, seq, 2",
    ),
    "counted from a place": (
        "s = Shape<start = 1, end = 2>(x) n = Squeeze(s) o = Constant<value = int64 {1}>() m = Add(n, o)"
        " r = Range(o, m, o) y = Cast<to = 1>(r)",
        "seq",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CUT)
def test_dims_are_known_of_what_is_cut_and_joined(name: str) -> None:
    nodes, wanted = CUT[name]
    graph = read(nodes)
    assert str(graph.outputs[0].type) == f"float32[{wanted}]"
    check(graph, *SIZES)


def test_rest_of_other_names_is_a_quotient() -> None:
    """Rows of one input by the batch of another: they go into it without a rest, or the model does not run."""
    nodes = "s = Shape<end = 1>(x)" + constants(m=[-1]) + " to = Concat<axis = 0>(s, m) y = Reshape(z, to)"
    graph = read(nodes, "float[batch, 2] x, float[rows, 4] z")
    assert str(graph.outputs[0].type) == "float32[batch, 4 * rows // batch]"
    check(graph, {"batch": 2, "rows": 3}, {"batch": 4, "rows": 1})
    odd = read(constants(to=[-1, 5]) + " y = Reshape(x, to)", "float[3, n] x")
    assert str(odd.outputs[0].type) == "float32[3 * n // 5, 5]"


_PLACES = st.integers(-5, 5) | st.sampled_from([2**31 - 1, 2**63 - 1, -(2**63)])


@settings(max_examples=drawn(60), deadline=None)
@given(_PLACES, _PLACES, st.sampled_from([1, 2, 3, -1, -2]), st.sampled_from([1, 2]))
@example(-4, -4, -1, 2)
def test_slices_have_the_dims_that_are_told(start: int, end: int, step: int, axis: int) -> None:
    if step < 0 and end > 5:
        end = -(2**63)  # a backward slice to a stop far below is empty in ONNX, and the whole axis in onnxruntime
    nodes = constants(a=[start], e=[end], ax=[axis], st=[step]) + " y = Slice(x, a, e, ax, st)"
    graph = read(nodes, "float[batch, seq, 3] x")
    assert axis == 1 or not any(d.is_dynamic for d in graph.outputs[0].shape)
    check(graph, {"batch": 1, "seq": 3}, {"batch": 2, "seq": 1})
