"""Graphs of PyTorch modules and JAX functions, by their exporters. See docs/howto/pytorch_jax.md."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from graphcore.errors import MissingExtraError, ModelError
from graphcore.ir.graph import Graph
from graphcore.ir.state.attaching import attach
from graphcore.onnx.read.ir_models import from_ir
from graphcore.support.escaping import escaped, suggestion


def from_torch(
    module: Any,
    args: Any,
    *,
    kwargs: Mapping[str, Any] | None = None,
    dynamic: Mapping[str, Any] | None = None,
    outputs: Sequence[str] | None = None,
) -> Graph:
    """Return the graph of a PyTorch module, exported by `torch.onnx.export(dynamo=True)`. Needs the extra `torch`.

    Inputs have the names of the parameters of `forward`, and weights those of the module. Weights are copied. Call
    `module.eval()` before.

    Args:
        module: A `torch.nn.Module`.
        args: An example of the positional arguments of `forward`: a tensor, or a tuple. Sizes are those of the example.
        kwargs: An example of the keyword arguments.
        dynamic: Dims with names, by parameter: `{"x": {0: "batch"}}`, or what torch.export takes for a parameter.
        outputs: The names of the outputs; by default the keys of a dict that `forward` returns, or PyTorch's names.

    Raises:
        MissingExtraError: PyTorch, onnxscript or onnx-ir is not installed.
        ModelError: PyTorch cannot export the module, or a name in `dynamic` is not a parameter.

    Example:
        graph = gc.from_torch(module.eval(), torch.zeros(2, 3, 224, 224), dynamic={"x": {0: "batch"}})
    """
    torch, _, ir = (_package(name, "torch", "from_torch") for name in ("torch", "onnxscript", "onnx_ir"))
    args = args if isinstance(args, tuple) else (args,)
    arguments = _arguments("from_torch", getattr(module, "forward", module), args, kwargs or {}, dynamic)
    shapes = None if dynamic is None else {name: dynamic.get(name) for name in arguments}
    try:
        program = torch.onnx.export(
            module, args, kwargs=dict(kwargs or {}), dynamo=True, dynamic_shapes=shapes, output_names=outputs,
            verbose=False,
        )  # fmt: skip
    except Exception as error:
        raise _refused("from_torch: torch.onnx.export", error) from error
    graph = program.model.graph
    graph.name = type(module).__name__
    for value in graph.initializers.values():  # shares the memory of a parameter
        tensor = value.const_value
        value.const_value = ir.Tensor(np.array(tensor.numpy()), dtype=tensor.dtype, name=tensor.name)
    result = program.exported_program.call_spec.out_spec
    if outputs is None and result.type is dict and len(result.context) == len(graph.outputs):
        taken = {value.name for node in graph for value in node.outputs} | {value.name for value in graph.inputs}
        for value, key in zip(graph.outputs, result.context, strict=True):
            if isinstance(key, str) and key not in taken:
                value.name = key
    attach()
    return from_ir(program.model)


def from_jax(
    function: Callable[..., Any],
    args: Any,
    *,
    dynamic: Mapping[str, Mapping[int, str]] | None = None,
    outputs: Sequence[str] | None = None,
) -> Graph:
    """Return the graph of a JAX function, exported by the package jax2onnx. Needs the extra `jax`.

    Inputs have the names of the parameters. Weights are what the function closes over: `lambda x: net(weights, x)`.

    Args:
        function: A function of arrays.
        args: An example of its arguments: an array or `jax.ShapeDtypeStruct`, or a tuple of them. Sizes are those of
            the example.
        dynamic: Dims with names, by parameter: `{"x": {0: "batch"}}`.
        outputs: The names of the outputs, by default those of jax2onnx.

    Raises:
        MissingExtraError: JAX or jax2onnx is not installed.
        ModelError: jax2onnx cannot export the function, an argument is not an array, or a name in `dynamic` is not a
            parameter.

    Example:
        graph = gc.from_jax(lambda x: net(weights, x), jnp.zeros((2, 8)), dynamic={"x": {0: "batch"}})
    """
    jax, jax2onnx = (_package(name, "jax", "from_jax") for name in ("jax", "jax2onnx"))
    args = args if isinstance(args, tuple) else (args,)
    arguments = _arguments("from_jax", function, args, {}, dynamic)
    scope = importlib.import_module("jax.export").SymbolicScope()
    inputs = []
    for name, value in arguments.items():
        if not hasattr(value, "shape") or not hasattr(value, "dtype"):
            raise ModelError(
                f"from_jax: argument {name!r} must be an array, got {type(value).__name__}",
                help="give arrays, and close over anything else: lambda x: function(weights, x)",
            )
        dims = (dynamic or {}).get(name, {})
        text = ", ".join(str(dims.get(axis, size)) for axis, size in enumerate(value.shape))
        shape = jax.export.symbolic_shape(text, scope=scope) if dims else value.shape
        inputs.append(jax.ShapeDtypeStruct(shape, value.dtype))
    try:
        model = jax2onnx.to_onnx(
            function, inputs, model_name=getattr(function, "__name__", "").strip("<>") or "function",
            enable_double_precision=bool(jax.config.jax_enable_x64), return_mode="ir",
            input_names=[*arguments], output_names=outputs,
        )  # fmt: skip
    except Exception as error:
        raise _refused("from_jax: jax2onnx.to_onnx", error) from error
    attach()
    return from_ir(model)


def _package(name: str, extra: str, what: str) -> Any:
    """Return a package of an extra. Raises `MissingExtraError` if it cannot be imported."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtraError(
            f"{what}: the package {name} cannot be imported: {error}", help=f"pip install 'graphcore-engine[{extra}]'"
        ) from None


def _arguments(
    what: str, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], dynamic: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return the arguments of a call by parameter. Raises `ModelError` for other names in `dynamic`."""
    try:
        arguments = inspect.signature(function).bind(*args, **kwargs).arguments
    except (TypeError, ValueError) as error:
        raise ModelError(f"{what}: the arguments do not fit: {error}", help="give those of one call") from None
    for name in dynamic or {}:
        if name not in arguments:
            raise ModelError(
                f"{what}: dynamic names {name!r}, which is not an argument of the call",
                help=f"{suggestion(name, arguments)}use {', '.join(arguments) or 'no names'}",
            )
    return arguments


def _refused(what: str, error: Exception) -> ModelError:
    cause = error.__cause__ or error
    line = next(iter(str(cause).strip().splitlines()), "")
    return ModelError(
        escaped(f"{what} failed: {type(cause).__name__}: {line:.300}"),
        help="the error that caused this one has details",
    )
