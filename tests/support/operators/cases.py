"""The cases of each operator: those that kernels are measured with, those of other operators, and graphs of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from onnx import helper

from graphcore import DType, Graph, TensorType
from graphcore.onnx.operators.calling import NAMED
from graphcore.onnx.schemas.catalogue import entry, names
from graphcore.promotion.max import DTYPES as PROMOTED
from tests.support.backend import rebuilt
from tools.kernel_probe import cases as measured
from tools.kernel_probe.case import SWEPT, Case, Operand, Question, Values, question

ML = "ai.onnx.ml"
DTYPES = (*PROMOTED, DType.int4, DType.uint4, DType.float8_e4m3fn, DType.float8_e5m2, DType.string)
"""The columns of the table: the 20 dtypes of the library's ops, and strings."""

FURTHER = (
    DType.int2, DType.uint2, DType.float4_e2m1, DType.float8_e8m0, DType.float8_e4m3fnuz, DType.float8_e5m2fnuz,
    DType.float6_e2m3fn, DType.float6_e3m2fn,
)  # fmt: skip
"""The dtypes of ONNX that the library's ops have not and models may have."""


def _t(*shape: int, values: Values = (1, 2, 1, 3), dtype: DType | str = SWEPT) -> Operand:
    return Operand(shape, values, dtype)


def _case(*inputs: Operand | None, outputs: int = 1, only: str = "", **attributes: Any) -> Case:
    return Case(inputs, attributes, outputs, frozenset(map(DType.of, only.split())) or None)


_NOT_TEXT = " ".join(d.name for d in (*DTYPES, *FURTHER) if d is not DType.string)
_NUMBERS = "int32 int64 float32 float64"
_TREE: dict[str, Any] = {
    "nodes_treeids": [0, 0, 0],
    "nodes_nodeids": [0, 1, 2],
    "nodes_featureids": [1, 0, 0],
    "nodes_values": [1.5, 0.0, 0.0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
    "nodes_truenodeids": [1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0],
}


_CONVERTED = " ".join(d.name for d in FURTHER)
_BITS = Operand((2, 3), (1, 0, 1, 1))
_F32 = Operand((2, 3), (1, 2, 1, 4), DType.float32)

_BEYOND: dict[str, tuple[Case, ...]] = {
    "Cast": (
        *measured.CASES["Cast"],
        _case(_BITS, only=_CONVERTED, to=DType.float32.onnx),
        _case(_F32, only=_CONVERTED, to=SWEPT),
    ),
    "CastLike": (
        *measured.CASES["CastLike"],
        _case(_BITS, _F32, only=_CONVERTED),
        _case(_F32, _BITS, only=_CONVERTED),
    ),
    "CausalConvWithState": (
        _case(_t(1, 2, 4), _t(2, 1, 2), _t(2), _t(1, 2, 1), outputs=2),
        _case(_t(1, 2, 4), _t(2, 1, 2), outputs=2, activation="silu"),
    ),
    "LinearAttention": (
        _case(
            *[_t(1, 3, 4, values=(0.5, 0.25, -0.5, 1))] * 3, outputs=2, q_num_heads=2, kv_num_heads=2,
            update_rule="linear",
        ),
    ),
    "GridSample": (
        _case(_t(1, 1, 3, 3), Operand((1, 2, 2, 2), (0,), DType.float32), only=_NOT_TEXT),
        _case(_t(1, 1, 3, 3), Operand((1, 2, 2, 2), (0, -1, 0.5, 2), DType.float32), mode="nearest"),
    ),
    "Scatter": (_case(_t(2, 3), Operand((2, 2), (0, 1, 1, 0), DType.int64), _t(2, 2), axis=1),),
    "StringSplit": (_case(_t(3), outputs=2, delimiter="c"),),
    "SwiGLU": (_case(_t(2, 3), _t(2, 3, values=(1, 0.5, 2))),),
    "Upsample": (_case(_t(1, 1, 2, 2), Operand((4,), (1, 1, 2, 2), DType.float32, True)),),
}  # fmt: skip

_LEARNED: dict[str, tuple[Case, ...]] = {
    "ArrayFeatureExtractor": (_case(_t(2, 3), Operand((2,), (0, 2), DType.int64)),),
    "Binarizer": (_case(_t(2, 3), threshold=1.5),),
    "CategoryMapper": (
        _case(_t(2, 2), only="int64", cats_int64s=[1, 2, 3], cats_strings=["a", "b", "c"]),
        _case(_t(2, 2), only="string", cats_int64s=[1, 2, 3], cats_strings=["b", "c", "d"]),
    ),
    "FeatureVectorizer": (_case(_t(2, 2), _t(2, 1), inputdimensions=[2, 1]),),
    "Imputer": (
        _case(_t(2, 3), only="float32 float64", imputed_value_floats=[9.0], replaced_value_float=2.0),
        _case(_t(2, 3), only="int32 int64", imputed_value_int64s=[9], replaced_value_int64=2),
    ),
    "LabelEncoder": (
        _case(_t(2, 3), only="int64", keys_int64s=[1, 2], values_floats=[0.5, 1.5], default_float=9.0),
        _case(_t(2, 3), only="float32", keys_floats=[1.0, 2.0], values_int64s=[10, 20], default_int64=30),
        _case(_t(2, 3), only="string", keys_strings=["b", "c"], values_int64s=[10, 20], default_int64=30),
        _case(
            _t(2, 3), only="float64 int16 int32", keys_tensor=_t(2, values=(1, 2)), values_tensor=_t(2, values=(5, 6)),
            default_tensor=_t(1, values=(7,)),
        ),
    ),
    "LinearClassifier": (
        _case(_t(2, 3), outputs=2, coefficients=[0.5, 1.0, -1.0, 0.25, 0.5, 1.0], intercepts=[0.5, -0.5],
              classlabels_ints=[3, 4]),
    ),
    "LinearRegressor": (_case(_t(2, 3), coefficients=[0.5, 1.0, -1.0], intercepts=[0.25]),),
    "Normalizer": tuple(_case(_t(2, 3), norm=norm) for norm in ("MAX", "L1", "L2")),
    "OneHotEncoder": (
        _case(_t(2, 2), only=_NUMBERS, cats_int64s=[1, 2, 3]),
        _case(_t(2, 2), only="string", cats_strings=["b", "c", "d"]),
    ),
    "Scaler": (_case(_t(2, 3), offset=[1.0], scale=[0.5]),),
    "SVMClassifier": (
        _case(_t(2, 2), outputs=2, coefficients=[1.0, -1.0], support_vectors=[0.5, 1.0, 2.0, -1.0], rho=[0.25],
              vectors_per_class=[1, 1], classlabels_ints=[0, 1], kernel_type="RBF", kernel_params=[0.5, 0.0, 0.0]),
    ),
    "SVMRegressor": (
        _case(_t(2, 2), coefficients=[1.0, -1.0], support_vectors=[0.5, 1.0, 2.0, -1.0], rho=[0.25], n_supports=2,
              kernel_type="LINEAR", kernel_params=[0.0, 0.0, 0.0]),
    ),
    "TreeEnsemble": (
        _case(_t(2, 2), n_targets=1, nodes_featureids=[1], nodes_splits=_t(1, values=(1.5,)), nodes_truenodeids=[0],
              nodes_modes=Operand((1,), (0,), DType.uint8), nodes_trueleafs=[1], nodes_falsenodeids=[1],
              nodes_falseleafs=[1], leaf_targetids=[0, 0], leaf_weights=_t(2, values=(2, 3)), tree_roots=[0]),
    ),
    "TreeEnsembleClassifier": (
        _case(_t(2, 2), outputs=2, **_TREE, class_treeids=[0, 0], class_nodeids=[1, 2], class_ids=[0, 1],
              class_weights=[1.0, 1.0], classlabels_int64s=[3, 4]),
    ),
    "ZipMap": (_case(_t(2, 2), classlabels_int64s=[3, 4]),),
    "TreeEnsembleRegressor": (
        _case(_t(2, 2), **_TREE, target_treeids=[0, 0], target_nodeids=[1, 2], target_ids=[0, 0],
              target_weights=[2.0, 3.0], n_targets=1),
    ),
}  # fmt: skip

_RATE, _COUNT = Operand((), (0.5,), DType.float32), Operand((), (2,), DType.int64)

_PREVIEW: dict[str, tuple[Case, ...]] = {
    "Adagrad": (_case(_RATE, _COUNT, *[_t(3)] * 3, outputs=2, decay_factor=0.5),),
    "Adam": (_case(_RATE, _COUNT, *[_t(3)] * 4, outputs=3),),
    "FlexAttention": (_case(*[_t(1, 2, 3, 4, values=(0.5, 0.25, -0.5, 1))] * 3),),
    "Gradient": (_case(_t(2, 3), only="float16 float32 float64", xs=["x0"], y="x0"),),
    "Momentum": (
        _case(_RATE, _COUNT, *[_t(3)] * 3, outputs=2, alpha=0.5, beta=0.25, mode="nesterov", norm_coefficient=0.5),
    ),
}

MAPS = frozenset({"CastMap", "DictVectorizer"})
"""Operators that take a map and no tensor: only models that others wrote have inputs of such types."""


def cases_of(name: str, domain: str = "") -> tuple[Case, ...]:
    """All cases of an operator."""
    if domain:
        return _LEARNED[name] if domain == ML else _PREVIEW[name]
    return _BEYOND.get(name) or measured.CASES[name]


def every() -> Iterator[tuple[str, str]]:
    """All operators of ONNX by domain and name."""
    yield from (("", name) for name in names(""))
    for domain in (ML, "ai.onnx.preview", "ai.onnx.preview.training"):
        yield from ((domain, name) for name in names(domain))


# Graphs of one operator's cases: one call of `ops.onnx`, as its model of one node says


@dataclass(frozen=True, slots=True)
class Place:
    """An operator and a dtype."""

    domain: str
    name: str
    dtype: DType

    @property
    def cases(self) -> list[Case]:
        """Those that are for the dtype; where none is, one that ONNX refuses in it.

        A dtype that is another one in a file is that of an operand: attributes cannot say it.
        """
        if self.name in MAPS:
            return []
        cases = cases_of(self.name, self.domain)
        own = {self.dtype, self.dtype.storage}
        results = [case for case in cases if case.only is None or own & case.only] or [cases[0]]
        return [case for case in results if self.dtype not in NAMED or self._is_fed(case)]

    def _is_fed(self, case: Case) -> bool:
        return any(dtype is self.dtype for _, dtype in self.question(case).feeds.values())

    def question(self, case: Case, dtype: DType | None = None) -> Question:
        """The model of the case at the operator's newest version, in the dtype or another one."""
        requested = question(self.name, case, dtype or self.dtype)
        version = entry(self.name, self.domain).version
        if self.domain:
            requested.model.graph.node[-1].domain = self.domain
            requested.model.opset_import.append(helper.make_opsetid(self.domain, version))
        else:
            requested.model.opset_import[0].version = version
        return requested

    def graph(self, case: Case, *, named: bool = False) -> Graph:
        """Build the call. Raises the call's errors. named: dims of the operands have names for their sizes."""
        requested = self.question(case)
        types = [
            TensorType(dtype, [f"d{size}" if named else size for size in array.shape])
            for array, dtype in requested.feeds.values()
        ]
        return rebuilt(requested.model, types)
