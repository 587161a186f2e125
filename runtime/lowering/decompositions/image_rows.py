"""The rows of the table of decompositions for operators on images and other operators of networks."""

from __future__ import annotations

from collections.abc import Sequence

from graphcore.runtime.lowering.decompositions import (
    convolution,
    grid_sample,
    matmul,
    neural,
    pooling,
    rearranging,
    recurrent,
    resizing,
)
from graphcore.runtime.lowering.decompositions.signature import Decomposition
from graphcore.types.dtypes import DType

_F32, _F64 = DType.float32, DType.float64
_INTEGERS = (DType.int8, DType.int16, DType.int32, DType.int64, DType.uint8, DType.uint16, DType.uint32, DType.uint64)
_WIDE = tuple(d for d in _INTEGERS if d.bits >= 32)

ROWS: list[tuple[Sequence[str], Sequence[DType], Decomposition]] = [
    (("Conv",), (_F64, *_INTEGERS), convolution.convolve),
    (("ConvTranspose",), (_F64, *_INTEGERS), convolution.convolve_transposed),
    (("Col2Im",), (_F64, *_INTEGERS), convolution.col2im),
    (("MaxPool",), (_F32, _F64), pooling.max_floats),
    (("MaxPool",), tuple(d for d in _INTEGERS if d.bits > 8), pooling.max_integers),
    (("AveragePool",), (_F64,), pooling.average),
    (("LpPool",), (_F64,), pooling.norm),
    (("GlobalMaxPool",), (_F32, _F64, *_INTEGERS), pooling.global_pool),
    (("GlobalAveragePool",), (_F64,), pooling.global_pool),
    (("GlobalLpPool",), (_F32, _F64), pooling.global_pool),
    (("MaxUnpool",), (_F32, _F64, *_INTEGERS), pooling.unpool),
    (("Resize",), (_F32,), resizing.resize_wrong),
    (("Resize",), (_F64, *_WIDE), resizing.resize),
    (("GridSample",), (_F64, DType.bool, *_INTEGERS), grid_sample.grid_sample),
    (("DepthToSpace", "SpaceToDepth"), _WIDE, rearranging.depth_and_space),
    (("SpaceToDepth",), (_F32, _F64, DType.int8, DType.uint8), rearranging.space_to_depth),
    (("Mean",), (_F64,), neural.mean_of),
    (("Hardmax",), (_F64,), neural.hardmax),
    (("LRN",), (_F64,), neural.response_normalization),
    (("MeanVarianceNormalization",), (_F64,), neural.mean_variance),
    (("Det",), (_F64,), neural.determinant),
    (("OneHot",), (DType.bool, _F32, _F64, *_INTEGERS), neural.one_hot),
    (("NonZero",), (_F64, DType.uint64), neural.nonzero),
    (("NonZero",), (DType.bool, DType.int32, DType.int64, DType.uint8, _F32), neural.nonzero_places),
    (("Shrink",), (_F64, *_WIDE), neural.shrink),
    (("NonZero",), (DType.string,), rearranging.nonzero),
    (rearranging.ROWS, (DType.string,), rearranging.moved),
    (("Col2Im",), (DType.string,), rearranging.not_added),
    (("Col2Im",), (DType.bool,), convolution.col2im_bool),
    (("MaxRoiPool",), (_F32, _F64), grid_sample.max_roi_pool),
    (("Relu",), (DType.int64,), neural.relu_integers),
    (("PRelu",), _WIDE, neural.prelu_integers),
    (("Gemm",), _WIDE, neural.gemm_integers),
    (("ReduceL1", "ReduceSumSquare"), _INTEGERS, neural.sum_of_sizes),
    (("ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMean"), _INTEGERS, neural.by_double),
    (("Unique",), (DType.bool,), neural.unique_bool),
    (("Unique",), (DType.uint64,), matmul.ordered_view),
    (("RNN", "GRU", "LSTM"), (_F32,), recurrent.batch_second),
    (("RNN", "GRU", "LSTM"), (_F64,), recurrent.unrolled),
]
