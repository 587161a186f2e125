"""Convolutions and their transposes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graphcore.build.declare import op
from graphcore.build.operands import promote
from graphcore.build.shapes import Roles, same_dim, transposed_size
from graphcore.errors import ShapeError
from graphcore.ir.symbol import Symbol, TensorLike
from graphcore.ops.shared.spatial import (
    FILTERS,
    INPUTS,
    Padding,
    PerAxis,
    cut_of,
    layout_of,
    of_rank,
    pads_of,
    per_axis,
    relaid,
    whole,
)
from graphcore.ops.shared.spatial import windows as window_counts
from graphcore.types.dims import Dim
from graphcore.types.tensor_types import Shape, _shape, tensor_type


@op(onnx="Conv", rule="float")
def conv1d(
    x: TensorLike,
    filter: TensorLike,
    stride: PerAxis = 1,
    dilation: PerAxis = 1,
    padding: Padding = (0, 0),
    groups: int = 1,
    bias: TensorLike | None = None,
    input_layout: str = "NWC",
    filter_layout: str = "SCF",
) -> Symbol:
    """The convolution of sequences with a filter. ONNX Conv.

    x: [batch, width, channels], or [batch, channels, width] with input_layout="NCW". filter: [size, channels/groups,
    features], or [features, channels/groups, size] with filter_layout="FCS". padding: (before, after), "same" or
    "valid". The rest, the result and what it raises: as for `conv2d`.
    """
    return _convolve("conv1d", 1, x, filter, stride, dilation, padding, groups, bias, input_layout, filter_layout)


@op(onnx="Conv", rule="float")
def conv2d(
    x: TensorLike,
    filter: TensorLike,
    stride: PerAxis = (1, 1),
    dilation: PerAxis = (1, 1),
    padding: Padding = (0, 0, 0, 0),
    groups: int = 1,
    bias: TensorLike | None = None,
    input_layout: str = "NHWC",
    filter_layout: str = "RSCF",
) -> Symbol:
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
    """
    return _convolve("conv2d", 2, x, filter, stride, dilation, padding, groups, bias, input_layout, filter_layout)


@op(onnx="Conv", rule="float")
def conv3d(
    x: TensorLike,
    filter: TensorLike,
    stride: PerAxis = (1, 1, 1),
    dilation: PerAxis = (1, 1, 1),
    padding: Padding = (0, 0, 0, 0, 0, 0),
    groups: int = 1,
    bias: TensorLike | None = None,
    input_layout: str = "NDHWC",
    filter_layout: str = "QRSCF",
) -> Symbol:
    """The convolution of volumes with a filter. ONNX Conv.

    x: [batch, depth, height, width, channels], or [batch, channels, depth, height, width] with input_layout="NCDHW".
    filter: [depth, height, width, channels/groups, features], or [features, channels/groups, depth, height, width]
    with filter_layout="FCQRS". padding: before and after each of depth, height and width, "same" or "valid". The rest,
    the result and what it raises: as for `conv2d`.
    """
    return _convolve("conv3d", 3, x, filter, stride, dilation, padding, groups, bias, input_layout, filter_layout)


@op(onnx="ConvTranspose", rule="float")
def conv1d_transpose(
    x: TensorLike,
    filter: TensorLike,
    stride: PerAxis = 1,
    dilation: PerAxis = 1,
    padding: Padding = (0, 0),
    output_paddings: PerAxis = 0,
    bias: TensorLike | None = None,
    input_layout: str = "NWC",
    filter_layout: str = "SCF",
    *,
    groups: int = 1,
) -> Symbol:
    """The transpose of a convolution of sequences: the gradient of `conv1d` with regard to its input.

    x: [batch, width, features], or [batch, features, width] with input_layout="NCW". filter: [size, channels/groups,
    features], or [features, channels/groups, size] with filter_layout="FCS". The rest, the result and what it raises:
    as for `conv2d_transpose`. ONNX ConvTranspose.
    """
    return _transposed(
        "conv1d_transpose",
        1,
        x,
        filter,
        stride,
        dilation,
        padding,
        output_paddings,
        groups,
        bias,
        input_layout,
        filter_layout,
    )


@op(onnx="ConvTranspose", rule="float")
def conv2d_transpose(
    x: TensorLike,
    filter: TensorLike,
    stride: PerAxis = (1, 1),
    dilation: PerAxis = (1, 1),
    padding: Padding = (0, 0, 0, 0),
    output_paddings: PerAxis = (0, 0),
    bias: TensorLike | None = None,
    input_layout: str = "NHWC",
    filter_layout: str = "RSCF",
    *,
    groups: int = 1,
) -> Symbol:
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
    """
    return _transposed(
        "conv2d_transpose",
        2,
        x,
        filter,
        stride,
        dilation,
        padding,
        output_paddings,
        groups,
        bias,
        input_layout,
        filter_layout,
    )


@op(onnx="ConvTranspose", rule="float")
def conv3d_transpose(
    x: TensorLike,
    filter: TensorLike,
    stride: PerAxis = (1, 1, 1),
    dilation: PerAxis = (1, 1, 1),
    padding: Padding = (0, 0, 0, 0, 0, 0),
    output_paddings: PerAxis = (0, 0, 0),
    bias: TensorLike | None = None,
    input_layout: str = "NDHWC",
    filter_layout: str = "QRSCF",
    *,
    groups: int = 1,
) -> Symbol:
    """The transpose of a convolution of volumes: the gradient of `conv3d` with regard to its input. ONNX ConvTranspose.

    x: [batch, depth, height, width, features], or [batch, features, depth, height, width] with input_layout="NCDHW".
    filter: [depth, height, width, channels/groups, features], or [features, channels/groups, depth, height, width]
    with filter_layout="FCQRS". The rest, the result and what it raises: as for `conv2d_transpose`.
    """
    return _transposed(
        "conv3d_transpose",
        3,
        x,
        filter,
        stride,
        dilation,
        padding,
        output_paddings,
        groups,
        bias,
        input_layout,
        filter_layout,
    )


def _transposed(
    name: str,
    count: int,
    x: TensorLike,
    filter: TensorLike,
    stride: PerAxis,
    dilation: PerAxis,
    padding: Padding,
    output_paddings: PerAxis,
    groups: int,
    bias: TensorLike | None,
    input_layout: str,
    filter_layout: str,
) -> Symbol:
    inputs, filters, roles = _operands(name, count, x, filter, bias, input_layout, filter_layout)
    strides, dilations = per_axis(name, "stride", stride, count), per_axis(name, "dilation", dilation, count)
    extra = per_axis(name, "output_paddings", output_paddings, count, 0)
    groups = whole(name, "groups", groups, 1)
    for more, s in zip(extra, strides, strict=True):
        if more >= s:
            raise ShapeError(
                f"{name}: an output padding of {more} for a stride of {s}",
                operands=roles,
                help="it must be smaller than the stride of its axis: a convolution gives one size for so many inputs",
            )
    features, channels = filters.shape[0], filters.shape[1] * groups
    if not same_dim(inputs.shape[1], features):
        raise ShapeError(
            f"{name}: x has {inputs.shape[1]} channels, filter takes {features}",
            operands=roles,
            help=_other_layout(inputs.shape, count, features, input_layout)
            or f"the F of filter_layout={filter_layout!r} must be the number of channels of x",
        )
    _divides(name, groups, "x has", inputs.shape[1], roles)
    _check_bias(name, roles, channels)
    before, after, extra = cut_of(name, padding, filters.shape[2:], strides, dilations, extra, roles)
    sizes = [
        transposed_size(size, k, s, d, p, q, more)
        for size, k, s, d, p, q, more in zip(
            inputs.shape[2:], filters.shape[2:], strides, dilations, before, after, extra, strict=True
        )
    ]
    if any(size.is_static and int(size) < 1 for size in sizes):
        raise ShapeError(
            f"{name}: nothing is left of the result: its size would be {' x '.join(map(str, sizes))}",
            operands=roles,
            help="use less padding",
        )
    attributes = _attributes(filters, strides, dilations, (before, after), groups)
    attributes["output_padding"] = extra
    shape = _shape([inputs.shape[0], channels, *sizes])
    made = _emitted("ConvTranspose", inputs, filters, roles, shape, attributes)
    return relaid(made, INPUTS[count][-1], input_layout)


def _convolve(
    name: str,
    count: int,
    x: TensorLike,
    filter: TensorLike,
    stride: PerAxis,
    dilation: PerAxis,
    padding: Padding,
    groups: int,
    bias: TensorLike | None,
    input_layout: str,
    filter_layout: str,
) -> Symbol:
    inputs, filters, roles = _operands(name, count, x, filter, bias, input_layout, filter_layout)
    strides, dilations = per_axis(name, "stride", stride, count), per_axis(name, "dilation", dilation, count)
    pads = pads_of(name, padding, inputs.shape[2:], filters.shape[2:], strides, dilations, roles)
    groups = whole(name, "groups", groups, 1)
    features, channels = filters.shape[0], filters.shape[1] * groups
    if not same_dim(inputs.shape[1], channels):
        per_group = f" in each of {groups} groups" if groups > 1 else ""
        raise ShapeError(
            f"{name}: x has {inputs.shape[1]} channels, filter takes {filters.shape[1]}{per_group}",
            operands=roles,
            help=_other_layout(inputs.shape, count, channels, input_layout)
            or f"the C of filter_layout={filter_layout!r} must be the number of channels of x divided by groups",
        )
    _divides(name, groups, "filter gives", features, roles)
    _check_bias(name, roles, features)
    if padding == "same":
        sizes = [size.ceildiv(s) for size, s in zip(inputs.shape[2:], strides, strict=True)]
    else:
        assert pads is not None, "padding in numbers is known"
        sizes = window_counts(name, inputs.shape[2:], filters.shape[2:], strides, dilations, *pads, roles)
    attributes = _attributes(filters, strides, dilations, pads, groups)
    made = _emitted("Conv", inputs, filters, roles, _shape([inputs.shape[0], features, *sizes]), attributes)
    return relaid(made, INPUTS[count][-1], input_layout)


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
    of_rank(name, "x", roles["x"], input_layout, roles)
    of_rank(name, "filter", roles["filter"], filter_layout, roles)
    return (
        relaid(roles["x"], input_layout, INPUTS[count][-1]),
        relaid(roles["filter"], filter_layout, FILTERS[count][-1]),
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
    filters: Symbol,
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: tuple[Sequence[int], Sequence[int]] | None,
    groups: int,
) -> dict[str, Any]:
    kernel = filters.shape[2:]
    attributes: dict[str, Any] = {"strides": strides, "dilations": dilations}
    if pads is None:
        attributes["auto_pad"] = "SAME_UPPER"
    else:
        attributes["pads"] = [*pads[0], *pads[1]]
    attributes["group"] = groups
    if kernel.is_static:
        attributes["kernel_shape"] = kernel.static_dims
    return attributes


def _emitted(
    op_type: str, inputs: Symbol, filters: Symbol, roles: dict[str, Symbol], shape: Any, attributes: dict[str, Any]
) -> Symbol:
    bias = roles.get("bias")
    operands = (inputs, filters) if bias is None else (inputs, filters, bias)
    return inputs.graph.build.emit(op_type, operands, tensor_type(inputs.dtype, shape), attributes)
