"""Convolutions and transposed convolutions over one, two and three spatial axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphcore.build.declare import op
from graphcore.build.operands import promote
from graphcore.build.shapes import Roles, check_shape, same_dim
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
    window_attributes,
    windows,
)
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import Shape, _shape, tensor_type


def _convolution(rank: int, doc: str) -> Callable[..., Symbol]:
    """Declare the convolution over `rank` spatial axes."""
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
        (batch, x_channels, *dims), (features, expected, *sides) = inputs.shape, filters.shape
        sizes, kernel = numbers(dims), numbers(sides)
        pads = pads_of(name, padding, sizes, kernel, strides, dilations, roles)
        groups = whole(name, "groups", groups, 1)
        channels = expected * groups
        if not same_dim(x_channels, channels):
            per_group = f" in each of {groups} groups" if groups > 1 else ""
            raise ShapeError(
                f"{name}: x has {x_channels} channels, but filter expects {expected}{per_group}",
                operands=roles,
                help=_other_layout(inputs.shape, rank, channels, input_layout)
                or f"the C of filter_layout={filter_layout!r} must be the number of channels of x divided by groups",
            )
        _check_groups(name, groups, "filter has", features, roles)
        _check_bias(name, roles, features)
        same = padding == "same"
        counts = windows(name, sizes, kernel, strides, dilations, None if same else pads, roles)
        attributes = _attributes(kernel, strides, dilations, pads, groups)
        result = _emit("Conv", inputs, filters, roles, _shape([batch, features, *counts]), attributes)
        return change_layout(result, INPUTS[rank][-1], input_layout)

    return convolution


conv1d = _convolution(
    1,
    """The convolution of sequences with a filter.

    Args:
        x: [batch, width, channels], or [batch, channels, width] with input_layout="NCW".
        filter: [size, channels/groups, features], or [features, channels/groups, size] with filter_layout="FCS".
        padding: (before, after), "same" or "valid". Other arguments, the result and errors as for `conv2d`.

    ONNX Conv.
    """,
)
conv2d = _convolution(
    2,
    """The convolution of images with a filter.

    Args:
        x: [batch, height, width, channels], or [batch, channels, height, width] with input_layout="NCHW", the layout
            that needs no transposes.
        filter: [height, width, channels/groups, features], or [features, channels/groups, height, width] with
            filter_layout="FCRS"; it is not flipped.
        stride: The distance of windows and of the elements in a window (height, width).
        dilation: As `stride`.
        padding: Zeros around the input, (height_before, height_after, width_before, width_after); "valid" for none;
            "same" for ceil(size / stride) windows, with an odd element of padding after the input.
        groups: The number of independent parts into which channels and features are split; `groups=channels` is a
            depthwise convolution.
        bias: [features], added to the result. All are promoted together; integers become floats, as there is no
            convolution of integers yet.

    Returns:
        The features in the layout of x, of size (size + before + after - dilation * (kernel - 1) - 1) // stride + 1, or
        ceil(size / stride) for "same".

    Raises:
        ShapeError: For wrong ranks, channels that do not agree, or a kernel larger than the padded input.

    ONNX Conv.
    """,
)
conv3d = _convolution(
    3,
    """The convolution of volumes with a filter.

    Args:
        x: [batch, depth, height, width, channels], or [batch, channels, depth, height, width] with
            input_layout="NCDHW".
        filter: [depth, height, width, channels/groups, features], or [features, channels/groups, depth, height, width]
            with filter_layout="FCQRS".
        padding: Before and after each of depth, height and width, "same" or "valid". Other arguments, the result and
            errors as for `conv2d`.

    ONNX Conv.
    """,
)


def _transposed_convolution(rank: int, doc: str) -> Callable[..., Symbol]:
    """Declare the transposed convolution over `rank` spatial axes."""
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
                    f"{name}: an output padding must be smaller than its stride, got {more} for a stride of {s}",
                    operands=roles,
                    help="a convolution has the same output size for `stride` input sizes; output_paddings selects one",
                )
        (batch, x_features, *dims), (features, per_group, *sides) = inputs.shape, filters.shape
        kernel, channels = numbers(sides), per_group * groups
        if not same_dim(x_features, features):
            raise ShapeError(
                f"{name}: x has {x_features} channels, but filter expects {features}",
                operands=roles,
                help=_other_layout(inputs.shape, rank, features, input_layout)
                or f"the F of filter_layout={filter_layout!r} must be the number of channels of x",
            )
        _check_groups(name, groups, "x has", x_features, roles)
        _check_bias(name, roles, channels)
        before, after, extra = output_padding_of(name, padding, kernel, strides, dilations, extra, roles)
        columns = zip(numbers(dims), kernel, strides, dilations, before, after, extra, strict=True)
        sizes = [transposed_size(*column) for column in columns]
        if any(size is not None and size < 1 for size in map(static, sizes)):
            raise ShapeError(
                f"{name}: the size of the result must be positive, got {' x '.join(map(str, sizes))}",
                operands=roles,
                help="use less padding",
            )
        attributes = _attributes(kernel, strides, dilations, (before, after), groups)
        attributes["output_padding"] = extra
        result = _emit("ConvTranspose", inputs, filters, roles, _shape([batch, channels, *map(Dim, sizes)]), attributes)
        return change_layout(result, INPUTS[rank][-1], input_layout)

    return transposed


conv1d_transpose = _transposed_convolution(
    1,
    """The transposed convolution of sequences: the gradient of `conv1d` with respect to its input.

    Args:
        x: [batch, width, features], or [batch, features, width] with input_layout="NCW".
        filter: [size, channels/groups, features], or [features, channels/groups, size] with filter_layout="FCS". Other
            arguments, the result and errors as for `conv2d_transpose`.

    ONNX ConvTranspose.
    """,
)
conv2d_transpose = _transposed_convolution(
    2,
    """The transposed convolution of images: the gradient of `conv2d` with respect to its input.

    Args:
        x: [batch, height, width, features], or [batch, features, height, width] with input_layout="NCHW".
        filter: As that of the convolution from channels to features: [height, width, channels/groups, features], or
            [features, channels/groups, height, width] with filter_layout="FCRS".
        stride: Those of the convolution.
        dilation: Those of the convolution.
        padding: Elements cropped from the result, (height_before, height_after, width_before, width_after); "valid" for
            none; "same" for a result of size * stride, with an odd element cropped from its end.
        output_paddings: Elements added at its end (height, width), less than the stride of that axis: a convolution has
            the same output size for `stride` input sizes.
        bias: [channels]. They are promoted together; integers become floats.
        groups: Those of the convolution.

    Returns:
        The channels in the layout of x, of size (size - 1) * stride + dilation * (kernel - 1) + 1 - before - after +
        output_padding.

    Raises:
        ShapeError: For wrong ranks, channels that do not agree, or a result of no size.

    ONNX ConvTranspose.
    """,
)
conv3d_transpose = _transposed_convolution(
    3,
    """The transposed convolution of volumes: the gradient of `conv3d` with respect to its input.

    Args:
        x: [batch, depth, height, width, features], or [batch, features, depth, height, width] with
            input_layout="NCDHW".
        filter: [depth, height, width, channels/groups, features], or [features, channels/groups, depth, height, width]
            with filter_layout="FCQRS". Other arguments, the result and errors as for `conv2d_transpose`.

    ONNX ConvTranspose.
    """,
)


def _other_layout(shape: Shape, count: int, channels: Dim, layout: str) -> str:
    """Return the help for an x whose channels are where another layout has them, else "".

    shape: that of x in ONNX's layout, converted from `layout`.
    """
    if not shape.is_ranked:
        return ""
    dims = dict(zip(INPUTS[count][-1], shape, strict=True))
    user_dims = [dims[letter] for letter in layout]
    for other in INPUTS[count]:
        if other != layout and user_dims[other.index("C")] is channels:
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
    operands = {"x": x, "filter": filter} if bias is None else {"x": x, "filter": filter, "bias": bias}
    symbols, _ = promote(name, "float", operands)
    roles = dict(zip(operands, symbols, strict=True))
    check_rank(name, "x", roles["x"], input_layout, roles)
    check_rank(name, "filter", roles["filter"], filter_layout, roles)
    return (
        change_layout(roles["x"], input_layout, INPUTS[count][-1]),
        change_layout(roles["filter"], filter_layout, FILTERS[count][-1]),
        roles,
    )


def _check_groups(name: str, groups: int, whose: str, channels: Dim, roles: Roles) -> None:
    if channels.is_static and int(channels) % groups:
        raise ShapeError(
            f"{name}: {whose} {channels} channels, which are not divisible by {groups} groups",
            operands=roles,
            help="groups must divide the channels of x and those of the result",
        )


def _check_bias(name: str, roles: dict[str, Symbol], channels: Dim) -> None:
    if "bias" in roles:
        check_shape(name, "bias", roles, [channels], "give one number for each channel of the result")


def _attributes(
    kernel: Sequence[Dim | int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: tuple[Sequence[int], Sequence[int]] | None,
    groups: int,
) -> dict[str, Any]:
    attributes = {**window_attributes(strides, dilations, pads), "group": groups}
    sides = [*map(static, kernel)]
    if None not in sides:
        attributes["kernel_shape"] = sides
    return attributes


def _emit(
    op_type: str, inputs: Symbol, filters: Symbol, roles: dict[str, Symbol], shape: Any, attributes: dict[str, Any]
) -> Symbol:
    bias = roles.get("bias")
    operands = (inputs, filters) if bias is None else (inputs, filters, bias)
    return inputs.graph.build.emit(op_type, operands, tensor_type(inputs.dtype, shape), attributes)
