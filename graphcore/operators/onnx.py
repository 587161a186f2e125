"""The operators of ONNX, in their newest versions."""

from __future__ import annotations

from collections.abc import Mapping

from graphcore.operators.shapes import call, movement, reductions, sizes
from graphcore.operators.traits import EVERY, OperatorRow, row, rows

ROWS: Mapping[str, OperatorRow] = {
    # Bodies
    **rows("If Loop Scan SequenceMap", "BODIES"),
    # Sequences and optionals
    **rows("ConcatFromSequence Optional OptionalGetElement SequenceAt SequenceErase", "CARRIES"),
    "OptionalHasElement": row("CARRIES TYPE_ONLY", data=()),
    "SequenceConstruct": row("CARRIES", data=EVERY),
    "SequenceEmpty": row("CARRIES", data=(), dtype_attribute="dtype"),
    "SequenceInsert": row("CARRIES", data=(0, 1)),
    "SequenceLength": row("CARRIES TYPE_ONLY POSITIONS", data=()),
    "SplitToSequence": row("CARRIES SIZED"),
    # Movement of elements
    "CenterCropPad": row("FILLS SIZED", shapes=sizes.cropped),
    "Compress": row("MOVES", shapes=movement.compressed),
    "Concat": row("JOINS", data=EVERY, shapes=movement.joined),
    "DepthToSpace": row("MOVES", shapes=movement.in_blocks),
    "Expand": row("MOVES SIZED", shapes=movement.expanded),
    "Flatten": row("VIEWS MOVES", shapes=movement.flattened),
    "Gather": row("MOVES", shapes=movement.gathered),
    "GatherElements": row("MOVES", shapes=movement.as_indices),
    "GatherND": row("MOVES", shapes=movement.gathered_rows),
    "Identity": row("MOVES ELEMENTWISE"),
    "OneHot": row("JOINS SIZED", data=(2,), shapes=sizes.one_hot),
    "Pad": row("FILLS SIZED", data=(0, 2), shapes=sizes.padded),
    "Reshape": row("VIEWS MOVES SIZED", shapes=movement.reshaped),
    "ReverseSequence": row("MOVES", shapes=call.same),
    **rows("ScatterElements ScatterND", "JOINS", data=(0, 2), shapes=call.same),
    "Slice": row("MOVES SIZED", shapes=sizes.cut),
    "SpaceToDepth": row("MOVES", shapes=movement.out_of_blocks),
    "Split": row("MOVES SIZED", shapes=movement.parts),
    "Squeeze": row("VIEWS MOVES SIZED", shapes=movement.squeezed),
    "TensorScatter": row("JOINS", data=(0, 1), shapes=call.same),
    "Tile": row("MOVES SIZED", shapes=movement.tiled),
    "Transpose": row("MOVES", shapes=movement.transposed),
    "Trilu": row("FILLS", shapes=call.same),
    "Unsqueeze": row("VIEWS MOVES SIZED", shapes=movement.unsqueezed),
    "Where": row("JOINS ELEMENTWISE BROADCASTS", data=(1, 2)),
    # Types, shapes and positions
    "NonMaxSuppression": row("POSITIONS"),
    "NonZero": row("TESTS POSITIONS", shapes=sizes.places),
    "Shape": row("TYPE_ONLY POSITIONS", shapes=sizes.shape),
    "Size": row("TYPE_ONLY POSITIONS", shapes=sizes.scalar),
    "TopK": row("SELECTS REDUCES POSITIONS SIZED", shapes=sizes.greatest),
    "Unique": row("SELECTS POSITIONS", shapes=sizes.unique),
    # Generated values
    "AffineGrid": row("SIZED ROUNDS"),
    "Bernoulli": row("ELEMENTWISE RANDOM", dtype_attribute="dtype"),
    **rows(
        "BlackmanWindow HammingWindow HannWindow",
        "SIZED ROUNDS",
        dtype_attribute="output_datatype",
        shapes=sizes.window,
    ),
    "Constant": row(),
    "ConstantOfShape": row("SIZED", shapes=sizes.filled),
    "Dropout": row("ELEMENTWISE RANDOM"),
    "EyeLike": row("TYPE_ONLY", dtype_attribute="dtype", shapes=call.same),
    "MelWeightMatrix": row("SIZED ROUNDS", dtype_attribute="output_datatype", shapes=sizes.mel_weights),
    **rows("Multinomial RandomNormal RandomUniform", "RANDOM", dtype_attribute="dtype"),
    **rows("RandomNormalLike RandomUniformLike", "ELEMENTWISE RANDOM TYPE_ONLY", dtype_attribute="dtype"),
    "Range": row("SIZED", shapes=sizes.counted),
    # Comparisons, logic and bits
    **rows("And Or Xor", "ELEMENTWISE BROADCASTS COMMUTATIVE"),
    "BitShift": row("ELEMENTWISE BROADCASTS"),
    **rows("BitwiseAnd BitwiseOr BitwiseXor", "ELEMENTWISE BROADCASTS COMMUTATIVE RING"),
    "BitwiseNot": row("ELEMENTWISE RING"),
    "Equal": row("ELEMENTWISE BROADCASTS COMMUTATIVE COMPARES"),
    **rows("Greater GreaterOrEqual Less LessOrEqual", "ELEMENTWISE BROADCASTS COMPARES"),
    **rows("IsInf IsNaN", "ELEMENTWISE TESTS"),
    "Not": row("ELEMENTWISE"),
    # Arithmetic
    "Abs": row("SIGN ELEMENTWISE"),
    **rows("Add Mul", "ELEMENTWISE BROADCASTS COMMUTATIVE RING ROUNDS"),
    "BitCast": row("ELEMENTWISE", dtype_attribute="to"),
    "Cast": row("ELEMENTWISE ROUNDS", dtype_attribute="to"),
    **rows("CastLike Ceil Floor Round Sign", "ELEMENTWISE"),
    **rows("Clip Relu", "SELECTS ELEMENTWISE"),
    **rows("Div Mean Mod Pow", "ELEMENTWISE BROADCASTS ROUNDS"),
    **rows("Max Min", "SELECTS ELEMENTWISE BROADCASTS COMMUTATIVE", data=EVERY),
    "Neg": row("SIGN ELEMENTWISE RING"),
    "PRelu": row("ELEMENTWISE ROUNDS"),
    "StringConcat": row("ELEMENTWISE BROADCASTS"),
    **rows("Sub Sum", "ELEMENTWISE BROADCASTS RING ROUNDS"),
    # Functions of one element
    **rows(
        "Acos Acosh Asin Asinh Atan Atanh Celu Cos Cosh Elu Erf Exp Gelu HardSigmoid HardSwish LeakyRelu Log Mish "
        "Reciprocal Selu Shrink Sigmoid Sin Sinh Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu",
        "ELEMENTWISE ROUNDS",
    ),
    # Reductions, running sums and norms
    **rows("ArgMax ArgMin", "REDUCES POSITIONS", shapes=reductions.position),
    "BatchNormalization": row("ROUNDS", shapes=reductions.by_channels),
    **rows("CumProd CumSum", "RING REDUCES ROUNDS", shapes=call.same),
    **rows("GroupNormalization InstanceNormalization LRN", "ROUNDS", shapes=call.same),
    "Hardmax": row("REDUCES", shapes=reductions.softmax),
    "LayerNormalization": row("REDUCES ROUNDS", shapes=reductions.from_axis),
    **rows("LogSoftmax Softmax", "REDUCES ROUNDS", shapes=reductions.softmax),
    **rows("LpNormalization RMSNormalization", "REDUCES ROUNDS", shapes=reductions.along_axis),
    "MeanVarianceNormalization": row("REDUCES ROUNDS", shapes=call.same),
    **rows("NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss", "ROUNDS"),
    **rows(
        "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMean", "REDUCES SIZED ROUNDS", shapes=reductions.reduced
    ),
    **rows("ReduceMax ReduceMin", "SELECTS REDUCES SIZED", shapes=reductions.reduced),
    **rows("ReduceProd ReduceSum ReduceSumSquare", "RING REDUCES SIZED ROUNDS", shapes=reductions.reduced),
    # Products
    **rows("Attention LinearAttention", "PRODUCT ROUNDS"),
    **rows("CausalConvWithState DeformConv", "PRODUCT WINDOW ROUNDS"),
    "Conv": row("PRODUCT WINDOW ROUNDS", shapes=reductions.convolved(1)),
    "ConvInteger": row("PRODUCT WINDOW QUANTIZED ROUNDS", shapes=reductions.convolved(1)),
    "ConvTranspose": row("PRODUCT WINDOW ROUNDS", shapes=reductions.transposed),
    "Einsum": row("RING PRODUCT ROUNDS"),
    **rows("GRU LSTM RNN", "PRODUCT RECURRENT ROUNDS", shapes=reductions.recurrent),
    "Gemm": row("PRODUCT ROUNDS", shapes=reductions.gemm),
    "MatMul": row("RING PRODUCT ROUNDS", shapes=reductions.matmul()),
    "MatMulInteger": row("PRODUCT QUANTIZED ROUNDS", shapes=reductions.matmul()),
    "QLinearConv": row("PRODUCT WINDOW QUANTIZED ROUNDS", shapes=reductions.convolved(3)),
    "QLinearMatMul": row("PRODUCT QUANTIZED ROUNDS", shapes=reductions.matmul(3)),
    # Windows, images and signals
    **rows("AveragePool LpPool", "WINDOW ROUNDS", shapes=reductions.pooled),
    "Col2Im": row("WINDOW SIZED ROUNDS", shapes=reductions.images),
    "DFT": row("SIZED ROUNDS", shapes=reductions.transformed),
    **rows("GlobalAveragePool GlobalLpPool", "WINDOW ROUNDS", shapes=reductions.pooled_whole),
    "GlobalMaxPool": row("SELECTS WINDOW", shapes=reductions.pooled_whole),
    **rows("GridSample RoiAlign", "ROUNDS"),
    "ImageDecoder": row(),
    "MaxPool": row("SELECTS WINDOW POSITIONS", shapes=reductions.pooled),
    "MaxRoiPool": row("SELECTS"),
    "MaxUnpool": row("WINDOW SIZED"),
    "Resize": row("SIZED ROUNDS", shapes=sizes.resized),
    "STFT": row("WINDOW SIZED ROUNDS", shapes=reductions.framed),
    # Quantisation and others
    **rows("DequantizeLinear QuantizeLinear", "ELEMENTWISE QUANTIZED ROUNDS"),
    **rows("Det SwiGLU", "ROUNDS"),
    "DynamicQuantizeLinear": row("QUANTIZED"),
    "RegexFullMatch": row(shapes=call.same),
    "RotaryEmbedding": row("ROUNDS", shapes=reductions.rotated),
    **rows("StringNormalizer StringSplit TfIdfVectorizer"),
    # Deprecated: replaced by ScatterElements and Resize in Graphs
    "Scatter": row(shapes=call.same),
    "Upsample": row(),
}
"""The operators of the default domain."""

OTHERS: Mapping[str, Mapping[str, OperatorRow]] = {
    "ai.onnx.ml": {
        "ArrayFeatureExtractor": row("MOVES"),
        "Binarizer": row("ELEMENTWISE"),
        **rows(
            "CastMap CategoryMapper DictVectorizer LabelEncoder LinearClassifier OneHotEncoder TreeEnsemble "
            "TreeEnsembleClassifier TreeEnsembleRegressor ZipMap"
        ),
        "FeatureVectorizer": row(shapes=sizes.side_by_side),
        **rows("Imputer Normalizer Scaler", shapes=call.same),
        **rows("LinearRegressor SVMRegressor", shapes=sizes.matrix),
        "SVMClassifier": row(shapes=sizes.classified),
    },
    "ai.onnx.preview": {
        "FlexAttention": row("BODIES PRODUCT"),
    },
    "ai.onnx.preview.training": {
        **rows("Adagrad Adam Gradient Momentum"),
    },
}
"""The operators of ONNX's other domains, by domain."""
