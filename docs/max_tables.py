"""docs/max.md: every name of the MAX Graph API, from max_names.txt, with its counterpart here."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import graphcore as gc

NAMES = Path(__file__).parent / "max_names.txt"

INTRODUCTION = """\
# The names of the MAX Graph API

Every name of the two generations of that interface (Python 26.7 on one device, and Mojo 24.3 to 25.3) and what it is
called here, `gc` being `graphcore`. A name stands for all its overloads; *none* comes with the reason. This page is
made by `python docs/make_tables.py` from `docs/max_names.txt` and `docs/max_tables.py`, and
`tests/project/test_max_names.py` looks up every counterpart.

Where the two differ: reductions go over all axes unless `axis` says otherwise, as in the array API standard (MAX: the
last one), and dtypes promote as [promotion/max.md](promotion/max.md) has it.
"""

TITLES = {
    "ops": "Python: ops",
    "Graph": "Python: Graph",
    "TensorValue": "Python: TensorValue",
    "Dim": "Python: Dim",
    "Shape": "Python: Shape",
    "InferenceSession": "Python: InferenceSession",
    "Model": "Python: Model",
    "Weights": "Python: Weights",
}

HOMES = {
    "ops": "ops.",
    "Graph": "Graph.",
    "TensorValue": "Symbol.",
    "Dim": "Dim.",
    "Shape": "Shape.",
    "InferenceSession": "InferenceSession.",
    "Model": "Model.",
    "Weights": "checkpoints.Tensors.",
    "checkpoint/tensor_dict.mojo": "checkpoints.",
    "graph.mojo": "",
    "symbol.mojo": "",
    "type.mojo": "",
}
"""The prefixes of a section's names that have no line of their own below; ops elsewhere."""

_IMMUTABLE = "- | a Shape is immutable, as a key of what is remembered by type; "
_CAPTURED = (
    'InferenceSession | `provider_options={"cuda": {"enable_cuda_graph": True}}` lets the runtime capture the first run'
    " and replay it afterwards"
)
_ENCODED = 'ops.quantize, quantization.encode | by name: encoding="'

COUNTERPARTS: dict[str, dict[str, str]] = {
    "ops": {
        "call": "function, Graph.subgraph | what they give is called like a Python function",
        "constant_external": "Graph.weight | by reference, mapped files included; written as external data",
        "custom": "custom_op | declares the operator; calling what it gives emits it",
        "print": "ops.print, Model.debug | marks the value for a debug run; an ordinary run prints nothing",
        "buffer_create": "ops.buffer_create, Buffer",
    },
    "Graph": {
        "add_subgraph": "Graph.subgraph, function",
        "add_weight": "Graph.weight",
        "always_ready_chain": "- | chains order effects on memory between devices; here values never change, and data"
        " alone orders nodes",
        "debug": "Graph.__str__, Model.debug | the text of the graph, and values from inside of a run",
        "kernel_libraries_paths": "custom_op | an operator has a body of ops or a Python function, and no library",
        "module": "Graph.to_onnx | the graph in the form that others read: ONNX in place of MLIR",
        "profile_scope": "Graph.layer, Profile.by_layer | layers name nodes, and the profile sums times by them",
    },
    "TensorValue": {
        "tensor": "Symbol.tensor_type | a Symbol stands for the tensor itself",
        "to": "Symbol.to_device",
    },
    "Dim": {"__ne__": "Dim.__eq__ | Python negates it"},
    "Shape": {
        "__delitem__": _IMMUTABLE + "slices leave dims out: `shape[:i] + shape[i + 1:]`",
        "__iadd__": "Shape.__add__ | `shape += dims` makes a new Shape",
        "__imul__": "Shape.__mul__ | `shape *= n` makes a new Shape",
        "__reversed__": "Shape.__getitem__ | `reversed(shape)` goes through it, and `shape[::-1]` is a Shape",
        "__setitem__": _IMMUTABLE + "`Shape([*shape[:i], dim, *shape[i + 1:]])`",
        "append": _IMMUTABLE + "`shape + [dim]`",
        "clear": _IMMUTABLE + "`Shape()`",
        "copy": "Shape | one that cannot change needs no copy; `Shape(shape)` gives it",
        "extend": _IMMUTABLE + "`shape + dims`",
        "insert": _IMMUTABLE + "`Shape([*shape[:i], dim, *shape[i:]])`",
        "pop": _IMMUTABLE + "`shape[-1]` and `shape[:-1]`",
        "remove": _IMMUTABLE + "`Shape(d for d in shape if d != dim)`",
        "reverse": _IMMUTABLE + "`shape[::-1]`",
        "sort": _IMMUTABLE + "`sorted(shape)` where the sizes are known",
    },
    "InferenceSession": {
        "compile": "InferenceSession.load | there is no separate step: the runtime prepares kernels as it loads",
        "compile_async": "InferenceSession.load | in a thread: `asyncio.to_thread(session.load, graph)`",
        "debug": "Model.debug | a debug run is asked for when a model is called",
        "devices": "InferenceSession.providers",
        "init": "InferenceSession.load",
        "init_all": "InferenceSession.load | a graph at a time",
        "load_all": "InferenceSession.load | a graph at a time",
        "set_debug_print_options": "- | a debug run returns arrays, which NumPy prints: `numpy.set_printoptions`",
    },
    "Model": {
        "capture": _CAPTURED,
        "debug_verify_replay": _CAPTURED,
        "input_metadata": "Model.inputs",
        "kernel_summaries": "Model.placement, Model.profile",
        "output_metadata": "Model.outputs",
        "release_captured_graph": "- | what the runtime captured goes with the session: drop the Model",
        "release_weights": "- | weights lie in the caller's arrays; they are free when the Model is dropped",
        "reload": "InferenceSession.load | `weights=` are the arrays to load a graph with",
        "replay": _CAPTURED,
        "signature": "Model.inputs, Model.outputs",
    },
    "Weights": {
        "__getattr__": "checkpoints.Tensors.__getitem__ | names are whole strings: `tensors['layer.0.weight']`",
        "allocate": "Graph.weight | takes an array of the mapping without a copy",
        "allocated_weights": "Graph.weights",
        "data": "checkpoints.Tensors.__getitem__ | an array over the mapped file; `dequantize=False` leaves blocks",
        "exists": "checkpoints.Tensors.__contains__",
        "name": "checkpoints.Tensors.keys",
        "load_weights": "load_tensors | safetensors, an index of several files, GGUF",
    },
    "checkpoint/metadata.mojo": {
        "VersionInfo": "- | a checkpoint is a safetensors file, whose format has one version",
        "VersionInfo.major_version": "- | safetensors has one version",
        "VersionInfo.minor_version": "- | safetensors has one version",
        "VersionInfo.__str__": "- | safetensors has one version",
        "current_version": "- | safetensors has one version",
        "read_version": "load_tensors | refuses a GGUF file of a version that it does not know; safetensors has one",
    },
    "checkpoint/save_load.mojo": {"save": "save_tensors", "load": "load_tensors"},
    "checkpoint/tensor_dict.mojo": {
        "TensorDict": "checkpoints.Tensors | what is loaded; what is saved may be any mapping, a dict for one",
        "TensorDict.__init__": "save_tensors | takes a plain dict of arrays",
        "TensorDict.__setitem__": "save_tensors | takes a plain dict of arrays: `tensors[name] = array`",
        "TensorDict.set": "save_tensors | takes a plain dict of arrays",
        "TensorDict.get": "checkpoints.Tensors.get",
        "TensorDict.pop": "save_tensors | takes a plain dict of arrays; what is loaded is read-only",
        "TensorDict.__len__": "checkpoints.Tensors.__len__",
        "TensorDict.items": "checkpoints.Tensors.items",
        "TensorDict.keys": "checkpoints.Tensors.keys",
        "TensorDict.__iter__": "checkpoints.Tensors.__iter__",
        "TensorDict.__str__": "checkpoints.Tensors.__repr__",
    },
    "error.mojo": {
        "error": "errors.GraphcoreError | one class a kind of error; operands show their types and lines",
        "format_error": "errors.GraphcoreError.__str__",
        "format_system_stack": "- | Python's traceback is there; errors and `Symbol.line` name the user's own line",
    },
    "graph.mojo": {
        "LayerInfo": "Graph.layer, ir.symbol.Node.layer | a layer is the path that its nodes have",
        "LayerInfo.name": "Graph.current_layer, ir.symbol.Node.layer",
        "LayerInfo.op_count": "- | nodes are numbered over the whole graph, which keeps names unique",
        "Graph.debug_str": "Graph.__str__",
        "Graph.quantize": "ops.quantize, quantize | a tensor, or the weights of a whole graph",
        "Graph.__init__": "Graph | outputs are set by `Graph.output`; `Graph.load` reads a file",
    },
    "ops/convolution.mojo": {},
    "ops/custom_ops.mojo": {"custom": "custom_op | declares the operator; calling what it gives emits it"},
    "ops/lists.mojo": {"list": "ops.list_of, ops.list_empty"},
    "quantization/encodings.mojo": {
        "BFloat16Encoding": "DType.bfloat16 | a dtype like any other",
        "BFloat16Encoding.quantize": "ops.cast, Graph.constant | to DType.bfloat16; no bytes stand for floats",
        "BFloat16Encoding.id": "DType.name",
        "Float32Encoding": "DType.float32 | a dtype like any other",
        "Float32Encoding.quantize": "ops.cast, Graph.constant | to DType.float32; no bytes stand for floats",
        "Float32Encoding.id": "DType.name",
        **{
            f"{name}Encoding{part}": counterpart
            for name in ("Q4_0", "Q4_K", "Q5_K", "Q6_K")
            for part, counterpart in {
                "": f'quantization.ENCODINGS | `ENCODINGS["{name.lower()}"]`',
                ".quantize": f'{_ENCODED}{name.lower()}"',
                ".id": "quantization.Encoding.name",
            }.items()
        },
        "QK_K": "quantization.Encoding.block | 256 for q4_k, q5_k and q6_k",
        "K_SCALE_SIZE": "quantization.Encoding.block_bytes | of a whole block, the 12 bytes of scales among them",
    },
    "quantization/quantization_encoding.mojo": {
        "QuantizationEncoding.quantize": "ops.quantize, quantization.encode",
        "QuantizationEncoding.id": "quantization.Encoding.name",
    },
    "symbol.mojo": {
        "SymbolicSlice": "ops.slice, Symbol.__getitem__ | Python's own slices may hold Symbols: `x[start:stop:step]`",
        "SymbolicSlice.start": "Symbol.__getitem__ | `slice.start`",
        "SymbolicSlice.stop": "Symbol.__getitem__ | `slice.stop`",
        "SymbolicSlice.step": "Symbol.__getitem__ | `slice.step`",
        "SymbolicSlice.__init__": "Symbol.__getitem__ | `slice(start, stop, step)`",
        "Symbol.__getitem__": "Symbol.__getitem__, ops.slice | `ops.slice` has `axis`, `keep_dims` and `out_dims`",
        "Symbol.insert_transformation": "Symbol.insert_transformation | returns the Symbol that is read from then on",
        "Symbol.print": "Symbol.print, Model.debug | marks the value for a debug run",
    },
    "type.mojo": {
        "DynamicDim": "Dim.dynamic",
        "SymbolicDim": 'Dim | `Dim("batch")`',
        "SymbolicDim.name": "Dim.name",
        "SymbolicDim.__eq__": "Dim.__eq__",
        "StaticDim": "Dim | `Dim(4)`",
        "StaticDim.dim": "Dim.value",
        "StaticDim.__init__": "Dim | `Dim(4)`",
        "StaticDim.__eq__": "Dim.__eq__",
        "Dim.__init__": 'Dim | `Dim(4)`, `Dim("batch")`, `Dim("batch * 4 + 1")`',
        "Dim.__ne__": "Dim.__eq__ | Python negates it",
        "Dim.static": "Dim | `Dim(4)`",
        "Dim.symbolic": 'Dim | `Dim("batch")`',
        "Dim.num_elements": "Dim.__int__ | raises `TypeError` where the size is not known",
        "Dim.maybe_num_elements": "Dim.value | None where the size is not known",
        "TensorType.dims": "TensorType.shape",
        "TensorType.__eq__": "TensorType | equal types are one object, so `==` and `is` agree",
        "TensorType.__init__": "TensorType | `TensorType(DType.float32, [4])`",
        "ListType": "SequenceType",
        "ListType.eltype": "SequenceType.element",
        "ListType.__init__": "SequenceType",
        "Type": "types.tensor_types.Type | a union of the classes of types",
        "Type.type": "Symbol.type | a type is an object of its own class: `isinstance(x.type, TensorType)`",
        "Type.__init__": "TensorType, SequenceType, OptionalType",
        "Type.list": "SequenceType | `isinstance(x.type, SequenceType)`",
        "Type.tensor": "Symbol.tensor_type",
        "Type.dims": "Symbol.shape",
    },
}
"""The counterparts of names that are not called the same, and remarks: `path, path | remark`; `-` for none."""


def sections() -> dict[str, list[str]]:
    """Return the names of max_names.txt by section."""
    results: dict[str, list[str]] = {}
    for part in re.split(r"^\[", NAMES.read_text(), flags=re.MULTILINE)[1:]:
        title, _, names = part.partition("]")
        results[title] = names.split()
    return results


def counterpart(section: str, name: str) -> tuple[list[str], str]:
    """Return the names under `graphcore` for one of MAX, possibly none, and a remark or the reason."""
    message = COUNTERPARTS.get(section, {}).get(name)
    if message is None:
        return [HOMES.get(section, "ops.") + name], ""
    paths, _, remark = message.partition(" | ")
    return ([] if paths == "-" else paths.split(", ")), remark


def _shown(path: str) -> str:
    return f"gc.{path}" if path.islower() and "." not in path else path


def _summary(path: str) -> str:
    """Return the first sentence of the docstring of a counterpart of the same name."""
    result: Any = gc
    for part in path.split("."):
        result = getattr(result, part, None)
    function = result.fget if isinstance(result, property) else result
    is_own = callable(function) and getattr(function, "__module__", "").startswith("graphcore")
    text = (result.__doc__ or "") if is_own and not path.rpartition(".")[2].startswith("__") else ""
    return inspect.cleandoc(text).split("\n\n")[0].replace("\n", " ") or "the same name"


def page() -> str:
    """Return docs/max.md."""
    listed = sections()
    lines = [INTRODUCTION.rstrip()]
    for section, names in listed.items():
        lines += [
            "",
            f"## {TITLES.get(section, f'Mojo: {section}')}",
            "",
            "| MAX | graphcore | remark |",
            "|---|---|---|",
        ]
        for name in names:
            paths, remark = counterpart(section, name)
            own = ", ".join(f"`{_shown(path)}`" for path in paths) or "none"
            message = (remark or _summary(paths[0])).replace("|", "\\|")
            lines.append(f"| `{name}` | {own} | {message} |")
    return "\n".join(lines) + "\n"
