"""Keep Transposes and Casts away from operators that onnxruntime's optimisers cannot move them into or past.

MatmulTransposeFusion takes a Transpose into a product, past a Cast between them; if the Transpose moves the first axis
of several batches it reads a node that it removed, and the process crashes. TransposeOptimizer moves a Transpose past a
cubic Resize, whose kernel scales only the last two axes, and replaces two Transposes that cancel by an Identity, which
has no kernel for dtypes of 2 or 4 bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from graphcore.build import primitives as e
from graphcore.ir.graph import Graph
from graphcore.ir.state.frozen import change
from graphcore.ir.symbol import Node, Symbol, present
from graphcore.ir.transform.walk import node_of
from graphcore.runtime.lowering.passes import built_here, node_workaround, of_onnx, operand_workaround
from graphcore.types.dtypes import DType
from graphcore.types.tensor_types import TensorType, tensor_type

PRODUCTS = frozenset({"FusedMatMul", "MatMul"})
_HALVES = (DType.float16, DType.bfloat16)


def moves_first(perm: Sequence[int]) -> bool:
    """Return True if a permutation of three axes or more moves the first one."""
    return len(perm) > 2 and perm[0] != 0


def is_cast_transpose(x: Symbol | None) -> bool:
    """Return True if a value comes from a Transpose that moves the first axis, by a Cast that exists or will be added.

    The runtime adds casts around products of halves, for which it has no kernels.
    """
    cast = node_of(x, "Cast")
    if cast is None and (x is None or x.dtype not in _HALVES):
        return False
    source = node_of(x if cast is None else cast.inputs[0], "Transpose")
    if source is None:
        return False
    x = source.outputs[0]
    return x.shape.is_ranked and moves_first(source.attributes.get("perm") or range(x.rank)[::-1])


def _unsqueezed(graph: Graph, x: Symbol) -> Symbol:
    """Return a value with another axis in front."""
    return e.emit("Unsqueeze", x, graph.build.vector([0]))


def _insert_unsqueeze(graph: Graph, node: Node, place: int) -> Symbol:
    """Put an Unsqueeze and a Squeeze before an operand, which have no effect and which no optimiser removes."""
    x = present(node.inputs[place])
    return graph.build.emit("Squeeze", (_unsqueezed(graph, x), graph.build.vector([0])), x.type)


CAST = operand_workaround(
    "optimiser MatmulTransposeFusion of casts",
    "the optimiser crashes on a Cast between a Transpose of batches and a product",
    {"Transpose"},
    lambda graph: (node for node in graph.nodes if node.op_type in PRODUCTS),
    lambda node: [place for place, operand in enumerate(node.inputs) if is_cast_transpose(operand)],
    _insert_unsqueeze,
    in_standard=True,
    when="Transpose, Cast, MatMul",
)


def _cubic(graph: Graph) -> Iterator[Node]:
    for node in of_onnx(graph, {"Resize"}):
        x = node.inputs[0] if node.attributes.get("mode") == "cubic" else None
        if x is not None and x.shape.is_ranked and x.rank == 4:
            yield node


def _insert_depth_to_space(graph: Graph, node: Node, place: int) -> Symbol:
    """Put a DepthToSpace with blocks of 1 before a Resize: TransposeOptimizer moves nothing past it."""
    x = present(node.inputs[place])
    return graph.build.emit("DepthToSpace", (x,), x.type, {"blocksize": 1})


CUBIC = operand_workaround(
    "optimiser TransposeOptimizer",
    "the optimiser moves a Transpose past a Resize, which has a kernel for the last two axes only",
    {"Transpose"},
    _cubic,
    lambda node: (0,),
    _insert_depth_to_space,
    in_standard=True,
    when="Transpose and cubic Resize",
)


def _is_transpose_of_parts(symbol: Symbol | None) -> bool:
    """Return True if a value of a dtype of 2 or 4 bits, for which there is no Identity, comes from a Transpose."""
    node = node_of(symbol, "Transpose")
    return node is not None and 1 < node.outputs[0].dtype.bits < 8


def _repeated(graph: Graph) -> Iterator[Node]:
    outputs = {symbol.id for symbol in graph.outputs}
    for node in graph.nodes:
        if node.outputs[0].id in outputs and _is_transpose_of_parts(node.outputs[0]):
            x = node.inputs[0]
            while (cast := node_of(x, "Cast")) is not None:
                x = cast.inputs[0]
            if _is_transpose_of_parts(x):
                yield node


def _transpose_bytes(graph: Graph, node: Node) -> None:
    """Transpose an output as bytes: a Cast to the dtype of the output stays where the Transposes cancel."""
    (x,), y = node.inputs, node.outputs[0]
    assert x is not None
    dtype = DType.uint8 if y.dtype.is_unsigned else DType.int8
    wide = graph.build.emit("Cast", (x,), tensor_type(dtype, x.shape), {"to": dtype})
    result = graph.build.emit("Transpose", (wide,), tensor_type(dtype, y.shape), dict(node.attributes))
    change(node, op_type="Cast", inputs=(result,), attributes={"to": y.dtype})


REPEATED = node_workaround(
    "optimiser TransposeOptimizer of parts of bytes",
    "the optimiser replaces Transposes that cancel by an Identity, which has no kernel for dtypes of 2 or 4 bits",
    {"Transpose"},
    _repeated,
    _transpose_bytes,
    in_standard=True,
    when="Transpose of a Transpose",
)


# Keep Casts of narrow dtypes before a Shape: onnxruntime's optimiser drops them, and has no Shape of such dtypes.
#
# An Unsqueeze in between prevents that, and the Shape starts after the axis that it adds. Sessions disable the
# optimiser, for imported models too.


_REMOVABLE = frozenset("Add Cast Div Dropout Expand Identity Mul Slice Sub".split())
"""Operators that optimisers drop where they have no effect, such as a division by 1."""


def is_of_narrow(node: Node) -> bool:
    """Return True if a node is a Shape of a Cast from a dtype of 2 or 4 bits, or from float8.

    Operators that optimisers may drop can stand between the two.
    """
    x = node.inputs[0] if node.op_type == "Shape" and not node.domain else None
    while x is not None and isinstance(x.producer, Node):
        producer = x.producer
        if producer.op_type not in _REMOVABLE or producer.domain:
            return False
        x = next((s for s in producer.inputs if s is not None and isinstance(s.producer, Node)), producer.inputs[0])
        type_ = None if x is None or producer.op_type != "Cast" else x.type
        if isinstance(type_, TensorType) and (
            1 < type_.dtype.bits < 8 or (type_.dtype.is_float and type_.dtype.bits == 8)
        ):
            return True
    return False


def _shape_of_unsqueezed(graph: Graph, node: Node) -> None:
    (x,) = map(present, node.inputs)
    # Negative positions count from the end and stay.
    moved = {key: at + 1 if at >= 0 else at for key, at in node.attributes.items() if key in ("start", "end")}
    start = moved.pop("start", 1)
    if start < 0 and x.shape.is_ranked:
        start = max(start, -x.rank)
    change(node, inputs=(_unsqueezed(graph, x),), attributes={"start": start, **moved})


CAST_BEFORE_SHAPE = node_workaround(
    "optimiser PreShapeNodeElimination",
    "the optimiser drops the Cast, and Shape has no kernel for dtypes of 2 or 4 bits",
    {"Shape"},
    lambda graph: filter(is_of_narrow, built_here(graph, {"Shape"})),
    _shape_of_unsqueezed,
    when="Cast before Shape",
)
