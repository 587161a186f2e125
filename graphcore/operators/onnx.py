"""The operators of ONNX, in their newest versions."""

from __future__ import annotations

from collections.abc import Mapping

from graphcore.operators.shapes import call, movement, reductions, sizes
from graphcore.operators.traits import (
    BODIES,
    BROADCASTS,
    CARRIES,
    COMMUTATIVE,
    COMPARES,
    ELEMENTWISE,
    EVERY,
    FILLS,
    JOINS,
    MOVES,
    POSITIONS,
    PRODUCT,
    QUANTIZED,
    RANDOM,
    RECURRENT,
    REDUCES,
    RING,
    ROUNDS,
    SELECTS,
    SIGN,
    SIZED,
    TESTS,
    TYPE_ONLY,
    VIEWS,
    WINDOW,
    OperatorRow,
)

ROWS: Mapping[str, OperatorRow] = {
    # Bodies
    **dict.fromkeys("If Loop Scan SequenceMap".split(), OperatorRow(BODIES)),
    # Sequences and optionals
    **dict.fromkeys(
        "ConcatFromSequence Optional OptionalGetElement SequenceAt SequenceErase".split(),
        OperatorRow(CARRIES),
    ),
    "OptionalHasElement": OperatorRow(CARRIES | TYPE_ONLY, data=()),
    "SequenceConstruct": OperatorRow(CARRIES, data=EVERY),
    "SequenceEmpty": OperatorRow(CARRIES, data=(), dtype_attribute="dtype"),
    "SequenceInsert": OperatorRow(CARRIES, data=(0, 1)),
    "SequenceLength": OperatorRow(CARRIES | TYPE_ONLY | POSITIONS, data=()),
    "SplitToSequence": OperatorRow(CARRIES | SIZED),
    # Movement of elements
    "CenterCropPad": OperatorRow(FILLS | SIZED, shapes=sizes.cropped),
    "Compress": OperatorRow(MOVES, shapes=movement.compressed),
    "Concat": OperatorRow(JOINS, data=EVERY, shapes=movement.joined),
    "DepthToSpace": OperatorRow(MOVES, shapes=movement.in_blocks),
    "Expand": OperatorRow(MOVES | SIZED, shapes=movement.expanded),
    "Flatten": OperatorRow(VIEWS | MOVES, shapes=movement.flattened),
    "Gather": OperatorRow(MOVES, shapes=movement.gathered),
    "GatherElements": OperatorRow(MOVES, shapes=movement.as_indices),
    "GatherND": OperatorRow(MOVES, shapes=movement.gathered_rows),
    "Identity": OperatorRow(MOVES | ELEMENTWISE),
    "OneHot": OperatorRow(JOINS | SIZED, data=(2,), shapes=sizes.one_hot),
    "Pad": OperatorRow(FILLS | SIZED, data=(0, 2), shapes=sizes.padded),
    "Reshape": OperatorRow(VIEWS | MOVES | SIZED, shapes=movement.reshaped),
    "ReverseSequence": OperatorRow(MOVES, shapes=call.same),
    "ScatterElements": OperatorRow(JOINS, data=(0, 2), shapes=call.same),
    "ScatterND": OperatorRow(JOINS, data=(0, 2), shapes=call.same),
    "Slice": OperatorRow(MOVES | SIZED, shapes=sizes.cut),
    "SpaceToDepth": OperatorRow(MOVES, shapes=movement.out_of_blocks),
    "Split": OperatorRow(MOVES | SIZED, shapes=movement.parts),
    "Squeeze": OperatorRow(VIEWS | MOVES | SIZED, shapes=movement.squeezed),
    "TensorScatter": OperatorRow(JOINS, data=(0, 1), shapes=call.same),
    "Tile": OperatorRow(MOVES | SIZED, shapes=movement.tiled),
    "Transpose": OperatorRow(MOVES, shapes=movement.transposed),
    "Trilu": OperatorRow(FILLS, shapes=call.same),
    "Unsqueeze": OperatorRow(VIEWS | MOVES | SIZED, shapes=movement.unsqueezed),
    "Where": OperatorRow(JOINS | ELEMENTWISE | BROADCASTS, data=(1, 2)),
    # Types, shapes and positions
    "NonMaxSuppression": OperatorRow(POSITIONS),
    "NonZero": OperatorRow(TESTS | POSITIONS, shapes=sizes.places),
    "Shape": OperatorRow(TYPE_ONLY | POSITIONS, shapes=sizes.shape),
    "Size": OperatorRow(TYPE_ONLY | POSITIONS, shapes=sizes.scalar),
    "TopK": OperatorRow(SELECTS | REDUCES | POSITIONS | SIZED, shapes=sizes.greatest),
    "Unique": OperatorRow(SELECTS | POSITIONS, shapes=sizes.unique),
    # Generated values
    "AffineGrid": OperatorRow(SIZED | ROUNDS),
    "Bernoulli": OperatorRow(ELEMENTWISE | RANDOM, dtype_attribute="dtype"),
    **dict.fromkeys(
        "BlackmanWindow HammingWindow HannWindow".split(),
        OperatorRow(SIZED | ROUNDS, dtype_attribute="output_datatype", shapes=sizes.window),
    ),
    "Constant": OperatorRow(),
    "ConstantOfShape": OperatorRow(SIZED, shapes=sizes.filled),
    "Dropout": OperatorRow(ELEMENTWISE | RANDOM),
    "EyeLike": OperatorRow(TYPE_ONLY, dtype_attribute="dtype", shapes=call.same),
    "MelWeightMatrix": OperatorRow(SIZED | ROUNDS, dtype_attribute="output_datatype", shapes=sizes.mel_weights),
    **dict.fromkeys("Multinomial RandomNormal RandomUniform".split(), OperatorRow(RANDOM, dtype_attribute="dtype")),
    "RandomNormalLike": OperatorRow(ELEMENTWISE | RANDOM | TYPE_ONLY, dtype_attribute="dtype"),
    "RandomUniformLike": OperatorRow(ELEMENTWISE | RANDOM | TYPE_ONLY, dtype_attribute="dtype"),
    "Range": OperatorRow(SIZED, shapes=sizes.counted),
    # Comparisons, logic and bits
    **dict.fromkeys("And Or Xor".split(), OperatorRow(ELEMENTWISE | BROADCASTS | COMMUTATIVE)),
    "BitShift": OperatorRow(ELEMENTWISE | BROADCASTS),
    **dict.fromkeys(
        "BitwiseAnd BitwiseOr BitwiseXor".split(),
        OperatorRow(ELEMENTWISE | BROADCASTS | COMMUTATIVE | RING),
    ),
    "BitwiseNot": OperatorRow(ELEMENTWISE | RING),
    "Equal": OperatorRow(ELEMENTWISE | BROADCASTS | COMMUTATIVE | COMPARES),
    **dict.fromkeys(
        "Greater GreaterOrEqual Less LessOrEqual".split(),
        OperatorRow(ELEMENTWISE | BROADCASTS | COMPARES),
    ),
    "IsInf": OperatorRow(ELEMENTWISE | TESTS),
    "IsNaN": OperatorRow(ELEMENTWISE | TESTS),
    "Not": OperatorRow(ELEMENTWISE),
    # Arithmetic
    "Abs": OperatorRow(SIGN | ELEMENTWISE),
    "Add": OperatorRow(ELEMENTWISE | BROADCASTS | COMMUTATIVE | RING | ROUNDS),
    "Mul": OperatorRow(ELEMENTWISE | BROADCASTS | COMMUTATIVE | RING | ROUNDS),
    "BitCast": OperatorRow(ELEMENTWISE, dtype_attribute="to"),
    "Cast": OperatorRow(ELEMENTWISE | ROUNDS, dtype_attribute="to"),
    **dict.fromkeys("CastLike Ceil Floor Round Sign".split(), OperatorRow(ELEMENTWISE)),
    "Clip": OperatorRow(SELECTS | ELEMENTWISE),
    "Relu": OperatorRow(SELECTS | ELEMENTWISE),
    **dict.fromkeys("Div Mean Mod Pow".split(), OperatorRow(ELEMENTWISE | BROADCASTS | ROUNDS)),
    "Max": OperatorRow(SELECTS | ELEMENTWISE | BROADCASTS | COMMUTATIVE, data=EVERY),
    "Min": OperatorRow(SELECTS | ELEMENTWISE | BROADCASTS | COMMUTATIVE, data=EVERY),
    "Neg": OperatorRow(SIGN | ELEMENTWISE | RING),
    "PRelu": OperatorRow(ELEMENTWISE | ROUNDS),
    "StringConcat": OperatorRow(ELEMENTWISE | BROADCASTS),
    "Sub": OperatorRow(ELEMENTWISE | BROADCASTS | RING | ROUNDS),
    "Sum": OperatorRow(ELEMENTWISE | BROADCASTS | RING | ROUNDS),
    # Functions of one element
    **dict.fromkeys(
        (
            "Acos Acosh Asin Asinh Atan Atanh Celu Cos Cosh Elu Erf Exp Gelu HardSigmoid HardSwish LeakyRelu Log Mish "
            "Reciprocal Selu Shrink Sigmoid Sin Sinh Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu"
        ).split(),
        OperatorRow(ELEMENTWISE | ROUNDS),
    ),
    # Reductions, running sums and norms
    "ArgMax": OperatorRow(REDUCES | POSITIONS, shapes=reductions.position),
    "ArgMin": OperatorRow(REDUCES | POSITIONS, shapes=reductions.position),
    "BatchNormalization": OperatorRow(ROUNDS, shapes=reductions.by_channels),
    "CumProd": OperatorRow(RING | REDUCES | ROUNDS, shapes=call.same),
    "CumSum": OperatorRow(RING | REDUCES | ROUNDS, shapes=call.same),
    **dict.fromkeys("GroupNormalization InstanceNormalization LRN".split(), OperatorRow(ROUNDS, shapes=call.same)),
    "Hardmax": OperatorRow(REDUCES, shapes=reductions.softmax),
    "LayerNormalization": OperatorRow(REDUCES | ROUNDS, shapes=reductions.from_axis),
    "LogSoftmax": OperatorRow(REDUCES | ROUNDS, shapes=reductions.softmax),
    "Softmax": OperatorRow(REDUCES | ROUNDS, shapes=reductions.softmax),
    "LpNormalization": OperatorRow(REDUCES | ROUNDS, shapes=reductions.along_axis),
    "RMSNormalization": OperatorRow(REDUCES | ROUNDS, shapes=reductions.along_axis),
    "MeanVarianceNormalization": OperatorRow(REDUCES | ROUNDS, shapes=call.same),
    "NegativeLogLikelihoodLoss": OperatorRow(ROUNDS),
    "SoftmaxCrossEntropyLoss": OperatorRow(ROUNDS),
    **dict.fromkeys(
        "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMean".split(),
        OperatorRow(REDUCES | SIZED | ROUNDS, shapes=reductions.reduced),
    ),
    "ReduceMax": OperatorRow(SELECTS | REDUCES | SIZED, shapes=reductions.reduced),
    "ReduceMin": OperatorRow(SELECTS | REDUCES | SIZED, shapes=reductions.reduced),
    **dict.fromkeys(
        "ReduceProd ReduceSum ReduceSumSquare".split(),
        OperatorRow(RING | REDUCES | SIZED | ROUNDS, shapes=reductions.reduced),
    ),
    # Products
    "Attention": OperatorRow(PRODUCT | ROUNDS),
    "LinearAttention": OperatorRow(PRODUCT | ROUNDS),
    "CausalConvWithState": OperatorRow(PRODUCT | WINDOW | ROUNDS),
    "DeformConv": OperatorRow(PRODUCT | WINDOW | ROUNDS),
    "Conv": OperatorRow(PRODUCT | WINDOW | ROUNDS, shapes=reductions.convolved(1)),
    "ConvInteger": OperatorRow(PRODUCT | WINDOW | QUANTIZED | ROUNDS, shapes=reductions.convolved(1)),
    "ConvTranspose": OperatorRow(PRODUCT | WINDOW | ROUNDS, shapes=reductions.transposed),
    "Einsum": OperatorRow(RING | PRODUCT | ROUNDS),
    **dict.fromkeys("GRU LSTM RNN".split(), OperatorRow(PRODUCT | RECURRENT | ROUNDS, shapes=reductions.recurrent)),
    "Gemm": OperatorRow(PRODUCT | ROUNDS, shapes=reductions.gemm),
    "MatMul": OperatorRow(RING | PRODUCT | ROUNDS, shapes=reductions.matmul()),
    "MatMulInteger": OperatorRow(PRODUCT | QUANTIZED | ROUNDS, shapes=reductions.matmul()),
    "QLinearConv": OperatorRow(PRODUCT | WINDOW | QUANTIZED | ROUNDS, shapes=reductions.convolved(3)),
    "QLinearMatMul": OperatorRow(PRODUCT | QUANTIZED | ROUNDS, shapes=reductions.matmul(3)),
    # Windows, images and signals
    "AveragePool": OperatorRow(WINDOW | ROUNDS, shapes=reductions.pooled),
    "LpPool": OperatorRow(WINDOW | ROUNDS, shapes=reductions.pooled),
    "Col2Im": OperatorRow(WINDOW | SIZED | ROUNDS, shapes=reductions.images),
    "DFT": OperatorRow(SIZED | ROUNDS, shapes=reductions.transformed),
    "GlobalAveragePool": OperatorRow(WINDOW | ROUNDS, shapes=reductions.pooled_whole),
    "GlobalLpPool": OperatorRow(WINDOW | ROUNDS, shapes=reductions.pooled_whole),
    "GlobalMaxPool": OperatorRow(SELECTS | WINDOW, shapes=reductions.pooled_whole),
    "GridSample": OperatorRow(ROUNDS),
    "RoiAlign": OperatorRow(ROUNDS),
    "ImageDecoder": OperatorRow(),
    "MaxPool": OperatorRow(SELECTS | WINDOW | POSITIONS, shapes=reductions.pooled),
    "MaxRoiPool": OperatorRow(SELECTS),
    "MaxUnpool": OperatorRow(WINDOW | SIZED),
    "Resize": OperatorRow(SIZED | ROUNDS, shapes=sizes.resized),
    "STFT": OperatorRow(WINDOW | SIZED | ROUNDS, shapes=reductions.framed),
    # Quantisation and others
    "DequantizeLinear": OperatorRow(ELEMENTWISE | QUANTIZED | ROUNDS),
    "QuantizeLinear": OperatorRow(ELEMENTWISE | QUANTIZED | ROUNDS),
    "Det": OperatorRow(ROUNDS),
    "SwiGLU": OperatorRow(ROUNDS),
    "DynamicQuantizeLinear": OperatorRow(QUANTIZED),
    "RegexFullMatch": OperatorRow(shapes=call.same),
    "RotaryEmbedding": OperatorRow(ROUNDS, shapes=reductions.rotated),
    **dict.fromkeys("StringNormalizer StringSplit TfIdfVectorizer".split(), OperatorRow()),
    # Deprecated: replaced by ScatterElements and Resize in Graphs
    "Scatter": OperatorRow(shapes=call.same),
    "Upsample": OperatorRow(),
}
"""The operators of the default domain."""

OTHERS: Mapping[str, Mapping[str, OperatorRow]] = {
    "ai.onnx.ml": {
        "ArrayFeatureExtractor": OperatorRow(MOVES),
        "Binarizer": OperatorRow(ELEMENTWISE),
        **dict.fromkeys(
            (
                "CastMap CategoryMapper DictVectorizer LabelEncoder LinearClassifier OneHotEncoder TreeEnsemble "
                "TreeEnsembleClassifier TreeEnsembleRegressor ZipMap"
            ).split(),
            OperatorRow(),
        ),
        "FeatureVectorizer": OperatorRow(shapes=sizes.side_by_side),
        **dict.fromkeys("Imputer Normalizer Scaler".split(), OperatorRow(shapes=call.same)),
        "LinearRegressor": OperatorRow(shapes=sizes.matrix),
        "SVMRegressor": OperatorRow(shapes=sizes.matrix),
        "SVMClassifier": OperatorRow(shapes=sizes.classified),
    },
    "ai.onnx.preview": {
        "FlexAttention": OperatorRow(BODIES | PRODUCT),
    },
    "ai.onnx.preview.training": {
        **dict.fromkeys("Adagrad Adam Gradient Momentum".split(), OperatorRow()),
    },
}
"""The operators of ONNX's other domains, by domain."""
