"""Tensors that do not match their declarations: refused before memory is allocated for them."""

from __future__ import annotations

import tracemalloc

import onnx
import pytest
from onnx import TensorProto, helper

import graphcore as gc
from graphcore import Graph
from graphcore.errors import GraphcoreError, ModelError, ResourceLimitError, RunError
from tests.support.onnx_models import FLOAT, INT64, model, refused, tensor, value


def model_with(weight: onnx.TensorProto) -> onnx.ModelProto:
    """A model that gives back a tensor."""
    return model([helper.make_node("Identity", ["w"], ["y"])], [], [value("y", weight.data_type, None)], [weight])


PLAIN: dict[int, tuple[str, int]] = {
    TensorProto.FLOAT: ("float_data", 4),
    TensorProto.UINT8: ("int32_data", 1),
    TensorProto.INT8: ("int32_data", 1),
    TensorProto.UINT16: ("int32_data", 2),
    TensorProto.INT16: ("int32_data", 2),
    TensorProto.INT32: ("int32_data", 4),
    TensorProto.INT64: ("int64_data", 8),
    TensorProto.BOOL: ("int32_data", 1),
    TensorProto.FLOAT16: ("int32_data", 2),
    TensorProto.DOUBLE: ("double_data", 8),
    TensorProto.UINT32: ("uint64_data", 4),
    TensorProto.UINT64: ("uint64_data", 8),
    TensorProto.BFLOAT16: ("int32_data", 2),
    TensorProto.FLOAT8E4M3FN: ("int32_data", 1),
    TensorProto.FLOAT8E5M2: ("int32_data", 1),
}
PACKED = (TensorProto.INT4, TensorProto.UINT4)
SIZES: list[tuple[list[int], int]] = [
    ([3], 2),
    ([3], 4),
    ([], 0),
    ([], 2),
    ([0], 1),
    ([2, 2], 3),
    ([2**62, 4], 0),
    ([2**62, 4], 2),
    ([2**32, 2**32], 0),
    ([2**63 - 1], 1),
    ([2**63 - 1] * 8, 8),
    ([2**16] * 4, 0),
]


@pytest.mark.parametrize(("dims", "count"), SIZES, ids=str)
@pytest.mark.parametrize("dtype", PLAIN, ids=TensorProto.DataType.Name)
def test_tensor_is_refused_when_it_does_not_hold_what_its_dims_say(dtype: int, dims: list[int], count: int) -> None:
    field, size = PLAIN[dtype]
    refused(model_with(tensor("w", dtype, dims, bytes(count * size))), "tensor 'w'", f"holds {count * size} bytes")
    refused(model_with(tensor("w", dtype, dims, None, **{field: [0] * count})), "tensor 'w'", f"holds {count} elements")


@pytest.mark.parametrize("dtype", PLAIN, ids=TensorProto.DataType.Name)
def test_tensor_is_refused_when_its_bytes_are_not_whole_number_of_elements(dtype: int) -> None:
    _, size = PLAIN[dtype]
    for extra in {1, size - 1} - {0}:
        refused(model_with(tensor("w", dtype, [2], bytes(2 * size + extra))), "tensor 'w'")


@pytest.mark.parametrize(("dims", "count"), [([3], 1), ([3], 3), ([4], 4), ([1], 2), ([], 0), ([2**62, 4], 0)], ids=str)
@pytest.mark.parametrize("dtype", PACKED, ids=TensorProto.DataType.Name)
def test_packed_tensor_is_refused_when_it_does_not_hold_what_its_dims_say(
    dtype: int, dims: list[int], count: int
) -> None:
    refused(model_with(tensor("w", dtype, dims, bytes(count))), "tensor 'w'", f"holds {count} bytes")
    refused(model_with(tensor("w", dtype, dims, int32_data=[0] * count)), "tensor 'w'", f"holds {count} elements")


@pytest.mark.parametrize("dims", [[-1], [-2, -2], [0, -1], [-(2**63)]], ids=str)
@pytest.mark.parametrize("dtype", [*PLAIN, *PACKED, TensorProto.STRING], ids=TensorProto.DataType.Name)
def test_tensor_is_refused_when_a_dim_is_negative(dtype: int, dims: list[int]) -> None:
    refused(model_with(tensor("w", dtype, dims, b"")), "tensor 'w'", str(dims))


@pytest.mark.parametrize("dims", [[2**62, 0, 4], [0, 2**63 - 1, 2**63 - 1]], ids=str)
def test_tensor_without_elements_is_refused_when_its_other_dims_are_absurd(dims: list[int]) -> None:
    refused(model_with(tensor("w", FLOAT, dims, b"")), "tensor 'w'", "dims")


@pytest.mark.parametrize("dtype", [0, 14, 15, 100, -1, 2**31 - 1])
def test_tensor_is_refused_when_its_dtype_is_unknown(dtype: int) -> None:
    proto = model([helper.make_node("Identity", ["w"], ["y"])], [], [value("y")], [tensor("w", dtype, [2], bytes(8))])
    refused(proto, "tensor 'w'")


def test_tensor_is_refused_when_it_has_too_many_dims() -> None:
    refused(model_with(tensor("w", FLOAT, [1] * 100, bytes(4))), "tensor 'w'", "100")


def test_tensor_in_the_wrong_field_is_refused() -> None:
    refused(model_with(tensor("w", FLOAT, [2], double_data=[1.0, 2.0])), "holds 0 elements")


def test_strings_need_not_be_text_to_be_told_from_a_wrong_count() -> None:
    refused(model_with(tensor("w", TensorProto.STRING, [3], string_data=[b"\xff", b"a"])), "holds 2 elements")
    refused(model_with(tensor("w", TensorProto.STRING, [1], b"abc")), "holds 0 elements")


def test_strings_that_are_not_text_are_handed_on_and_fail_when_read() -> None:
    loaded = gc.InferenceSession().load(model_with(tensor("w", TensorProto.STRING, [1], string_data=[b"\xff\xfe"])))
    with pytest.raises(RunError, match="utf-8"):
        loaded()


@pytest.mark.parametrize(
    ("values", "indices", "dims", "word"),
    [
        ([1.0], [5], [4], "out of"),
        ([1.0], [-1], [4], "out of"),
        ([1.0], [2**63 - 1], [4], "out of"),
        ([1.0], [0], [2**40], "elements"),
        ([1.0], [0], [2**62, 2**62], "elements"),
        ([1.0], [0], [-4], "that ONNX does not allow"),
        ([1.0, 2.0], [0], [4], "that ONNX does not allow"),
        ([1.0], [0], [0], "out of"),
    ],
)
def test_sparse_tensor_is_refused_when_it_does_not_fit(
    values: list[float], indices: list[int], dims: list[int], word: str
) -> None:
    sparse = onnx.SparseTensorProto(dims=dims)
    sparse.values.CopyFrom(helper.make_tensor("w", FLOAT, [len(values)], values))
    sparse.indices.CopyFrom(helper.make_tensor("i", INT64, [len(indices)], indices))
    proto = model_with(tensor("unused", FLOAT, [0], b""))
    proto.graph.ClearField("initializer")
    proto.graph.sparse_initializer.append(sparse)
    kind = ResourceLimitError if len(dims) == 2 else ModelError
    refused(proto, word, "'w'" if kind is ModelError else "sparse tensor", kind=kind)


def test_sparse_tensor_of_pairs_is_refused_when_one_is_out_of_range() -> None:
    sparse = onnx.SparseTensorProto(dims=[2, 2])
    sparse.values.CopyFrom(helper.make_tensor("w", FLOAT, [1], [1.0]))
    sparse.indices.CopyFrom(helper.make_tensor("i", INT64, [1, 2], [0, 2]))
    refused(model([helper.make_node("Constant", [], ["y"], sparse_value=sparse)], []), "'w'", "out of")


def test_refusing_a_huge_tensor_takes_no_memory() -> None:
    proto = model_with(tensor("w", FLOAT, [2**40], bytes(8))).SerializeToString()
    tracemalloc.start()
    with pytest.raises(GraphcoreError) as caught:
        Graph.load(proto)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert type(caught.value) is ModelError
    assert peak < 4 << 20
