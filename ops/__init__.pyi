# Made by docs/make_stubs.py from the declarations.
# fmt: off
# ruff: noqa: E501, RUF022

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from graphcore.ir.buffers import Buffer, BufferValue
from graphcore.ir.state.settings import Accuracy
from graphcore.ir.symbol import Symbol, TensorLike
from graphcore.ops import microsoft as microsoft
from graphcore.ops import onnx as onnx
from graphcore.ops.bits import Offset
from graphcore.ops.quantiles import QuantileMethod
from graphcore.ops.random import Seed
from graphcore.ops.rearranging import PadMode
from graphcore.ops.sequences import Index
from graphcore.ops.shared.attributes import Axes
from graphcore.ops.shared.control import cond as cond
from graphcore.ops.shared.control import for_loop as for_loop
from graphcore.ops.shared.control import scan as scan
from graphcore.ops.shared.control import while_loop as while_loop
from graphcore.ops.shared.dims import SizeLike
from graphcore.ops.shared.reshape import Padding, PerAxis
from graphcore.ops.sorting import Unique
from graphcore.ops.strings import StringLike
from graphcore.quantization.tensors import Encoding, Quantized, QuantizedTensor
from graphcore.types.tensor_types import DimLike

__all__ = [
    "abs", "acos", "acosh", "add", "all", "angle", "any", "arg_max", "argmax", "argmin", "argsort", "as_complex",
    "as_interleaved_complex", "as_real", "asin", "asinh", "atan", "atan2", "atanh", "avg_pool", "avg_pool1d",
    "avg_pool2d", "avg_pool3d", "band_part", "batch_norm", "bernoulli", "bit_concat", "bit_extract", "bit_insert",
    "bit_reverse", "bitcast", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "blackman_window",
    "bottom_k", "broadcast_to", "buffer_create", "buffer_load", "buffer_store", "buffer_store_slice", "cast",
    "categorical", "cbrt", "ceil", "celu", "chunk", "clip", "complex", "concat", "cond", "conj", "constant",
    "conv1d", "conv1d_transpose", "conv2d", "conv2d_transpose", "conv3d", "conv3d_transpose", "copysign", "cos",
    "cosh", "count_nonzero", "cross", "cummax", "cummin", "cumprod", "cumsum", "depth_to_space", "dequantize",
    "digamma", "div", "divmod", "dropout", "einsum", "elu", "embedding", "equal", "erf", "erfc", "erfcinv", "erfcx",
    "erfinv", "exp", "exp10", "exp2", "expm1", "fdim", "fft", "flatten", "flip", "floor", "floor_div", "fma",
    "fmod", "fold", "for_loop", "frexp", "full", "gather", "gather_nd", "gelu", "getitem", "glu", "greater",
    "greater_equal", "grid_sample", "group_norm", "gru", "hamming_window", "hann_window", "hardsigmoid",
    "hardswish", "hardtanh", "heaviside", "hypot", "ieee_remainder", "ifft", "imag", "index_add", "instance_norm",
    "into_vec", "irfft", "is_finite", "is_inf", "is_nan", "layer_norm", "ldexp", "leading_zeros", "leaky_relu",
    "left_shift", "less", "less_equal", "lgamma", "linear", "linspace", "list_append", "list_concat", "list_empty",
    "list_erase", "list_get", "list_insert", "list_length", "list_map", "list_of", "list_pop", "list_split",
    "list_stack", "list_unstack", "log", "log10", "log1p", "log2", "logaddexp", "logb", "logical_and",
    "logical_not", "logical_or", "logical_xor", "logsoftmax", "logsumexp", "lp_normalize", "lstm", "lu",
    "lu_factor", "mag", "masked_scatter", "matmul", "max", "max_pool", "max_pool1d", "max_pool2d", "max_pool3d",
    "maximum", "mean", "median", "min", "minimum", "mish", "mod", "modf", "mul", "mul_complex", "negate",
    "nextafter", "non_maximum_suppression", "nonzero", "normcdf", "normcdfinv", "not_equal", "one_hot", "ones",
    "outer", "pad", "permutation", "permute", "popcount", "positive", "pow", "prelu", "print", "prod", "qmatmul",
    "quantile", "quantize", "random_int", "random_normal", "random_uniform", "range", "rcbrt", "real", "rebind",
    "reciprocal", "relu", "repeat_interleave", "reshape", "reshape_like", "resize", "resize_bicubic",
    "resize_linear", "resize_nearest", "rfft", "rhypot", "right_shift", "rint", "rms_norm", "rnn", "roi_align",
    "roll", "rotary_embedding", "round", "round_half_away", "rsqrt", "scaled_dot_product_attention", "scan",
    "scatter", "scatter_add", "scatter_max", "scatter_min", "scatter_mul", "scatter_nd", "scatter_nd_add",
    "scatter_nd_max", "scatter_nd_min", "scatter_nd_mul", "segment_sum", "select", "selu", "shape_of",
    "shape_to_tensor", "shuffle", "sigmoid", "sign", "signbit", "silu", "sin", "sinc", "sinh", "slice",
    "slice_tensor", "softmax", "softplus", "softsign", "sort", "space_to_depth", "split", "sqrt", "square",
    "squeeze", "stack", "stdev", "stft", "string_concat", "string_join", "string_lower", "string_matches",
    "string_of", "string_parse", "string_remove", "string_split", "string_upper", "sub", "sum", "swapaxes",
    "swiglu", "take_along_axis", "tan", "tanh", "tensordot", "tgamma", "thresholded_relu", "tile", "top_k",
    "trailing_zeros", "transpose", "transpose_matrix", "triangular_solve", "tril", "triu", "trunc", "unique",
    "unsqueeze", "var", "vec", "vecdot", "where", "while_loop", "zeros"
]

# activation

def celu(x: TensorLike, alpha: float = 1.0) -> Symbol:
    """max(x, 0) + min(alpha * (exp(x / alpha) - 1), 0): an `elu` with slope 1 at 0 for every alpha."""
def clip(x: TensorLike, min: TensorLike | None = None, max: TensorLike | None = None) -> Symbol:
    """min(max(x, min), max): elements below `min` become `min`, then those above `max` become `max`; NaN stays NaN."""
def elu(x: TensorLike, alpha: float = 1.0) -> Symbol:
    """x where x is positive, alpha * (exp(x) - 1) elsewhere."""
def gelu(x: TensorLike, approximate: str = 'none') -> Symbol:
    """x times the probability that a standard normal number is below x."""
def glu(x: TensorLike, axis: int = -1) -> Symbol:
    """The first half of an axis times the sigmoid of the second: a gated linear unit."""
def hardsigmoid(x: TensorLike, alpha: float = 0.16666666666666666, beta: float = 0.5) -> Symbol:
    """min(max(alpha * x + beta, 0), 1)."""
def hardswish(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """x * min(max(x / 6 + 1 / 2, 0), 1). ONNX HardSwish."""
def hardtanh(x: TensorLike, min: TensorLike = -1.0, max: TensorLike = 1.0) -> Symbol:
    """x clipped to lie between `min` and `max`."""
def leaky_relu(x: TensorLike, alpha: float = 0.01) -> Symbol:
    """x where x is not negative, alpha * x elsewhere."""
def logsoftmax(x: TensorLike, axis: int = -1) -> Symbol:
    """The logarithm of `softmax`, without its underflow."""
def mish(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """x * tanh(softplus(x)). ONNX Mish."""
def prelu(x: TensorLike, slope: TensorLike) -> Symbol:
    """x where x is not negative, slope * x elsewhere."""
def relu(x: TensorLike) -> Symbol:
    """max(x, 0); NaN stays NaN."""
def selu(x: TensorLike) -> Symbol:
    """The scaled `elu` whose outputs keep mean 0 and variance 1."""
def sigmoid(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """1 / (1 + exp(-x)). ONNX Sigmoid."""
def silu(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """x * sigmoid(x), also called swish. ONNX Swish."""
def softmax(x: TensorLike, axis: int = -1) -> Symbol:
    """The exponentials of x divided by their sum over an axis: weights that sum to 1."""
def softplus(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """log(1 + exp(x)), without overflow. ONNX Softplus."""
def softsign(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """x / (1 + abs(x)). ONNX Softsign."""
def swiglu(gate: TensorLike, up: TensorLike) -> Symbol:
    """gate * sigmoid(gate) * up, the gated unit of most language models."""
def thresholded_relu(x: TensorLike, alpha: float = 1.0) -> Symbol:
    """x where x is above alpha, 0 elsewhere."""

# attention

def rotary_embedding(x: TensorLike, cos_cache: TensorLike, sin_cache: TensorLike, position_ids: TensorLike | None = None, interleaved: bool = False, rotary_embedding_dim: int = 0, num_heads: int | None = None) -> Symbol:
    """Rotary position embedding: pairs of features rotated by angles that increase with the position."""
def scaled_dot_product_attention(q: TensorLike, k: TensorLike, v: TensorLike, attn_mask: TensorLike | None = None, is_causal: bool = False, scale: float | None = None, softcap: float = 0.0, nonpad_kv_seqlen: TensorLike | None = None, q_num_heads: int | None = None, kv_num_heads: int | None = None) -> Symbol:
    """softmax(q @ k^T * scale + mask) @ v, head by head."""

# bitfields

def bit_concat(*values: TensorLike) -> Symbol:
    """The bits of integers concatenated, those of the first the highest, as one unsigned integer."""
def bit_extract(x: TensorLike, offset: Offset, width: int) -> Symbol:
    """The bits of an integer from `offset` on, `width` of them, as an unsigned integer of that width."""
def bit_insert(x: TensorLike, value: TensorLike, offset: Offset, width: int) -> Symbol:
    """The integer with the bits from `offset` on, `width` of them, set to those of `value`."""
def bitcast(x: TensorLike, dtype: object) -> Symbol:
    """The same bits read as another dtype."""

# bits

def bit_reverse(x: TensorLike) -> Symbol:
    """The bits of an integer in the opposite order."""
def bitwise_and(lhs: TensorLike, rhs: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """Bits set in both; *and* of bools. ONNX BitwiseAnd, And."""
def bitwise_not(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """Every bit flipped; *not* of bools. ONNX BitwiseNot, Not."""
def bitwise_or(lhs: TensorLike, rhs: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """Bits set in either; *or* of bools. ONNX BitwiseOr, Or."""
def bitwise_xor(lhs: TensorLike, rhs: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """Bits set in one only; *xor* of bools. ONNX BitwiseXor, Xor."""
def leading_zeros(x: TensorLike) -> Symbol:
    """The number of bits that are 0 above the highest that is 1; the width for 0."""
def left_shift(lhs: TensorLike, rhs: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """x with its bits shifted left by a count; 0 for counts outside 0 to bits - 1. ONNX BitShift."""
def logical_and(lhs: TensorLike, rhs: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """True where both are true. ONNX And."""
def logical_not(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """True where x is not true. ONNX Not."""
def logical_or(lhs: TensorLike, rhs: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """True where either is true. ONNX Or."""
def logical_xor(lhs: TensorLike, rhs: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """True where exactly one is true. ONNX Xor."""
def popcount(x: TensorLike) -> Symbol:
    """The number of bits that are 1; negative numbers in two's complement."""
def right_shift(lhs: TensorLike, rhs: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """x with its bits shifted right by a count, arithmetically if signed; sign bits for counts outside. ONNX BitShift."""
def trailing_zeros(x: TensorLike) -> Symbol:
    """The number of bits that are 0 below the lowest that is 1; the width for 0."""

# buffers

def buffer_create(initial: Buffer | TensorLike) -> BufferValue:
    """A buffer inside the graph, initialised anew in every run."""
def buffer_load(buffer: Symbol) -> Symbol:
    """The value of a buffer at this point of the graph: a Symbol that later stores do not change."""
def buffer_store(buffer: Symbol, value: TensorLike) -> None:
    """Store a value to a buffer; later loads, in the order in which the graph is built, return it."""
def buffer_store_slice(buffer: Symbol, value: TensorLike, slices: Any) -> None:
    """Store to a part of a buffer: `buffer[slices] = value`, as in NumPy."""
def print(x: TensorLike, label: str = 'debug_tensor') -> Symbol:
    """Mark a value: `Model.debug(...)` without `watch` runs the model and returns all marked values by label."""

# complex_numbers

def angle(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """The angle of complex numbers in radians, from -pi to pi; 0 or pi for real numbers. NumPy's angle."""
def as_complex(real: TensorLike, imag: TensorLike) -> Symbol:
    """Complex numbers from their real and imaginary parts."""
def as_interleaved_complex(interleaved: TensorLike) -> Symbol:
    """Complex numbers from real and imaginary parts that alternate on the last axis."""
def as_real(complex: TensorLike) -> tuple[Symbol, Symbol]:
    """The real and the imaginary parts of complex numbers."""
def complex(real: TensorLike, imag: TensorLike = 0.0) -> Symbol:
    """Complex numbers from their real and imaginary parts."""
def conj(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """The complex conjugate; real numbers unchanged. NumPy's conj."""
def imag(x: TensorLike) -> Symbol:
    """The imaginary part of complex numbers; zeros for real ones."""
def mul_complex(lhs: TensorLike, rhs: TensorLike) -> Symbol:
    """The products of complex numbers."""
def real(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """The real part of complex numbers; real numbers unchanged. NumPy's real."""

# convolution

def conv1d(x: TensorLike, filter: TensorLike, stride: PerAxis = 1, dilation: PerAxis = 1, padding: Padding = (0, 0), groups: int = 1, bias: TensorLike | None = None, input_layout: str = 'NWC', filter_layout: str = 'SCF') -> Symbol:
    """The convolution of sequences with a filter."""
def conv1d_transpose(x: TensorLike, filter: TensorLike, stride: PerAxis = 1, dilation: PerAxis = 1, padding: Padding = (0, 0), output_paddings: PerAxis = 0, bias: TensorLike | None = None, input_layout: str = 'NWC', filter_layout: str = 'SCF', *, groups: int = 1) -> Symbol:
    """The transposed convolution of sequences: the gradient of `conv1d` with respect to its input."""
def conv2d(x: TensorLike, filter: TensorLike, stride: PerAxis = (1, 1), dilation: PerAxis = (1, 1), padding: Padding = (0, 0, 0, 0), groups: int = 1, bias: TensorLike | None = None, input_layout: str = 'NHWC', filter_layout: str = 'RSCF') -> Symbol:
    """The convolution of images with a filter."""
def conv2d_transpose(x: TensorLike, filter: TensorLike, stride: PerAxis = (1, 1), dilation: PerAxis = (1, 1), padding: Padding = (0, 0, 0, 0), output_paddings: PerAxis = (0, 0), bias: TensorLike | None = None, input_layout: str = 'NHWC', filter_layout: str = 'RSCF', *, groups: int = 1) -> Symbol:
    """The transposed convolution of images: the gradient of `conv2d` with respect to its input."""
def conv3d(x: TensorLike, filter: TensorLike, stride: PerAxis = (1, 1, 1), dilation: PerAxis = (1, 1, 1), padding: Padding = (0, 0, 0, 0, 0, 0), groups: int = 1, bias: TensorLike | None = None, input_layout: str = 'NDHWC', filter_layout: str = 'QRSCF') -> Symbol:
    """The convolution of volumes with a filter."""
def conv3d_transpose(x: TensorLike, filter: TensorLike, stride: PerAxis = (1, 1, 1), dilation: PerAxis = (1, 1, 1), padding: Padding = (0, 0, 0, 0, 0, 0), output_paddings: PerAxis = (0, 0, 0), bias: TensorLike | None = None, input_layout: str = 'NDHWC', filter_layout: str = 'QRSCF', *, groups: int = 1) -> Symbol:
    """The transposed convolution of volumes: the gradient of `conv3d` with respect to its input."""

# creation

def constant(value: Any, dtype: object = None, ambiguous: bool = False) -> Symbol:
    """A constant in the current graph."""
def full(shape: SizeLike | Sequence[SizeLike], value: TensorLike, dtype: object = None) -> Symbol:
    """A tensor filled with one value."""
def linspace(start: TensorLike, stop: TensorLike, num: DimLike, endpoint: bool = True, dtype: object = None) -> Symbol:
    """`num` evenly spaced numbers from `start` to `stop`."""
def one_hot(indices: TensorLike, depth: DimLike | Symbol, axis: int = -1, *, on_value: TensorLike | str = 1, off_value: TensorLike | str = 0, dtype: object = None) -> Symbol:
    """A vector for each index, with `on_value` at that position and `off_value` elsewhere."""
def ones(shape: SizeLike | Sequence[SizeLike], dtype: object = ...) -> Symbol:
    """A tensor of ones."""
def range(start: Any, stop: Any = None, step: Any = 1, *, dtype: object = None, out_dim: DimLike | None = None) -> Symbol:
    """The numbers from `start` to `stop`, without `stop`, in steps of `step`: a tensor of rank 1."""
def zeros(shape: SizeLike | Sequence[SizeLike], dtype: object = ...) -> Symbol:
    """A tensor of zeros."""

# detection

def grid_sample(x: TensorLike, grid: TensorLike, mode: str = 'bilinear', padding_mode: str = 'zeros', align_corners: bool = False, input_layout: str = 'NHWC') -> Symbol:
    """Images, or volumes, sampled at the positions of a grid."""
def non_maximum_suppression(boxes: TensorLike, scores: TensorLike, max_output_boxes_per_class: int | Symbol, iou_threshold: float | Symbol = 0.0, score_threshold: float | Symbol | None = None, *, center_point_box: bool = False, out_dim: DimLike | None = None) -> Symbol:
    """The boxes selected by non-maximum suppression: of boxes of a class that overlap, the one with the highest score."""
def roi_align(x: TensorLike, rois: TensorLike, output_height: int, output_width: int, spatial_scale: float = 1.0, sampling_ratio: int = 0, aligned: bool = False, mode: str = 'AVG', *, batch_indices: TensorLike | None = None, input_layout: str = 'NHWC') -> Symbol:
    """Regions of images, each pooled to a fixed size from points sampled in it."""

# elementwise

def abs(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """The magnitude, real for complex numbers; MIN stays MIN. ONNX Abs."""
def acos(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """The angle in radians whose cosine is x; NaN outside -1 to 1. ONNX Acos."""
def acosh(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """The inverse hyperbolic cosine; NaN below 1. ONNX Acosh."""
def add(lhs: TensorLike, rhs: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """The sum. Integers wrap; bools are *or*ed. ONNX Add."""
def asin(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """The angle in radians whose sine is x; NaN outside -1 to 1. ONNX Asin."""
def asinh(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """The inverse hyperbolic sine. ONNX Asinh."""
def atan(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """The angle in radians whose tangent is x. ONNX Atan."""
def atan2(lhs: TensorLike, rhs: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """The angle in radians of the point (y, x), from -pi to pi."""
def atanh(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """The inverse hyperbolic tangent; NaN outside -1 to 1. ONNX Atanh."""
def ceil(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """The smallest integer not below x. ONNX Ceil."""
def cos(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """The cosine of x in radians. ONNX Cos."""
def cosh(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """The hyperbolic cosine. ONNX Cosh."""
def div(lhs: TensorLike, rhs: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """The true quotient, float64 for integers and bools. ONNX Div."""
def divmod(lhs: TensorLike, rhs: TensorLike) -> tuple[Symbol, Symbol]:
    """`floor_div` and `mod` of two tensors."""
def equal(lhs: TensorLike, rhs: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """True where both are equal. ONNX Equal."""
def erf(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """The error function. ONNX Erf."""
def exp(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """e to the power of x. ONNX Exp."""
def exp2(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """2 to the power of x."""
def expm1(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """exp(x) - 1, accurate near 0."""
def floor(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """The largest integer not above x. ONNX Floor."""
def floor_div(lhs: TensorLike, rhs: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """The quotient rounded down. Integers divided by 0 are 0, MIN // -1 wraps. NumPy's floor_divide."""
def fmod(lhs: TensorLike, rhs: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """The remainder of the truncated quotient, with x's sign; 0 for integers modulo 0. C's fmod; ONNX Mod with fmod=1."""
def greater(lhs: TensorLike, rhs: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """True where the first is greater. ONNX Greater."""
def greater_equal(lhs: TensorLike, rhs: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """True where the first is not less. ONNX GreaterOrEqual."""
def is_finite(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """True where x is neither NaN nor an infinity."""
def is_inf(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """True where x is an infinity; integers never are. ONNX IsInf."""
def is_nan(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """True where x is NaN; integers never are. ONNX IsNaN."""
def less(lhs: TensorLike, rhs: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """True where the first is less. ONNX Less."""
def less_equal(lhs: TensorLike, rhs: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """True where the first is not greater. ONNX LessOrEqual."""
def log(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """The natural logarithm; NaN below 0. ONNX Log."""
def log10(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """The logarithm to base 10."""
def log1p(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """log(1 + x), accurate near 0."""
def log2(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """The logarithm to base 2."""
def maximum(lhs: TensorLike, rhs: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """The greater of two; NaN if either is NaN. ONNX Max."""
def minimum(lhs: TensorLike, rhs: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """The lesser of two; NaN if either is NaN. ONNX Min."""
def mod(lhs: TensorLike, rhs: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """The remainder of floor division, with the divisor's sign; 0 for integers modulo 0. ONNX Mod, NumPy's remainder."""
def modf(x: TensorLike) -> tuple[Symbol, Symbol]:
    """The fractional and the integer part of x, both with its sign."""
def mul(lhs: TensorLike, rhs: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """The product. Integers wrap; bools are *and*ed. ONNX Mul."""
def negate(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """The negative of x; integers wrap. ONNX Neg."""
def not_equal(lhs: TensorLike, rhs: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """True where the two differ; NaN differs from itself. ONNX Not of Equal."""
def positive(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """The tensor itself."""
def pow(lhs: TensorLike, rhs: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """x to the power of y. Integers wrap and are exact; with a negative exponent the quotient is truncated. ONNX Pow."""
def reciprocal(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """1 / x. ONNX Reciprocal."""
def rint(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """The nearest integer, ties to even, as a float. C's and NumPy's rint; ONNX Round."""
def round(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """The nearest integer, ties to even. ONNX Round."""
def rsqrt(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """1 / sqrt(x)."""
def sign(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """-1, 0 or 1 by the sign, z / abs(z) for complex numbers; NaN stays NaN. ONNX Sign."""
def sin(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """The sine of x in radians. ONNX Sin."""
def sinc(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """sin(pi * x) / (pi * x), 1 at 0 and exactly 0 at other integers. NumPy's sinc."""
def sinh(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """The hyperbolic sine. ONNX Sinh."""
def sqrt(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """The square root; NaN below 0. ONNX Sqrt."""
def square(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """x * x. Integers wrap."""
def sub(lhs: TensorLike, rhs: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """The difference. Integers wrap; bools are refused. ONNX Sub."""
def tan(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """The tangent of x in radians. ONNX Tan."""
def tanh(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """The hyperbolic tangent. ONNX Tanh."""
def trunc(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """x rounded towards zero to an integer."""

# floats

def copysign(lhs: TensorLike, rhs: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """The magnitude of the first with the sign of the second, also for zeros and NaNs. C's and NumPy's copysign."""
def fdim(lhs: TensorLike, rhs: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """x - y where that is above 0, else 0.0; NaN where either is NaN. C's fdim."""
def frexp(x: TensorLike) -> tuple[Symbol, Symbol]:
    """A mantissa from 0.5 to 1 with the sign of x, and the exponent of 2: their product is x."""
def heaviside(lhs: TensorLike, rhs: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """0.0 where the first is below 0, 1.0 above, and the second where it is 0; NaN stays. NumPy's heaviside."""
def hypot(lhs: TensorLike, rhs: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """sqrt(x^2 + y^2) without intermediate overflow; infinite where either is, even beside NaN. C's and NumPy's hypot."""
def ieee_remainder(lhs: TensorLike, rhs: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """x minus the nearest multiple of y, the even one of two, exactly; 0 has the sign of x. C's remainder."""
def ldexp(x: TensorLike, exponent: TensorLike) -> Symbol:
    """x times 2 to the power of an integer, rounded once."""
def logaddexp(lhs: TensorLike, rhs: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """log(exp(x) + exp(y)), without intermediate overflow. NumPy's logaddexp."""
def logb(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """The exponent of 2 as a float: log2 of the magnitude, rounded down, exactly; -inf for 0. C's logb."""
def nextafter(lhs: TensorLike, rhs: TensorLike) -> Symbol:
    """The next float after the first in the direction of the second; the second if the two are equal."""
def rhypot(lhs: TensorLike, rhs: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """1 / hypot(x, y), without intermediate overflow. CUDA's rhypot."""
def round_half_away(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """The nearest integer, ties away from 0. C's round."""
def signbit(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """True where the sign bit is set: below 0, for -0.0, and for NaNs with a sign bit. NumPy's signbit."""

# fourier

def blackman_window(window_length: DimLike | Symbol, periodic: bool = True, dtype: object = ...) -> Symbol:
    """The window 0.42 - 0.5 cos(2 pi i / n) + 0.08 cos(4 pi i / n)."""
def fft(x: TensorLike, n: DimLike | None = None, axis: int = -1, normalization: str = 'backward', input_is_complex: bool = True) -> Symbol:
    """The discrete Fourier transform along an axis."""
def hamming_window(window_length: DimLike | Symbol, periodic: bool = True, dtype: object = ...) -> Symbol:
    """The window 0.54 - 0.46 cos(2 pi i / n): a raised cosine on a step."""
def hann_window(window_length: DimLike | Symbol, periodic: bool = True, dtype: object = ...) -> Symbol:
    """The window 1/2 - 1/2 cos(2 pi i / n): a raised cosine."""
def ifft(x: TensorLike, n: DimLike | None = None, axis: int = -1, normalization: str = 'backward', input_is_complex: bool = True) -> Symbol:
    """The inverse of `fft`."""
def irfft(x: TensorLike, n: DimLike | None = None, axis: int = -1, normalization: str = 'backward', input_is_complex: bool = True, buffer_size_mb: int = 512) -> Symbol:
    """The inverse of `rfft`: real numbers from the first half of their transform."""
def rfft(x: TensorLike, n: DimLike | None = None, axis: int = -1, normalization: str = 'backward') -> Symbol:
    """The discrete Fourier transform of real numbers along an axis, without its redundant half."""
def stft(x: TensorLike, frame_length: int, frame_step: int, window: TensorLike | None = None, onesided: bool = True) -> Symbol:
    """The short-time Fourier transform of signals: the spectrum of each frame."""

# gathering

def embedding(table: TensorLike, ids: TensorLike) -> Symbol:
    """The rows of a table at `ids`, one for each id."""
def gather(x: TensorLike, indices: TensorLike, axis: int = 0) -> Symbol:
    """The slices of `x` at `indices` along one axis."""
def gather_nd(x: TensorLike, indices: TensorLike, batch_dims: int = 0) -> Symbol:
    """The slices of `x` at coordinates along its first axes."""
def index_add(x: TensorLike, axis: int, index: TensorLike, values: TensorLike) -> Symbol:
    """`x` with the slices of `values` along one axis added at `index`."""
def masked_scatter(x: TensorLike, mask: TensorLike, updates: TensorLike) -> Symbol:
    """`x` with the elements where `mask` is true replaced by `updates`, in order."""
def nonzero(x: TensorLike, out_dim: DimLike | None = None) -> Symbol:
    """The coordinates of the elements that are not zero, one row each."""
def scatter(x: TensorLike, updates: TensorLike, indices: TensorLike, axis: int = -1) -> Symbol:
    """`x` with the elements at `indices` along one axis replaced by `updates`."""
def scatter_add(x: TensorLike, updates: TensorLike, indices: TensorLike, axis: int = -1) -> Symbol:
    """`x` with `updates` added to the elements at `indices` along one axis. ONNX ScatterElements, reduction "add"."""
def scatter_max(x: TensorLike, updates: TensorLike, indices: TensorLike, axis: int = -1) -> Symbol:
    """The larger of `x` and `updates` at `indices` along one axis. ONNX ScatterElements, reduction "max"."""
def scatter_min(x: TensorLike, updates: TensorLike, indices: TensorLike, axis: int = -1) -> Symbol:
    """The smaller of `x` and `updates` at `indices` along one axis. ONNX ScatterElements, reduction "min"."""
def scatter_mul(x: TensorLike, updates: TensorLike, indices: TensorLike, axis: int = -1) -> Symbol:
    """`x` with the elements at `indices` along one axis multiplied by `updates`. ONNX ScatterElements, reduction "mul"."""
def scatter_nd(x: TensorLike, updates: TensorLike, indices: TensorLike) -> Symbol:
    """`x` with the slices at coordinates along its first axes replaced by `updates`."""
def scatter_nd_add(x: TensorLike, updates: TensorLike, indices: TensorLike) -> Symbol:
    """`x` with `updates` added to the slices at coordinates along its first axes. ONNX ScatterND, reduction "add"."""
def scatter_nd_max(x: TensorLike, updates: TensorLike, indices: TensorLike) -> Symbol:
    """The larger of `x` and `updates` at coordinates along the first axes. ONNX ScatterND, reduction "max"."""
def scatter_nd_min(x: TensorLike, updates: TensorLike, indices: TensorLike) -> Symbol:
    """The smaller of `x` and `updates` at coordinates along the first axes. ONNX ScatterND, reduction "min"."""
def scatter_nd_mul(x: TensorLike, updates: TensorLike, indices: TensorLike) -> Symbol:
    """`x` with the slices at coordinates along its first axes multiplied by `updates`. ONNX ScatterND, reduction "mul"."""
def segment_sum(values: TensorLike, ids: TensorLike, count: SizeLike) -> Symbol:
    """The sums of the slices of `values` with the same id, one sum for each id from 0 to `count` - 1."""
def select(condition: TensorLike, x: TensorLike, y: TensorLike) -> Symbol:
    """An alias of `where`: `x` where `condition` is true and `y` elsewhere."""
def take_along_axis(x: TensorLike, indices: TensorLike, axis: int = -1) -> Symbol:
    """One element of `x` for each element of `indices`, along one axis."""
def where(condition: TensorLike, x: TensorLike, y: TensorLike) -> Symbol:
    """The elements of `x` where `condition` is true and those of `y` elsewhere."""

# indexing

def getitem(x: TensorLike, index: Any) -> Symbol:
    """The part of `x` that an index selects, as `x[index]` in NumPy."""
def slice(x: TensorLike, *slices: Any, out_dims: Sequence[DimLike] = (), axis: int = 0, keep_dims: bool = False) -> Symbol:
    """The part of `x` between positions of some axes."""
def slice_tensor(x: TensorLike, indices: Any) -> Symbol:
    """`x[indices]` as a function."""

# joining

def chunk(x: TensorLike, chunks: int, axis: int = 0) -> tuple[Symbol, ...]:
    """The tensor split into pieces of nearly equal size: if it is not divisible, the first ones are longer by one."""
def concat(values: Sequence[TensorLike], axis: int = 0, out_dim: DimLike | None = None) -> Symbol:
    """The tensors concatenated along an axis."""
def repeat_interleave(x: TensorLike, repeats: int | Sequence[int] | TensorLike, axis: int | None = None, out_dim: DimLike | None = None) -> Symbol:
    """Every element along an axis repeated in place."""
def split(x: TensorLike, sizes: int | Sequence[DimLike], axis: int = 0) -> tuple[Symbol, ...]:
    """The tensor split into pieces along an axis."""
def stack(values: Sequence[TensorLike], axis: int = 0) -> Symbol:
    """The tensors stacked along a new axis."""
def tile(x: TensorLike, repeats: DimLike | Sequence[DimLike]) -> Symbol:
    """The tensor repeated along each axis."""

# linalg

def einsum(equation: str, *operands: TensorLike) -> Symbol:
    """The sum of products that an equation of axis letters describes: "bij,bjk->bik"."""
def linear(x: TensorLike, weight: TensorLike, bias: TensorLike | None = None) -> Symbol:
    """A linear layer: the product of x with the transposed weight, plus the bias."""
def matmul(lhs: TensorLike, rhs: TensorLike) -> Symbol:
    """The matrix product."""
def outer(lhs: TensorLike, rhs: TensorLike) -> Symbol:
    """The products of every element of one vector with every element of another."""
def tensordot(lhs: TensorLike, rhs: TensorLike, axes: int | Sequence[Sequence[int]] = 2) -> Symbol:
    """The sum of products over chosen axes of two tensors."""
def vecdot(lhs: TensorLike, rhs: TensorLike, axis: int = -1) -> Symbol:
    """The dot products of vectors along an axis."""

# normalization

def batch_norm(x: TensorLike, scale: TensorLike, bias: TensorLike, mean: TensorLike, var: TensorLike, epsilon: float = 1e-05, axis: int = 1) -> Symbol:
    """(x - mean) / sqrt(var + epsilon) * scale + bias, by channel: the normalisation learnt in training."""
def group_norm(x: TensorLike, gamma: TensorLike, beta: TensorLike, num_groups: int, epsilon: float = 1e-05) -> Symbol:
    """Values normalised within groups of channels, times gamma plus beta."""
def instance_norm(x: TensorLike, gamma: TensorLike, beta: TensorLike, epsilon: float = 1e-05) -> Symbol:
    """Values normalised within each channel of each item, times gamma plus beta."""
def layer_norm(x: TensorLike, gamma: TensorLike, beta: TensorLike | None = None, epsilon: float = 1e-05) -> Symbol:
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta, over the last axis."""
def lp_normalize(x: TensorLike, p: int = 2, axis: int = -1) -> Symbol:
    """x divided by its norm along an axis, so that vectors have length 1; a vector of zeros stays."""
def rms_norm(x: TensorLike, weight: TensorLike, epsilon: float = 1e-06, weight_offset: float = 0.0) -> Symbol:
    """x / sqrt(mean of x * x + epsilon) * (weight + weight_offset), over the last axis."""

# pooling

def avg_pool(x: TensorLike, filter_shape: PerAxis, stride: PerAxis = (1, 1), dilation: PerAxis = (1, 1), padding: Padding = (0, 0, 0, 0), count_boundary: bool = True, *, ceil_mode: bool = False, input_layout: str = 'NHWC') -> Symbol:
    """The mean over each window of images: the older name of `avg_pool2d`. ONNX AveragePool."""
def avg_pool1d(x: TensorLike, kernel_size: PerAxis, stride: PerAxis = 1, dilation: PerAxis = 1, padding: Padding = 0, ceil_mode: bool = False, count_boundary: bool = True, input_layout: str = 'NWC') -> Symbol:
    """The mean over each window of sequences."""
def avg_pool2d(x: TensorLike, kernel_size: PerAxis, stride: PerAxis = 1, dilation: PerAxis = 1, padding: Padding = 0, ceil_mode: bool = False, count_boundary: bool = True, input_layout: str = 'NHWC') -> Symbol:
    """The mean over each window of images."""
def avg_pool3d(x: TensorLike, kernel_size: PerAxis, stride: PerAxis = 1, dilation: PerAxis = 1, padding: Padding = 0, ceil_mode: bool = False, count_boundary: bool = True, input_layout: str = 'NDHWC') -> Symbol:
    """The mean over each window of volumes."""
def fold(x: TensorLike, output_size: Sequence[DimLike], kernel_size: PerAxis, stride: PerAxis = 1, dilation: PerAxis = 1, padding: PerAxis = 0) -> Symbol:
    """Images summed from windows; where windows overlap their elements are added."""
def max_pool(x: TensorLike, filter_shape: PerAxis, stride: PerAxis = (1, 1), dilation: PerAxis = (1, 1), padding: Padding = (0, 0, 0, 0), *, ceil_mode: bool = False, input_layout: str = 'NHWC') -> Symbol:
    """The maximum of each window of images: the older name of `max_pool2d`. ONNX MaxPool."""
def max_pool1d(x: TensorLike, kernel_size: PerAxis, stride: PerAxis = 1, dilation: PerAxis = 1, padding: Padding = 0, ceil_mode: bool = False, input_layout: str = 'NWC') -> Symbol:
    """The maximum of each window of sequences."""
def max_pool2d(x: TensorLike, kernel_size: PerAxis, stride: PerAxis = 1, dilation: PerAxis = 1, padding: Padding = 0, ceil_mode: bool = False, input_layout: str = 'NHWC') -> Symbol:
    """The maximum of each window of images."""
def max_pool3d(x: TensorLike, kernel_size: PerAxis, stride: PerAxis = 1, dilation: PerAxis = 1, padding: Padding = 0, ceil_mode: bool = False, input_layout: str = 'NDHWC') -> Symbol:
    """The maximum of each window of volumes."""

# quantiles

def median(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> Symbol:
    """The median over axes: the middle element in order, or the mean of the two in the middle."""
def quantile(x: TensorLike, q: TensorLike | Sequence[float], axis: Axes = None, keepdims: bool = False, method: QuantileMethod = 'linear') -> Symbol:
    """The quantiles over axes: the values at the fractions `q` of the sorted elements."""

# quantization

def dequantize(encoding: str | Encoding | Quantized | QuantizedTensor, quantized: Quantized | QuantizedTensor | TensorLike | None = None) -> Symbol:
    """The floats that quantised values represent."""
def qmatmul(encoding: str | Encoding, x: TensorLike, weight: Quantized | QuantizedTensor | TensorLike, *, dynamic: bool = False, digits: int = 1, accuracy_level: int = 0, axis: int | None = 0, block_size: int | None = None, symmetric: bool = True) -> Symbol:
    """The product of x with a transposed quantised weight: x @ dequantize(weight).T."""
def quantize(x: TensorLike, encoding: str | Encoding = 'int8', *, axis: int | None = None, block_size: int | None = None, symmetric: bool = True) -> Quantized:
    """`x` quantised in an encoding: its numbers, their scales and zero points."""

# random

def bernoulli(p: TensorLike, shape: SizeLike | Sequence[SizeLike] | None = None, *, seed: Seed, dtype: object = ...) -> Symbol:
    """True with a probability, else False."""
def categorical(logits: TensorLike, samples: int | None = None, *, seed: Seed) -> Symbol:
    """Classes drawn from the softmax of their logits along the last axis."""
def dropout(x: TensorLike, rate: float, *, seed: Seed) -> Symbol:
    """The tensor with elements set to 0 at random, and the others divided by the probability of being kept."""
def permutation(n: DimLike, *, seed: Seed) -> Symbol:
    """The numbers from 0 to `n`, without `n`, in random order, in int64."""
def random_int(shape: SizeLike | Sequence[SizeLike], low: int, high: int, *, seed: Seed, dtype: object = ...) -> Symbol:
    """Uniformly distributed integers from `low` to `high`, without `high`."""
def random_normal(shape: SizeLike | Sequence[SizeLike], mean: float = 0.0, std: float = 1.0, *, seed: Seed, dtype: object = ...) -> Symbol:
    """Normally distributed numbers, after Box and Muller (1958)."""
def random_uniform(shape: SizeLike | Sequence[SizeLike], low: float = 0.0, high: float = 1.0, *, seed: Seed, dtype: object = ...) -> Symbol:
    """Uniformly distributed numbers from `low` to `high`, without `high`, in the current graph or that of the seed."""
def shuffle(x: TensorLike, axis: int = 0, *, seed: Seed) -> Symbol:
    """The slices of a tensor along an axis in random order."""

# rearranging

def depth_to_space(x: TensorLike, block_size: int, mode: str = 'DCR', input_layout: str = 'NHWC') -> Symbol:
    """Images with fewer channels and more pixels: the channels of each pixel become a block of pixels."""
def flip(x: TensorLike, axis: int | Sequence[int] | None = None) -> Symbol:
    """The elements in reverse order along axes."""
def pad(x: TensorLike, paddings: int | Sequence[Any], mode: PadMode = 'constant', value: TensorLike = 0) -> Symbol:
    """The tensor with elements added before and after it along its axes."""
def permute(x: TensorLike, dims: Sequence[int]) -> Symbol:
    """The axes in another order."""
def roll(x: TensorLike, shift: int | Symbol | Sequence[int | Symbol], axis: int | Sequence[int] | None = None) -> Symbol:
    """The elements shifted along axes; those that leave the end return at the start."""
def space_to_depth(x: TensorLike, block_size: int, mode: str = 'DCR', input_layout: str = 'NHWC') -> Symbol:
    """Images with more channels and fewer pixels, the inverse of `depth_to_space`."""
def squeeze(x: TensorLike, axis: int | Sequence[int]) -> Symbol:
    """The tensor without axes of size 1."""
def swapaxes(x: TensorLike, axis1: int, axis2: int) -> Symbol:
    """The tensor with two axes exchanged."""
def transpose(x: TensorLike, *axes: Any) -> Symbol:
    """The axes in another order: `transpose(x)` reverses them, `transpose(x, a, b)` swaps two."""
def transpose_matrix(matrix: TensorLike) -> Symbol:
    """The matrix with rows and columns exchanged; a stack of matrices is transposed matrix by matrix."""
def unsqueeze(x: TensorLike, axis: int | Sequence[int]) -> Symbol:
    """The tensor with new axes of size 1."""

# rebinding

def rebind(x: TensorLike, shape: Any, message: str = '') -> Symbol:
    """The same tensor with dims that the user declares, which are checked when the graph runs."""

# recurrent

def gru(x: TensorLike, weight: TensorLike, recurrent_weight: TensorLike, bias: TensorLike | None = None, recurrent_bias: TensorLike | None = None, initial_h: TensorLike | None = None, *, direction: str = 'forward', lengths: TensorLike | None = None, batch_first: bool = False, gates: str = 'rzn', reset_after: bool = True) -> tuple[Symbol, Symbol]:
    """A gated recurrent unit (GRU) layer: its output at each step, and the last state."""
def lstm(x: TensorLike, weight: TensorLike, recurrent_weight: TensorLike, bias: TensorLike | None = None, recurrent_bias: TensorLike | None = None, initial_h: TensorLike | None = None, initial_c: TensorLike | None = None, *, direction: str = 'forward', lengths: TensorLike | None = None, batch_first: bool = False, gates: str = 'ifgo') -> tuple[Symbol, Symbol, Symbol]:
    """A long short-term memory (LSTM) layer: its output at each step, and the last states."""
def rnn(x: TensorLike, weight: TensorLike, recurrent_weight: TensorLike, bias: TensorLike | None = None, recurrent_bias: TensorLike | None = None, initial_h: TensorLike | None = None, *, direction: str = 'forward', lengths: TensorLike | None = None, batch_first: bool = False, activation: str = 'tanh') -> tuple[Symbol, Symbol]:
    """A plain recurrent layer: its output at each step, and the last state."""

# reduction

def all(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> Symbol:
    """True if all elements are true, that is, not 0."""
def any(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> Symbol:
    """True if any element is true, that is, not 0."""
def arg_max(x: TensorLike, axis: int = -1) -> Symbol:
    """`argmax` under the name of MAX's Mojo API: along the last axis by default."""
def argmax(x: TensorLike, axis: int | None = None, keepdims: bool = False) -> Symbol:
    """The position of the maximum along an axis, in int64; the first of equal ones."""
def argmin(x: TensorLike, axis: int | None = None, keepdims: bool = False) -> Symbol:
    """The position of the minimum along an axis, in int64; the first of equal ones."""
def count_nonzero(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> Symbol:
    """The number of elements that are not 0, in int64."""
def logsumexp(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> Symbol:
    """The logarithm of the sum of exponentials over axes, without intermediate overflow."""
def max(x: TensorLike, y: TensorLike | None = None, /, *, axis: Axes = None, keepdims: bool = False) -> Symbol:
    """The maximum over axes; of two tensors, the greater of each pair."""
def mean(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> Symbol:
    """The arithmetic mean over axes."""
def min(x: TensorLike, y: TensorLike | None = None, /, *, axis: Axes = None, keepdims: bool = False) -> Symbol:
    """The minimum over axes; of two tensors, the lesser of each pair."""
def prod(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> Symbol:
    """The product over axes."""
def stdev(x: TensorLike, axis: Axes = None, correction: float = 0.0, keepdims: bool = False) -> Symbol:
    """The standard deviation over axes: the square root of the variance."""
def sum(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> Symbol:
    """The sum over axes."""
def var(x: TensorLike, axis: Axes = None, correction: float = 0.0, keepdims: bool = False) -> Symbol:
    """The variance over axes: the mean squared distance from the mean."""

# resizing

def resize(x: TensorLike, shape: Sequence[DimLike], interpolation: str = 'bilinear') -> Symbol:
    """The tensor resampled to another size at pixel centres."""
def resize_bicubic(x: TensorLike, size: Sequence[DimLike], coordinate_transformation_mode: str = 'half_pixel', antialias: bool = False, cubic_coeff_a: float = -0.75, *, exclude_outside: bool = False) -> Symbol:
    """The tensor resampled to another size by cubic convolution along each axis that changes."""
def resize_linear(x: TensorLike, size: Sequence[DimLike], coordinate_transformation_mode: str = 'half_pixel', antialias: bool = False, *, exclude_outside: bool = False) -> Symbol:
    """The tensor resampled to another size by linear interpolation along each axis that changes."""
def resize_nearest(x: TensorLike, size: Sequence[DimLike], coordinate_transformation_mode: str = 'half_pixel', round_mode: str = 'half_down') -> Symbol:
    """The tensor resampled to another size by copies of the nearest element."""

# sequences

def list_append(values: Symbol, x: TensorLike) -> Symbol:
    """The list with one more element at its end."""
def list_concat(values: Symbol, axis: int = 0) -> Symbol:
    """The elements of a list concatenated along an axis, as by `concat`."""
def list_empty(type: object, shape: Iterable[Any] | None = None) -> Symbol:
    """A list without elements, in the current graph."""
def list_erase(values: Symbol, index: Index = -1) -> Symbol:
    """The list without one of its elements, by default the last."""
def list_get(values: Symbol, index: Index) -> Symbol:
    """One element of a list."""
def list_insert(values: Symbol, index: Index, x: TensorLike) -> Symbol:
    """The list with one more element inserted before an index."""
def list_length(values: Symbol) -> Symbol:
    """The number of elements of a list, an int64 scalar."""
def list_map(fn: Callable[..., Any], *lists: Symbol) -> Any:
    """The results of a function for each element of one or more lists, as lists."""
def list_of(elements: Sequence[TensorLike]) -> Symbol:
    """A list of tensors."""
def list_pop(values: Symbol, index: Index = -1) -> tuple[Symbol, Symbol]:
    """The list without one of its elements, by default the last, and that element."""
def list_split(x: TensorLike, sizes: int | Sequence[int] | Symbol = 1, axis: int = 0) -> Symbol:
    """A tensor split along an axis into the elements of a list; `list_concat` is the inverse."""
def list_stack(values: Symbol, axis: int = 0) -> Symbol:
    """The elements of a list stacked along a new axis, as by `stack`."""
def list_unstack(x: TensorLike, axis: int = 0) -> Symbol:
    """The slices at each position of an axis as the elements of a list; `list_stack` is the inverse."""

# shape

def broadcast_to(x: TensorLike, shape: Any, out_dims: Sequence[DimLike] | None = None) -> Symbol:
    """The tensor broadcast to a shape: repeated along axes of size 1 and along new leading axes."""
def cast(x: TensorLike, dtype: object) -> Symbol:
    """The values as another dtype."""
def flatten(x: TensorLike, start_dim: int = 0, end_dim: int = -1) -> Symbol:
    """The axes from `start_dim` to `end_dim`, both included, merged into one."""
def reshape(x: TensorLike, shape: Any, out_dims: Sequence[DimLike] | None = None) -> Symbol:
    """The same elements, in row-major order, in another shape."""
def reshape_like(x: TensorLike, like: TensorLike) -> Symbol:
    """The elements of `x` in the shape of `like`."""
def shape_of(x: TensorLike) -> Symbol:
    """The sizes of the axes, an int64 tensor of shape [rank]."""
def shape_to_tensor(shape: Sequence[DimLike]) -> Symbol:
    """A Shape as an int64 tensor of shape [len(shape)], in the current graph or that of the Dims."""

# sorting

def argsort(x: TensorLike, axis: int = -1, descending: bool = False) -> Symbol:
    """The positions, in int64, of the elements in the order of `sort`."""
def bottom_k(x: TensorLike, k: DimLike | Symbol, axis: int = -1) -> tuple[Symbol, Symbol]:
    """The `k` smallest elements along an axis, the smallest first, and their positions in int64."""
def cummax(x: TensorLike, axis: int = -1, reverse: bool = False) -> Symbol:
    """The cumulative maximum along an axis; from the first NaN on it is NaN."""
def cummin(x: TensorLike, axis: int = -1, reverse: bool = False) -> Symbol:
    """The cumulative minimum along an axis; from the first NaN on it is NaN."""
def cumprod(x: TensorLike, axis: int = -1, exclusive: bool = False, reverse: bool = False) -> Symbol:
    """The cumulative product along an axis."""
def cumsum(x: TensorLike, axis: int = -1, exclusive: bool = False, reverse: bool = False) -> Symbol:
    """The cumulative sum along an axis."""
def sort(x: TensorLike, axis: int = -1, descending: bool = False) -> Symbol:
    """The elements in order along an axis."""
def top_k(x: TensorLike, k: DimLike | Symbol, axis: int = -1) -> tuple[Symbol, Symbol]:
    """The `k` largest elements along an axis, the largest first, and their positions in int64."""
def unique(x: TensorLike, axis: int | None = None, out_dim: DimLike | None = None) -> Unique:
    """The unique values in ascending order, their first positions, the position of each element in them, and counts."""

# special

def cbrt(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """The cube root, negative for negative numbers. C's and NumPy's cbrt."""
def digamma(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """The derivative of log(gamma(x)); NaN for negative integers. SciPy's digamma."""
def erfc(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """1 - erf(x), accurate where it is small. C's erfc."""
def erfcinv(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """The number whose erfc is x; NaN outside 0 to 2. CUDA's and SciPy's."""
def erfcx(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """exp(x * x) * erfc(x), which does not underflow. CUDA's and SciPy's erfcx."""
def erfinv(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """The number whose error function is x; NaN outside -1 to 1."""
def exp10(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """10 to the power of x."""
def lgamma(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """The logarithm of the magnitude of the gamma function. C's lgamma."""
def normcdf(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """The distribution function of normal numbers, from 0 to 1. CUDA's; SciPy's ndtr."""
def normcdfinv(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """The inverse of normcdf: the number below which normal numbers are with probability x. CUDA's; SciPy's ndtri."""
def rcbrt(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """1 / cbrt(x). CUDA's rcbrt."""
def tgamma(x: TensorLike, *, accuracy: Accuracy | None = None) -> Symbol:
    """The gamma function; NaN for negative integers. C's tgamma."""

# strings

def string_concat(lhs: StringLike, rhs: StringLike) -> Symbol:
    """Elementwise concatenation of strings."""
def string_join(values: Sequence[StringLike], separator: str = '') -> Symbol:
    """Strings concatenated with a separator between them."""
def string_lower(x: StringLike) -> Symbol:
    """The strings in lower case."""
def string_matches(x: StringLike, pattern: str) -> Symbol:
    """True where a pattern matches the whole string."""
def string_of(x: TensorLike) -> Symbol:
    """Numbers as strings."""
def string_parse(x: StringLike, dtype: object) -> Symbol:
    """The numbers that strings represent, with or without surrounding spaces."""
def string_remove(x: StringLike, words: Sequence[str], case_sensitive: bool = True) -> Symbol:
    """The strings that are not in a list of words."""
def string_split(x: StringLike, delimiter: str | None = None, maxsplit: int | None = None) -> tuple[Symbol, Symbol]:
    """The parts of each string between delimiters, and the number of parts."""
def string_upper(x: StringLike) -> Symbol:
    """The strings in upper case."""

# triangular

def band_part(x: TensorLike, num_lower: int | Symbol | None, num_upper: int | Symbol | None, exclude: bool = False) -> Symbol:
    """A band of matrices around the main diagonal, with 0 outside of it."""
def lu(x: TensorLike) -> tuple[Symbol, Symbol, Symbol]:
    """The LU decomposition with partial pivoting: P @ L @ U = x."""
def lu_factor(x: TensorLike) -> tuple[Symbol, Symbol]:
    """The LU decomposition with partial pivoting, packed in one matrix, and the permutation of rows."""
def triangular_solve(a: TensorLike, b: TensorLike, lower: bool = False, transposed: bool = False, unit_diagonal: bool = False) -> Symbol:
    """The solution of a @ x = b for triangular matrices."""
def tril(x: TensorLike, k: int = 0) -> Symbol:
    """The lower triangle of matrices, with 0 above it."""
def triu(x: TensorLike, k: int = 0) -> Symbol:
    """The upper triangle of matrices, with 0 below it."""

# vectors

def cross(lhs: TensorLike, rhs: TensorLike, axis: int = -1) -> Symbol:
    """The vector product of vectors of length 3."""
def fma(x: TensorLike, y: TensorLike, z: TensorLike) -> Symbol:
    """x * y + z in one step: floats round once, at the end; integers wrap, bools are *and*ed and *or*ed."""
def into_vec(x: TensorLike | Sequence[TensorLike]) -> Symbol:
    """`x` as a vector: a scalar becomes a vector of length 1, a list a vector of its length."""
def mag(x: TensorLike, axis: Axes = None, keepdims: bool = False) -> Symbol:
    """The magnitude of a vector: the square root of the sum of squares over axes, without intermediate overflow."""
def vec(*values: TensorLike) -> Symbol:
    """A vector of the concatenated values, in their common dtype."""
