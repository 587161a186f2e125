"""Pooling over windows of images, and images summed from windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphcore.build.declare import op
from graphcore.build.operands import promote_one
from graphcore.build.shapes import same_dim
from graphcore.errors import ShapeError
from graphcore.ir.symbol import Symbol, TensorLike
from graphcore.ops.shared.dims import dims_of, shape_vector
from graphcore.ops.shared.reshape import (
    INPUTS,
    Padding,
    PerAxis,
    change_layout,
    check_rank,
    layout_of,
    numbers,
    padding_of,
    pads_of,
    per_axis,
    window_attributes,
    windows,
)
from graphcore.promotion.rules import Rule
from graphcore.types.tensor_types import DimLike, _shape, tensor_type


def _avg_pool(rank: int, doc: str) -> Callable[..., Symbol]:
    """Declare the mean over windows of `rank` spatial axes."""
    name = f"avg_pool{rank}d"

    @op(onnx="AveragePool", rule="float", name=name, doc=doc)
    def pool(
        x: TensorLike,
        kernel_size: PerAxis,
        stride: PerAxis = 1,
        dilation: PerAxis = 1,
        padding: Padding = 0,
        ceil_mode: bool = False,
        count_boundary: bool = True,
        input_layout: str = INPUTS[rank][0],
    ) -> Symbol:
        arguments = x, kernel_size, stride, dilation, padding, ceil_mode, input_layout
        return _pool(name, rank, "AveragePool", "float", *arguments, count_boundary)

    return pool


avg_pool1d = _avg_pool(
    1,
    """The mean over each window of sequences.

    Args:
        x: [batch, width, channels], or [batch, channels, width] with input_layout="NCW"; integers become floats.
        padding: (before, after), or as for `avg_pool2d`. Other arguments as for `avg_pool2d`.

    ONNX AveragePool.
    """,
)
avg_pool2d = _avg_pool(
    2,
    """The mean over each window of images.

    Args:
        x: [batch, height, width, channels], or [batch, channels, height, width] with input_layout="NCHW", the layout
            that needs no transposes; integers become floats.
        kernel_size: Of the windows, in elements: one number or (height, width).
        stride: Of the windows, in elements: one number or (height, width).
        dilation: Of the windows, in elements: one number or (height, width).
        padding: Zeros around the input: (height_before, height_after, width_before, width_after), (height, width) or
            one number, each smaller than the kernel; "valid" for none; "same" for ceil(size / stride) windows, with an
            odd element of padding after the input.
        ceil_mode: Keep a last window that reaches beyond the padded end, unless it begins after the input.
        count_boundary: Count the elements of padding in the divisor, not only those of the input.

    Returns:
        The means in the layout of x, of size (size + before + after - dilation * (kernel - 1) - 1) // stride + 1,
        rounded up with ceil_mode, or ceil(size / stride) for "same".

    Raises:
        ShapeError: For a wrong rank, padding that is too large, or a kernel larger than the padded input.

    ONNX AveragePool.
    """,
)
avg_pool3d = _avg_pool(
    3,
    """The mean over each window of volumes.

    Args:
        x: [batch, depth, height, width, channels], or [batch, channels, depth, height, width] with
            input_layout="NCDHW"; integers become floats.
        padding: Before and after each of depth, height and width, or as for `avg_pool2d`. Other arguments as for
            `avg_pool2d`.

    ONNX AveragePool.
    """,
)


@op(onnx="AveragePool", rule="float")
def avg_pool(
    x: TensorLike,
    filter_shape: PerAxis,
    stride: PerAxis = (1, 1),
    dilation: PerAxis = (1, 1),
    padding: Padding = (0, 0, 0, 0),
    count_boundary: bool = True,
    *,
    ceil_mode: bool = False,
    input_layout: str = "NHWC",
) -> Symbol:
    """The mean over each window of images: the older name of `avg_pool2d`. ONNX AveragePool."""
    arguments = x, filter_shape, stride, dilation, padding, ceil_mode, input_layout
    return _pool("avg_pool", 2, "AveragePool", "float", *arguments, count_boundary)


def _max_pool(rank: int, doc: str) -> Callable[..., Symbol]:
    """Declare the maximum of windows of `rank` spatial axes."""
    name = f"max_pool{rank}d"

    @op(onnx="MaxPool", rule="number", name=name, doc=doc)
    def pool(
        x: TensorLike,
        kernel_size: PerAxis,
        stride: PerAxis = 1,
        dilation: PerAxis = 1,
        padding: Padding = 0,
        ceil_mode: bool = False,
        input_layout: str = INPUTS[rank][0],
    ) -> Symbol:
        return _pool(
            name, rank, "MaxPool", "number", x, kernel_size, stride, dilation, padding, ceil_mode, input_layout
        )

    return pool


max_pool1d = _max_pool(
    1,
    """The maximum of each window of sequences.

    Args:
        x: [batch, width, channels], or [batch, channels, width] with input_layout="NCW"; numbers of any dtype, which is
            kept.
        padding: (before, after), or as for `max_pool2d`. Other arguments as for `max_pool2d`.

    ONNX MaxPool.
    """,
)
max_pool2d = _max_pool(
    2,
    """The maximum of each window of images.

    Args:
        x: Numbers of any dtype, which is kept. Padding is less than any number. Other arguments, the result and errors
            as for `avg_pool2d`.

    ONNX MaxPool.
    """,
)
max_pool3d = _max_pool(
    3,
    """The maximum of each window of volumes.

    Args:
        x: [batch, depth, height, width, channels], or [batch, channels, depth, height, width] with
            input_layout="NCDHW"; numbers of any dtype, which is kept.
        padding: Before and after each of depth, height and width, or as for `max_pool2d`. Other arguments as for
            `max_pool2d`.

    ONNX MaxPool.
    """,
)


@op(onnx="MaxPool", rule="number")
def max_pool(
    x: TensorLike,
    filter_shape: PerAxis,
    stride: PerAxis = (1, 1),
    dilation: PerAxis = (1, 1),
    padding: Padding = (0, 0, 0, 0),
    *,
    ceil_mode: bool = False,
    input_layout: str = "NHWC",
) -> Symbol:
    """The maximum of each window of images: the older name of `max_pool2d`. ONNX MaxPool."""
    return _pool(
        "max_pool", 2, "MaxPool", "number", x, filter_shape, stride, dilation, padding, ceil_mode, input_layout
    )


def _pool(
    name: str,
    rank: int,
    op_type: str,
    rule: Rule,
    x: TensorLike,
    kernel_size: PerAxis,
    stride: PerAxis,
    dilation: PerAxis,
    padding: Padding,
    ceil_mode: bool,
    input_layout: str,
    count_boundary: bool | None = None,
) -> Symbol:
    layout_of(name, "input_layout", input_layout, INPUTS[rank])
    symbol, dtype = promote_one(name, rule, x)
    roles = {"x": symbol}
    check_rank(name, "x", symbol, input_layout, roles)
    kernel = per_axis(name, "kernel_size", kernel_size, rank)
    strides, dilations = per_axis(name, "stride", stride, rank), per_axis(name, "dilation", dilation, rank)
    inputs = change_layout(symbol, input_layout, INPUTS[rank][-1])
    batch, channels, *dims = inputs.shape
    sizes = numbers(dims)
    pads = pads_of(name, padding, sizes, kernel, strides, dilations, roles)
    if pads is not None and any(p >= k for side in pads for p, k in zip(side, kernel, strict=True)):
        raise ShapeError(
            f"{name}: padding={padding} must be smaller than the kernel {tuple(kernel)}",
            operands=roles,
            help="a window must contain elements of x: pad less, or use ops.pad first",
        )
    attributes = {"kernel_shape": kernel, **window_attributes(strides, dilations, pads)}
    if padding == "same":
        pads, ceil_mode = None, False
    counts = windows(name, sizes, kernel, strides, dilations, pads, roles, ceil_mode=bool(ceil_mode))
    attributes["ceil_mode"] = int(bool(ceil_mode))
    if count_boundary is not None:
        attributes["count_include_pad"] = int(bool(count_boundary))
    type_ = tensor_type(dtype, _shape([batch, channels, *counts]))
    return change_layout(inputs.graph.build.emit(op_type, (inputs,), type_, attributes), INPUTS[rank][-1], input_layout)


@op(onnx="Col2Im", rule="float")
def fold(
    x: TensorLike,
    output_size: Sequence[DimLike],
    kernel_size: PerAxis,
    stride: PerAxis = 1,
    dilation: PerAxis = 1,
    padding: PerAxis = 0,
) -> Symbol:
    """Images summed from windows; where windows overlap their elements are added.

    Args:
        x: [batch, channels * kernel height * kernel width, windows], floats (integers become floats): one column per
            window, the windows in row-major order.
        output_size: (height, width) of the images; dims of x may be named in it.
        kernel_size: Of the windows, as for `avg_pool2d`.
        stride: Of the windows, as for `avg_pool2d`.
        dilation: Of the windows, as for `avg_pool2d`.
        padding: Of the windows, as for `avg_pool2d`.

    Returns:
        [batch, channels, height, width].

    Raises:
        ShapeError: For a wrong rank, for channels that are not divisible by the size of the kernel, and for a number of
            windows that does not match the sizes.

    ONNX Col2Im.
    """
    name = "fold"
    symbol, dtype = promote_one(name, "float", x)
    roles = {"x": symbol}
    if symbol.rank != 3:
        raise ShapeError(
            f"{name}: x must have rank 3, got {symbol.rank}",
            operands=roles,
            help="its axes must be [batch, channels * kernel height * kernel width, windows]",
        )
    kernel = per_axis(name, "kernel_size", kernel_size, 2)
    strides, dilations = per_axis(name, "stride", stride, 2), per_axis(name, "dilation", dilation, 2)
    before, after = padding_of(name, padding, 2)
    image = _shape(dims_of(name, output_size, help="give (height, width)"))
    if len(image) != 2 or image.is_dynamic:
        raise ShapeError(f"{name}: output_size={image} is not a height and a width", help="give (height, width)")
    batch, columns, count = symbol.shape
    area = kernel[0] * kernel[1]
    if columns.is_static and int(columns) % area:
        raise ShapeError(
            f"{name}: axis 1 of x must be a multiple of {kernel[0]} x {kernel[1]}, the kernel, got {columns}",
            operands=roles,
            help="axis 1 of x must be channels * kernel height * kernel width",
        )
    counts = windows(name, numbers(image), kernel, strides, dilations, (before, after), roles)
    if not same_dim(count, counts[0] * counts[1]):
        raise ShapeError(
            f"{name}: x has {count} windows, but an image of {image[0]} x {image[1]} has {counts[0]} x {counts[1]}",
            operands=roles,
            help="axis 2 of x must have an element for each window: check output_size, stride, dilation and padding",
        )
    attributes = window_attributes(strides, dilations, (before, after))
    type_ = tensor_type(dtype, _shape([batch, columns // area, *image]))
    graph = symbol.graph
    return graph.build.emit(
        "Col2Im", (symbol, shape_vector(graph, image, [symbol], op=name), graph.build.vector(kernel)), type_, attributes
    )
