"""LoRA adapters of calls: onnxruntime's files, PEFT's, and arrays; and bad files."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnxruntime
import pytest

import graphcore as gc
from graphcore import DType, Graph, TensorType, errors

RNG = np.random.default_rng(0)
X = RNG.integers(-3, 4, (2, 6)).astype(np.float32)
W = RNG.integers(-3, 4, (6, 5)).astype(np.float32)
A = RNG.integers(-3, 4, (2, 6)).astype(np.float32)  # as PEFT has it: r, in
B = RNG.integers(-3, 4, (5, 2)).astype(np.float32)  # out, r
EXPECTED = X @ W.astype(np.float32) + 8 * (X @ A.T @ B.T)  # alpha 16 / r 2


def linear(
    a: str = "fc.lora_A", b: str = "fc.lora_B", *, turned: bool = True, dtype: DType = DType.float32
) -> gc.Model:
    """Return x @ W plus the product of two inputs with defaults, which are MatMul's operands, or PyTorch's weights."""
    shapes: dict[str, list[int | str]] = {a: [6, "r"], b: ["r", 5]} if turned else {a: ["r", 6], b: [5, "r"]}
    types = {"x": TensorType(DType.float32, ["n", 6]), **{n: TensorType(dtype, dims) for n, dims in shapes.items()}}
    none = {n: np.zeros([0 if d == "r" else int(d) for d in dims], dtype.numpy) for n, dims in shapes.items()}
    g = Graph("linear", types, defaults=none)
    first, second = (g[n].cast("float32") if turned else g[n].cast("float32").transpose((1, 0)) for n in (a, b))
    g.output(y=g["x"] @ g.weight("w", W) + g["x"] @ first @ second)
    return gc.InferenceSession().load(g)


def peft(folder: Path, arrays: dict[str, Any] | None = None, **config: Any) -> Path:
    """Write an adapter as PEFT saves it."""
    names = {f"base_model.model.fc.lora_{kind}.weight": array for kind, array in (("A", A), ("B", B))}
    gc.save_tensors(folder / "adapter_model.safetensors", names if arrays is None else arrays)
    settings = {"peft_type": "LORA", "r": 2, "lora_alpha": 16, **config}
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    return folder


def ort_adapter(path: Path, arrays: dict[str, Any]) -> Path:
    adapter = onnxruntime.AdapterFormat()
    adapter.set_parameters({n: onnxruntime.OrtValue.ortvalue_from_numpy(a) for n, a in arrays.items()})
    adapter.set_adapter_version(1)
    adapter.set_model_version(1)
    adapter.export_adapter(str(path))
    return path


def test_onnx_adapter(tmp_path: Path) -> None:
    model = linear("a", "b")
    adapter = model.adapter(ort_adapter(tmp_path / "x.onnx_adapter", {"a": A.T.copy(), "b": 8 * B.T.copy()}))
    np.testing.assert_array_equal(model(X, **adapter)[0], EXPECTED)
    np.testing.assert_array_equal(model(X)[0], X @ W)


@pytest.mark.parametrize("turned", [True, False])
@pytest.mark.parametrize(
    "names",
    [
        ("fc.lora_A", "fc.lora_B"),
        ("fc.lora_A.weight", "fc.lora_B.weight"),
        ("base_model.model.fc.lora_A.default.weight", "base_model.model.fc.lora_B.default.weight"),
    ],
)
def test_peft(tmp_path: Path, names: tuple[str, str], turned: bool) -> None:
    model = linear(*names, turned=turned)
    folder = peft(tmp_path)
    for path in (folder, str(folder / "adapter_model.safetensors")):
        np.testing.assert_array_equal(model(X, **model.adapter(path))[0], EXPECTED)


@pytest.mark.parametrize(
    ("config", "factor"),
    [
        ({"use_rslora": True, "lora_alpha": 3}, 3 / np.sqrt(2)),
        ({"alpha_pattern": {"fc": 6}}, 3),
        ({"alpha_pattern": {"other": 6}, "r": 99}, 8),
    ],
)
def test_peft_scales(tmp_path: Path, config: dict[str, Any], factor: float) -> None:
    adapter = linear().adapter(peft(tmp_path, **config))
    np.testing.assert_allclose(adapter["fc.lora_B"], np.float32(factor) * B.T, rtol=1e-6)
    np.testing.assert_array_equal(adapter["fc.lora_A"], A.T)


def test_bfloat16(tmp_path: Path) -> None:
    arrays = {f"base_model.model.fc.lora_{n}.weight": a.astype(ml_dtypes.bfloat16) for n, a in (("A", A), ("B", B))}
    model = linear(dtype=DType.bfloat16)
    np.testing.assert_array_equal(model(X, **model.adapter(peft(tmp_path, arrays)))[0], EXPECTED)
    with pytest.raises(errors.FeedError, match=r"input 'fc.lora_A' must be float32, got bfloat16"):
        linear().adapter(tmp_path)


def test_arrays_by_name() -> None:
    model = linear("a", "b")
    adapter = model.adapter({"a": A.T, "b": (8 * B.T).tolist()})
    np.testing.assert_array_equal(model(X, **adapter)[0], EXPECTED)
    np.testing.assert_array_equal(model.run_async(X, **adapter).result()[0], EXPECTED)


def test_adapters_of_threads() -> None:
    model = linear("a", "b")
    adapters = [model.adapter({"a": A.T, "b": i * B.T}) for i in range(8)]
    with ThreadPoolExecutor(4) as pool:
        results = pool.map(lambda adapter: model(X, **adapter)[0], adapters)
        for i, result in enumerate(results):
            np.testing.assert_array_equal(result, X @ W + i * (X @ A.T @ B.T))


def test_third_party_constants(tmp_path: Path) -> None:
    import onnx

    from tests.runtime.test_defaults import third_party

    onnx.save(third_party(), tmp_path / "m.onnx")
    model = gc.InferenceSession().load(tmp_path / "m.onnx")
    arrays = {"a": np.ones((4, 5), np.float32), "b": np.ones((5, 3), np.float32)}
    adapter = model.adapter(ort_adapter(tmp_path / "x.onnx_adapter", arrays))
    x = np.ones((1, 4), np.float32)
    np.testing.assert_array_equal(model(x, **adapter)[0] - model(x)[0], np.full((1, 3), 20))


def test_bad_files(tmp_path: Path) -> None:
    model = linear()
    for name, message in (("m.bin", "neither an .onnx_adapter file nor"), ("gone.onnx_adapter", "is not a file")):
        with pytest.raises(errors.ModelError, match=message):
            model.adapter(tmp_path / name)
    (tmp_path / "bad.onnx_adapter").write_bytes(b"no flatbuffer")
    with pytest.raises(errors.ModelError, match="is not an adapter of onnxruntime"):
        model.adapter(tmp_path / "bad.onnx_adapter")
    with pytest.raises(errors.FeedError, match=r"(?s)x.onnx_adapter: linear has no input 'other'.*fc.lora_A"):
        model.adapter(ort_adapter(tmp_path / "x.onnx_adapter", {"other": A}))
    with pytest.raises(errors.FeedError, match=r"axis 0 of input 'fc.lora_A' must be 6"):
        model.adapter({"fc.lora_A": A})
    with pytest.raises(errors.FeedError, match=r"axis 0 of input 'fc.lora_B' must be r, which is 2"):
        model.adapter({"fc.lora_A": A.T, "fc.lora_B": np.ones((3, 5), np.float32)})


def test_bad_peft(tmp_path: Path) -> None:
    model = linear()
    folder = peft(tmp_path)
    (folder / "adapter_config.json").unlink()
    with pytest.raises(errors.ModelError, match=r"adapter_config.json cannot be read"):
        model.adapter(folder)
    for config, message in (
        ({"peft_type": "IA3"}, "is not the config of a LoRA adapter"),
        ({"use_dora": True}, "is not the config of a LoRA adapter"),
        ({"lora_alpha": "2"}, "has no lora_alpha for 'fc'"),
        ({"alpha_pattern": {"fc.*": 4}}, r"'fc\.\*' is a regular expression"),
        ({"alpha_pattern": [1]}, "is not the config of a LoRA adapter"),
    ):
        with pytest.raises(errors.ModelError, match=message):
            model.adapter(peft(tmp_path, **config))
    with pytest.raises(errors.ModelError, match=r"has 'base_model.model.fc2.lora_A.weight', for which the model has"):
        model.adapter(peft(tmp_path, {"base_model.model.fc2.lora_A.weight": A}))
    with pytest.raises(errors.FeedError, match=r"axis 0 of input 'fc.lora_A' must be 6"):
        model.adapter(peft(tmp_path, {"base_model.model.fc.lora_A.weight": np.ones((2, 7), np.float32)}))
    (folder / "adapter_model.safetensors").write_bytes(b"x" * 20)
    with pytest.raises(errors.ModelError):
        model.adapter(folder)


def test_ambiguous_layout(tmp_path: Path) -> None:
    square = np.ones((6, 6), np.float32)
    folder = peft(tmp_path, {"base_model.model.fc.lora_A.weight": square})
    with pytest.raises(errors.ModelError, match="do not tell whether they are lora_A or its transpose"):
        linear().adapter(folder)
