/** Families of operators: one calm colour each. */
export const FAMILIES = ["matrix", "activation", "norm", "shape", "math", "reduce", "cast", "control", "quantize", "end"] as const;
export type Family = (typeof FAMILIES)[number];

const MEMBERS: [Family, string][] = [
  ["matrix", "Conv ConvTranspose ConvInteger Gemm MatMul MatMulInteger MatMulNBits FusedMatMul FusedConv Einsum Attention GroupQueryAttention MultiHeadAttention LSTM GRU RNN DeformConv QLinearConv QLinearMatMul"],
  ["activation", "Relu LeakyRelu PRelu Elu Selu Celu Gelu FastGelu BiasGelu QuickGelu Sigmoid HardSigmoid HardSwish Swish Mish Tanh Softplus Softsign Softmax LogSoftmax Hardmax ThresholdedRelu Erf Clip"],
  ["norm", "BatchNormalization LayerNormalization SimplifiedLayerNormalization SkipLayerNormalization RMSNormalization InstanceNormalization GroupNormalization LpNormalization LRN MeanVarianceNormalization Dropout"],
  ["shape", "Reshape Transpose Squeeze Unsqueeze Flatten Concat Split Slice Gather GatherElements GatherND Scatter ScatterElements ScatterND Expand Tile Pad Shape Size Identity Resize Upsample DepthToSpace SpaceToDepth Constant ConstantOfShape Range OneHot NonZero Compress ReverseSequence EyeLike Trilu TopK"],
  ["reduce", "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceSumSquare ArgMax ArgMin CumSum MaxPool AveragePool GlobalAveragePool GlobalMaxPool LpPool"],
  ["cast", "Cast CastLike BitCast"],
  ["control", "If Loop Scan SequenceMap"],
  ["quantize", "QuantizeLinear DequantizeLinear DynamicQuantizeLinear"],
];
const FAMILY = new Map(MEMBERS.flatMap(([family, ops]) => ops.split(" ").map((op): [string, Family] => [op, family])));

export function familyOf(op: string): Family {
  return FAMILY.get(op) ?? "math";
}
