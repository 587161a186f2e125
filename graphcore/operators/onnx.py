"""The operators of ONNX, in their newest versions."""

from __future__ import annotations

from collections.abc import Mapping

from graphcore.operators.shapes import call, movement, reductions, sizes
from graphcore.operators.traits import EVERY, OperatorRow, row

ROWS: Mapping[str, OperatorRow] = {
    # Bodies
    **dict.fromkeys("If Loop Scan SequenceMap".split(), row("BODIES")),
    # Sequences and optionals
    **dict.fromkeys(
        "ConcatFromSequence Optional OptionalGetElement SequenceAt SequenceErase".split(),
        row("CARRIES"),
    ),
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
    "ScatterElements": row("JOINS", data=(0, 2), shapes=call.same),
    "ScatterND": row("JOINS", data=(0, 2), shapes=call.same),
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
    **dict.fromkeys(
        "BlackmanWindow HammingWindow HannWindow".split(),
        row("SIZED ROUNDS", dtype_attribute="output_datatype", shapes=sizes.window),
    ),
    "Constant": row(),
    "ConstantOfShape": row("SIZED", shapes=sizes.filled),
    "Dropout": row("ELEMENTWISE RANDOM"),
    "EyeLike": row("TYPE_ONLY", dtype_attribute="dtype", shapes=call.same),
    "MelWeightMatrix": row("SIZED ROUNDS", dtype_attribute="output_datatype", shapes=sizes.mel_weights),
    **dict.fromkeys("Multinomial RandomNormal RandomUniform".split(), row("RANDOM", dtype_attribute="dtype")),
    "RandomNormalLike": row("ELEMENTWISE RANDOM TYPE_ONLY", dtype_attribute="dtype"),
    "RandomUniformLike": row("ELEMENTWISE RANDOM TYPE_ONLY", dtype_attribute="dtype"),
    "Range": row("SIZED", shapes=sizes.counted),
    # Comparisons, logic and bits
    **dict.fromkeys("And Or Xor".split(), row("ELEMENTWISE BROADCASTS COMMUTATIVE")),
    "BitShift": row("ELEMENTWISE BROADCASTS"),
    **dict.fromkeys(
        "BitwiseAnd BitwiseOr BitwiseXor".split(),
        row("ELEMENTWISE BROADCASTS COMMUTATIVE RING"),
    ),
    "BitwiseNot": row("ELEMENTWISE RING"),
    "Equal": row("ELEMENTWISE BROADCASTS COMMUTATIVE COMPARES"),
    **dict.fromkeys(
        "Greater GreaterOrEqual Less LessOrEqual".split(),
        row("ELEMENTWISE BROADCASTS COMPARES"),
    ),
    "IsInf": row("ELEMENTWISE TESTS"),
    "IsNaN": row("ELEMENTWISE TESTS"),
    "Not": row("ELEMENTWISE"),
    # Arithmetic
    "Abs": row("SIGN ELEMENTWISE"),
    "Add": row("ELEMENTWISE BROADCASTS COMMUTATIVE RING ROUNDS"),
    "Mul": row("ELEMENTWISE BROADCASTS COMMUTATIVE RING ROUNDS"),
    "BitCast": row("ELEMENTWISE", dtype_attribute="to"),
    "Cast": row("ELEMENTWISE ROUNDS", dtype_attribute="to"),
    **dict.fromkeys("CastLike Ceil Floor Round Sign".split(), row("ELEMENTWISE")),
    "Clip": row("SELECTS ELEMENTWISE"),
    "Relu": row("SELECTS ELEMENTWISE"),
    **dict.fromkeys("Div Mean Mod Pow".split(), row("ELEMENTWISE BROADCASTS ROUNDS")),
    "Max": row("SELECTS ELEMENTWISE BROADCASTS COMMUTATIVE", data=EVERY),
    "Min": row("SELECTS ELEMENTWISE BROADCASTS COMMUTATIVE", data=EVERY),
    "Neg": row("SIGN ELEMENTWISE RING"),
    "PRelu": row("ELEMENTWISE ROUNDS"),
    "StringConcat": row("ELEMENTWISE BROADCASTS"),
    "Sub": row("ELEMENTWISE BROADCASTS RING ROUNDS"),
    "Sum": row("ELEMENTWISE BROADCASTS RING ROUNDS"),
    # Functions of one element
    **dict.fromkeys(
        (
            "Acos Acosh Asin Asinh Atan Atanh Celu Cos Cosh Elu Erf Exp Gelu HardSigmoid HardSwish LeakyRelu Log Mish "
            "Reciprocal Selu Shrink Sigmoid Sin Sinh Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu"
        ).split(),
        row("ELEMENTWISE ROUNDS"),
    ),
    # Reductions, running sums and norms
    "ArgMax": row("REDUCES POSITIONS", shapes=reductions.position),
    "ArgMin": row("REDUCES POSITIONS", shapes=reductions.position),
    "BatchNormalization": row("ROUNDS", shapes=reductions.by_channels),
    "CumProd": row("RING REDUCES ROUNDS", shapes=call.same),
    "CumSum": row("RING REDUCES ROUNDS", shapes=call.same),
    **dict.fromkeys("GroupNormalization InstanceNormalization LRN".split(), row("ROUNDS", shapes=call.same)),
    "Hardmax": row("REDUCES", shapes=reductions.softmax),
    "LayerNormalization": row("REDUCES ROUNDS", shapes=reductions.from_axis),
    "LogSoftmax": row("REDUCES ROUNDS", shapes=reductions.softmax),
    "Softmax": row("REDUCES ROUNDS", shapes=reductions.softmax),
    "LpNormalization": row("REDUCES ROUNDS", shapes=reductions.along_axis),
    "RMSNormalization": row("REDUCES ROUNDS", shapes=reductions.along_axis),
    "MeanVarianceNormalization": row("REDUCES ROUNDS", shapes=call.same),
    "NegativeLogLikelihoodLoss": row("ROUNDS"),
    "SoftmaxCrossEntropyLoss": row("ROUNDS"),
    **dict.fromkeys(
        "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMean".split(),
        row("REDUCES SIZED ROUNDS", shapes=reductions.reduced),
    ),
    "ReduceMax": row("SELECTS REDUCES SIZED", shapes=reductions.reduced),
    "ReduceMin": row("SELECTS REDUCES SIZED", shapes=reductions.reduced),
    **dict.fromkeys(
        "ReduceProd ReduceSum ReduceSumSquare".split(),
        row("RING REDUCES SIZED ROUNDS", shapes=reductions.reduced),
    ),
    # Products
    "Attention": row("PRODUCT ROUNDS"),
    "LinearAttention": row("PRODUCT ROUNDS"),
    "CausalConvWithState": row("PRODUCT WINDOW ROUNDS"),
    "DeformConv": row("PRODUCT WINDOW ROUNDS"),
    "Conv": row("PRODUCT WINDOW ROUNDS", shapes=reductions.convolved(1)),
    "ConvInteger": row("PRODUCT WINDOW QUANTIZED ROUNDS", shapes=reductions.convolved(1)),
    "ConvTranspose": row("PRODUCT WINDOW ROUNDS", shapes=reductions.transposed),
    "Einsum": row("RING PRODUCT ROUNDS"),
    **dict.fromkeys("GRU LSTM RNN".split(), row("PRODUCT RECURRENT ROUNDS", shapes=reductions.recurrent)),
    "Gemm": row("PRODUCT ROUNDS", shapes=reductions.gemm),
    "MatMul": row("RING PRODUCT ROUNDS", shapes=reductions.matmul()),
    "MatMulInteger": row("PRODUCT QUANTIZED ROUNDS", shapes=reductions.matmul()),
    "QLinearConv": row("PRODUCT WINDOW QUANTIZED ROUNDS", shapes=reductions.convolved(3)),
    "QLinearMatMul": row("PRODUCT QUANTIZED ROUNDS", shapes=reductions.matmul(3)),
    # Windows, images and signals
    "AveragePool": row("WINDOW ROUNDS", shapes=reductions.pooled),
    "LpPool": row("WINDOW ROUNDS", shapes=reductions.pooled),
    "Col2Im": row("WINDOW SIZED ROUNDS", shapes=reductions.images),
    "DFT": row("SIZED ROUNDS", shapes=reductions.transformed),
    "GlobalAveragePool": row("WINDOW ROUNDS", shapes=reductions.pooled_whole),
    "GlobalLpPool": row("WINDOW ROUNDS", shapes=reductions.pooled_whole),
    "GlobalMaxPool": row("SELECTS WINDOW", shapes=reductions.pooled_whole),
    "GridSample": row("ROUNDS"),
    "RoiAlign": row("ROUNDS"),
    "ImageDecoder": row(),
    "MaxPool": row("SELECTS WINDOW POSITIONS", shapes=reductions.pooled),
    "MaxRoiPool": row("SELECTS"),
    "MaxUnpool": row("WINDOW SIZED"),
    "Resize": row("SIZED ROUNDS", shapes=sizes.resized),
    "STFT": row("WINDOW SIZED ROUNDS", shapes=reductions.framed),
    # Quantisation and others
    "DequantizeLinear": row("ELEMENTWISE QUANTIZED ROUNDS"),
    "QuantizeLinear": row("ELEMENTWISE QUANTIZED ROUNDS"),
    "Det": row("ROUNDS"),
    "SwiGLU": row("ROUNDS"),
    "DynamicQuantizeLinear": row("QUANTIZED"),
    "RegexFullMatch": row(shapes=call.same),
    "RotaryEmbedding": row("ROUNDS", shapes=reductions.rotated),
    **dict.fromkeys("StringNormalizer StringSplit TfIdfVectorizer".split(), row()),
    # Deprecated: replaced by ScatterElements and Resize in Graphs
    "Scatter": row(shapes=call.same),
    "Upsample": row(),
}
"""The operators of the default domain."""

OTHERS: Mapping[str, Mapping[str, OperatorRow]] = {
    "ai.onnx.ml": {
        "ArrayFeatureExtractor": row("MOVES"),
        "Binarizer": row("ELEMENTWISE"),
        **dict.fromkeys(
            (
                "CastMap CategoryMapper DictVectorizer LabelEncoder LinearClassifier OneHotEncoder TreeEnsemble "
                "TreeEnsembleClassifier TreeEnsembleRegressor ZipMap"
            ).split(),
            row(),
        ),
        "FeatureVectorizer": row(shapes=sizes.side_by_side),
        **dict.fromkeys("Imputer Normalizer Scaler".split(), row(shapes=call.same)),
        "LinearRegressor": row(shapes=sizes.matrix),
        "SVMRegressor": row(shapes=sizes.matrix),
        "SVMClassifier": row(shapes=sizes.classified),
    },
    "ai.onnx.preview": {
        "FlexAttention": row("BODIES PRODUCT"),
    },
    "ai.onnx.preview.training": {
        **dict.fromkeys("Adagrad Adam Gradient Momentum".split(), row()),
    },
}
"""The operators of ONNX's other domains, by domain."""
