"""Convolutions and their transposes: one function each, made for one, two and three spatial axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphcore.build.declare import op
from graphcore.build.operands import promote
from graphcore.build.shapes import Roles, same_dim
from graphcore.errors import ShapeError
from graphcore.ir.symbol import Symbol, TensorLike
from graphcore.operators.shapes.reductions import transposed_size
from graphcore.ops.shared.attributes import whole
from graphcore.ops.shared.reshape import (
    FILTERS,
    INPUTS,
    Padding,
    PerAxis,
    change_layout,
    check_rank,
    each,
    layout_of,
    numbers,
    output_padding_of,
    pads_of,
    per_axis,
    static,
    windows,
)
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import Shape, _shape, tensor_type


def _convolution(rank: int, doc: str) -> Callable[..., Symbol]:
    """Declare the convolution over so many spatial axes."""
    name, ones = f"conv{rank}d", each(1, rank)

    @op(onnx="Conv", rule="float", name=name, doc=doc)
    def convolution(
        x: TensorLike,
        filter: TensorLike,
        stride: PerAxis = ones,
        dilation: PerAxis = ones,
        padding: Padding = (0,) * (2 * rank),
        groups: int = 1,
        bias: TensorLike | None = None,
        input_layout: str = INPUTS[rank][0],
        filter_layout: str = FILTERS[rank][0],
    ) -> Symbol:
        inputs, filters, roles = _operands(name, rank, x, filter, bias, input_layout, filter_layout)
        strides, dilations = per_axis(name, "stride", stride, rank), per_axis(name, "dilation", dilation, rank)
        (batch, given, *dims), (features, taken, *sides) = inputs.shape, filters.shape
        sizes, kernel = numbers(dims), numbers(sides)
        pads = pads_of(name, padding, sizes, kernel, strides, dilations, roles)
        groups = whole(name, "groups", groups, 1)
        channels = taken * groups
        if not same_dim(given, channels):
            per_group = f" in each of {groups} groups" if groups > 1 else ""
            raise ShapeError(
                f"{name}: x has {given} channels, filter takes {taken}{per_group}",
                operands=roles,
                help=_other_layout(inputs.shape, rank, channels, input_layout)
                or f"the C of filter_layout={filter_layout!r} must be the number of channels of x divided by groups",
            )
        _divides(name, groups, "filter gives", features, roles)
        _check_bias(name, roles, features)
        same = padding == "same"
        counts = windows(name, sizes, kernel, strides, dilations, None if same else pads, roles)
        attributes = _attributes(kernel, strides, dilations, pads, groups)
        made = _emitted("Conv", inputs, filters, roles, _shape([batch, features, *counts]), attributes)
        return change_layout(made, INPUTS[rank][-1], input_layout)

    return convolution


conv1d = _convolution(
    1,
    """The convolution of sequences with a filter. ONNX Conv.

    x: [batch, width, channels], or [batch, channels, width] with input_layout="NCW". filter: [size, channels/groups,
    features], or [features, channels/groups, size] with filter_layout="FCS". padding: (before, after), "same" or
    "valid". The rest, the result and what it raises: as for `conv2d`.
    """,
)
conv2d = _convolution(
    2,
    """The convolution of images with a filter. ONNX Conv.

    x: [batch, height, width, channels], or [batch, channels, height, width] with input_layout="NCHW", the layout that
    needs no transposes. filter: [height, width, channels/groups, features], or [features, channels/groups, height,
    width] with filter_layout="FCRS"; it is not flipped. bias: [features], added to the result. They are promoted
    together; integers become floats: there is no convolution of integers yet.
    stride, dilation: steps between windows and between the elements of one, in elements (height, width). padding:
    zeros around the input, (height_before, height_after, width_before, width_after); "valid" for none; "same" for as
    many as give ceil(size / stride) windows, an odd one after the input. groups: the number of independent
    parts into which channels and features are split; `groups=channels` is a depthwise convolution. Returns the features
    in the layout of x, of size
    (size + before + after - dilation * (kernel - 1) - 1) // stride + 1, or ceil(size / stride) for "same".
    Raises `ShapeError` for wrong ranks, channels that do not agree, or a kernel larger than the padded input.
    """,
)
conv3d = _convolution(
    3,
    """The convolution of volumes with a filter. ONNX Conv.

    x: [batch, depth, height, width, channels], or [batch, channels, depth, height, width] with input_layout="NCDHW".
    filter: [depth, height, width, channels/groups, features], or [features, channels/groups, depth, height, width]
    with filter_layout="FCQRS". padding: before and after each of depth, height and width, "same" or "valid". The rest,
    the result and what it raises: as for `conv2d`.
    """,
)


def _transposed(rank: int, doc: str) -> Callable[..., Symbol]:
    """Declare the transpose of the convolution over so many spatial axes."""
    name, ones, zeros = f"conv{rank}d_transpose", each(1, rank), each(0, rank)

    @op(onnx="ConvTranspose", rule="float", name=name, doc=doc)
    def transposed(
        x: TensorLike,
        filter: TensorLike,
        stride: PerAxis = ones,
        dilation: PerAxis = ones,
        padding: Padding = (0,) * (2 * rank),
        output_paddings: PerAxis = zeros,
        bias: TensorLike | None = None,
        input_layout: str = INPUTS[rank][0],
        filter_layout: str = FILTERS[rank][0],
        *,
        groups: int = 1,
    ) -> Symbol:
        inputs, filters, roles = _operands(name, rank, x, filter, bias, input_layout, filter_layout)
        strides, dilations = per_axis(name, "stride", stride, rank), per_axis(name, "dilation", dilation, rank)
        extra = per_axis(name, "output_paddings", output_paddings, rank, 0)
        groups = whole(name, "groups", groups, 1)
        for more, s in zip(extra, strides, strict=True):
            if more >= s:
                raise ShapeError(
                    f"{name}: an output padding of {more} for a stride of {s}",
                    operands=roles,
                    help="it must be smaller than the stride of its axis: a convolution gives one size for so many "
                    "inputs",
                )
        (batch, given, *dims), (features, per_group, *sides) = inputs.shape, filters.shape
        kernel, channels = numbers(sides), per_group * groups
        if not same_dim(given, features):
            raise ShapeError(
                f"{name}: x has {given} channels, filter takes {features}",
                operands=roles,
                help=_other_layout(inputs.shape, rank, features, input_layout)
                or f"the F of filter_layout={filter_layout!r} must be the number of channels of x",
            )
        _divides(name, groups, "x has", given, roles)
        _check_bias(name, roles, channels)
        before, after, extra = output_padding_of(name, padding, kernel, strides, dilations, extra, roles)
        columns = zip(numbers(dims), kernel, strides, dilations, before, after, extra, strict=True)
        sizes = [transposed_size(*column) for column in columns]
        if any(size is not None and size < 1 for size in map(static, sizes)):
            raise ShapeError(
                f"{name}: nothing is left of the result: its size would be {' x '.join(map(str, sizes))}",
                operands=roles,
                help="use less padding",
            )
        attributes = _attributes(kernel, strides, dilations, (before, after), groups)
        attributes["output_padding"] = extra
        made = _emitted(
            "ConvTranspose", inputs, filters, roles, _shape([batch, channels, *map(Dim, sizes)]), attributes
        )
        return change_layout(made, INPUTS[rank][-1], input_layout)

    return transposed


conv1d_transpose = _transposed(
    1,
    """The transpose of a convolution of sequences: the gradient of `conv1d` with regard to its input.

    x: [batch, width, features], or [batch, features, width] with input_layout="NCW". filter: [size, channels/groups,
    features], or [features, channels/groups, size] with filter_layout="FCS". The rest, the result and what it raises:
    as for `conv2d_transpose`. ONNX ConvTranspose.
    """,
)
conv2d_transpose = _transposed(
    2,
    """The transpose of a convolution of images: the gradient of `conv2d` with regard to its input. ONNX ConvTranspose.

    x: [batch, height, width, features], or [batch, features, height, width] with input_layout="NCHW". filter: as that
    of the convolution from channels to features: [height, width, channels/groups, features], or [features,
    channels/groups, height, width] with filter_layout="FCRS". bias: [channels]. They are promoted together; integers
    become floats. stride, dilation, groups: those of the convolution. padding: elements cut off the result,
    (height_before, height_after, width_before, width_after); "valid" for none; "same" for those that leave
    size * stride, an odd one at its end. output_paddings: elements added at its end (height,
    width), less than the stride of that axis: a convolution gives one size for `stride` sizes of its input.
    Returns the channels in the layout of x, of size (size - 1) * stride + dilation * (kernel - 1) + 1 - before - after
    + output_padding. Raises `ShapeError` for wrong ranks, channels that do not agree, or a result of no size.
    """,
)
conv3d_transpose = _transposed(
    3,
    """The transpose of a convolution of volumes: the gradient of `conv3d` with regard to its input. ONNX ConvTranspose.

    x: [batch, depth, height, width, features], or [batch, features, depth, height, width] with input_layout="NCDHW".
    filter: [depth, height, width, channels/groups, features], or [features, channels/groups, depth, height, width]
    with filter_layout="FCQRS". The rest, the result and what it raises: as for `conv2d_transpose`.
    """,
)


def _other_layout(shape: Shape, count: int, channels: Dim, layout: str) -> str:
    """Return the help for an x whose channels stand where another layout has them; "" where they do not.

    shape: that of x in ONNX's layout, as `layout` reads it.
    """
    if not shape.is_ranked:
        return ""
    own = dict(zip(INPUTS[count][-1], shape, strict=True))
    given = [own[letter] for letter in layout]
    for other in INPUTS[count]:
        if other != layout and given[other.index("C")] is channels:
            return f"x looks like {other}: give input_layout={other!r}"
    return ""


def _operands(
    name: str,
    count: int,
    x: TensorLike,
    filter: TensorLike,
    bias: TensorLike | None,
    input_layout: str,
    filter_layout: str,
) -> tuple[Symbol, Symbol, dict[str, Symbol]]:
    """Return x and filter promoted, checked and in ONNX's layouts, and all operands by role for errors."""
    layout_of(name, "input_layout", input_layout, INPUTS[count])
    layout_of(name, "filter_layout", filter_layout, FILTERS[count])
    given = {"x": x, "filter": filter} if bias is None else {"x": x, "filter": filter, "bias": bias}
    symbols, _ = promote(name, "float", given)
    roles = dict(zip(given, symbols, strict=True))
    check_rank(name, "x", roles["x"], input_layout, roles)
    check_rank(name, "filter", roles["filter"], filter_layout, roles)
    return (
        change_layout(roles["x"], input_layout, INPUTS[count][-1]),
        change_layout(roles["filter"], filter_layout, FILTERS[count][-1]),
        roles,
    )


def _divides(name: str, groups: int, whose: str, channels: Dim, roles: Roles) -> None:
    if channels.is_static and int(channels) % groups:
        raise ShapeError(
            f"{name}: {whose} {channels} channels, which {groups} groups do not divide",
            operands=roles,
            help="groups must divide the channels of x and those of the result",
        )


def _check_bias(name: str, roles: dict[str, Symbol], channels: Dim) -> None:
    bias = roles.get("bias")
    if bias is not None and (bias.rank != 1 or not same_dim(bias.shape[0], channels)):
        raise ShapeError(
            f"{name}: bias has shape {bias.shape}, the result {channels} channels",
            operands=roles,
            help=f"bias must have shape [{channels}]",
        )


def _attributes(
    kernel: Sequence[Dim | int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: tuple[Sequence[int], Sequence[int]] | None,
    groups: int,
) -> dict[str, Any]:
    attributes: dict[str, Any] = {"strides": strides, "dilations": dilations}
    if pads is None:
        attributes["auto_pad"] = "SAME_UPPER"
    else:
        attributes["pads"] = [*pads[0], *pads[1]]
    attributes["group"] = groups
    sides = [*map(static, kernel)]
    if None not in sides:
        attributes["kernel_shape"] = sides
    return attributes


def _emitted(
    op_type: str, inputs: Symbol, filters: Symbol, roles: dict[str, Symbol], shape: Any, attributes: dict[str, Any]
) -> Symbol:
    bias = roles.get("bias")
    operands = (inputs, filters) if bias is None else (inputs, filters, bias)
    return inputs.graph.build.emit(op_type, operands, tensor_type(inputs.dtype, shape), attributes)
