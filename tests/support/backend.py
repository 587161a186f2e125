"""ONNX's own node tests: those that do not pass, with reasons, and `python -m tests.support.backend`, which runs them.

The process reads lines of a way (of `ways`) and the name of a test, and writes for each one line: how it went. Before
that, the names of all tests but those of `POOLS`. A line "collect pools" adds these and is answered with their names. A
crash ends no more than that process.
"""

from __future__ import annotations

import inspect
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx

import graphcore as gc
from graphcore import ops
from graphcore.arrays.external_data import Folder
from graphcore.conformance.runtimes import OrtModel
from graphcore.conformance.suites import node_modules, node_tests, outcome
from graphcore.onnx.proto.tensors import array_of, dense
from graphcore.onnx.proto.type_protos import read_type
from graphcore.types.tensor_types import Type
from tests.support.model_fields import decompiled, unchanged

_DRAWN = "The result is drawn at random, and what is expected was drawn by another generator."
_KERNEL = (
    "The kernel of float32, which third-party models keep for lengths that are powers of two, has errors of 1e-7 of "
    "the largest number where the transform is exactly 0, beyond the test's own tolerance of 1e-7."
)

_ROUNDED = (
    "What is expected has float32's rounding errors of 2e-7 where the transform is exactly 0, beyond the test's own "
    "tolerance of 1e-7; graphcore computes in float64."
)

_NEXT = (
    "The test's tolerance of 0.001 is less than the step from one number to the next, and what is expected was rounded "
    "at other steps than onnxruntime's kernels round at; graphcore's numbers are within two such steps."
)

RANDOM: tuple[str, ...] = (
    "test_bernoulli",
    "test_bernoulli_double",
    "test_bernoulli_double_expanded",
    "test_bernoulli_expanded",
    "test_bernoulli_seed",
    "test_bernoulli_seed_expanded",
    "test_training_dropout",
    "test_training_dropout_default",
    "test_training_dropout_default_mask",
    "test_training_dropout_mask",
)
"""Those that run and give other numbers, of the right shapes and dtypes."""

NEAR: tuple[str, ...] = (
    "test_attention_3d_causal_bf16",
    "test_attention_3d_causal_bf16_expanded",
    "test_attention_4d_attn_mask_causal_bf16",
    "test_attention_4d_attn_mask_causal_bf16_expanded",
    "test_attention_4d_causal_bf16",
    "test_attention_4d_causal_bf16_expanded",
    "test_attention_4d_causal_fp16_expanded",
    "test_attention_4d_causal_padded_kv_bf16",
    "test_attention_4d_causal_padded_kv_bf16_expanded",
    "test_attention_4d_padded_kv_bf16",
    "test_attention_4d_padded_kv_bf16_expanded",
)
"""Those that give numbers next to what is expected, or the very ones, as the processor's products happen to round."""

KNOWN: Mapping[str, str] = {
    **dict.fromkeys(RANDOM, _DRAWN),
    **dict.fromkeys(NEAR, _NEXT),
    "test_dft_inverse": _ROUNDED,
    "test_dft_inverse_opset19": _ROUNDED,
    "test_stft_with_window": _KERNEL,
}
"""By name the reason. All others pass, and none of these does: see `test_backend_suite`."""


# Models as graphs that calls of `ops.onnx` make of their nodes' own fields

_KINDS = onnx.AttributeProto


def rebuilt(model: onnx.ModelProto, types: Sequence[Type] | None = None) -> gc.Graph:
    """The model's graph, built anew: one call a node. types: its inputs', where not those that the model says."""
    proto = model.graph
    results = {t.name for t in proto.initializer}
    inputs = [i for i in proto.input if i.name not in results]
    graph = gc.Graph("rebuilt", types or [read_type(i.type) for i in inputs])
    with graph:
        values: dict[str, Any] = dict(zip([i.name for i in inputs], graph.inputs, strict=True))
        graph.output(_built(proto, values))
    return graph


def _built(proto: onnx.GraphProto, values: dict[str, Any]) -> list[Any]:
    for tensor in proto.initializer:
        values[tensor.name] = gc.Graph.current().constant(*array_of(tensor, Folder(None)))
    for node in proto.node:
        function = getattr(_MODULES[node.domain], node.op_type)
        results = [values[name] if name else None for name in node.input]
        by_name = {a.name: _attribute(a, values) for a in node.attribute}
        if "outputs" in inspect.signature(function).parameters:
            by_name["outputs"] = len(node.output)
        result = function(*results, **by_name)
        listed = result if isinstance(result, (list, tuple)) else [result]
        values.update(zip(node.output, listed, strict=True))
    return [values[o.name] for o in proto.output]


_MODULES = {
    "": ops.onnx,
    "ai.onnx": ops.onnx,
    "ai.onnx.ml": ops.onnx.ml,
    "ai.onnx.preview": ops.onnx.preview,
    "ai.onnx.preview.training": ops.onnx.preview.training,
}


def _attribute(attribute: onnx.AttributeProto, values: Mapping[str, Any]) -> Any:
    if attribute.type == _KINDS.GRAPH:
        return _body(attribute.g, values)
    if attribute.type == _KINDS.TENSOR:
        return array_of(attribute.t, Folder(None))[0]
    if attribute.type == _KINDS.SPARSE_TENSOR:
        return dense(attribute.sparse_tensor, Folder(None))[0]
    if attribute.type == _KINDS.TYPE_PROTO:
        return read_type(attribute.tp)
    return onnx.helper.get_attribute_value(attribute)


def _body(proto: onnx.GraphProto, values: Mapping[str, Any]) -> Callable[..., Any]:
    def body(*symbols: Any) -> list[Any]:
        return _built(proto, {**values, **dict(zip([i.name for i in proto.input], symbols, strict=True))})

    return body


# The process that runs tests

POOLS = frozenset({"averagepool", "lppool", "maxpool"})
"""Modules of ONNX that take seconds to import, because they compute what they expect in loops of Python."""


def collected(*, pools: bool | None = None) -> dict[str, Any]:
    """Return the tests of the modules in POOLS, those of the others, or all, by name."""
    return node_tests(*(name for name in node_modules() if pools is None or (name in POOLS) == pools))


def ways(folder: Path) -> Mapping[str, Callable[[onnx.ModelProto], Any]]:
    """By name what loads a model: graphcore or onnxruntime itself, the model or what is exported of it.

    `rebuilt`: the graph that calls of `ops.onnx` make of the model's nodes.
    """
    session = gc.InferenceSession()
    paths: dict[str, str] = {}

    def exported(model: onnx.ModelProto) -> str:
        name = model.graph.name
        if name not in paths:
            path = str(folder / f"{len(paths)}.onnx")
            # The promotion system, which is the default, has the graph written, and not the model that was read.
            gc.Graph.load(model, promotion="max").export(path, target="onnx")
            onnx.checker.check_model(path, full_check=_is_inferred(model))
            paths[name] = path
        return paths[name]

    return {
        "loaded": session.load,
        "rebuilt": lambda model: session.load(rebuilt(model)),
        "exported": lambda model: session.load(exported(model)),
        "bare": lambda model: OrtModel(model.SerializeToString()),
        "exported-bare": lambda model: OrtModel(exported(model)),
    }


def _is_inferred(model: onnx.ModelProto) -> bool:
    """Return True if ONNX's inference takes the model: it refuses ONNX's own body of MeanVarianceNormalization."""
    try:
        onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    except onnx.shape_inference.InferenceError:
        return False
    return True


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what kernels print is not an answer
    cases = collected(pools=False)
    print(json.dumps(list(cases)), file=answers, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        loads = ways(Path(folder))
        for line in sys.stdin:
            way, name = line.split()
            if way == "collect":
                more = collected(pools=True)
                cases |= more
                print(json.dumps(list(more)), file=answers, flush=True)
                continue
            if way in ("unchanged", "decompiled"):  # as a file: strings of a tensor that onnx made were seen to change
                check = unchanged if way == "unchanged" else decompiled
                result = check(onnx.ModelProto.FromString(cases[name].model.SerializeToString()))
            else:
                result = outcome(cases[name], loads[way])
            print(json.dumps(result), file=answers, flush=True)


if __name__ == "__main__":
    main()
