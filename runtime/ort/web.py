"""The npm package onnxruntime-web, which runs models in browsers and Node.js."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from graphcore.errors import MissingExtraError

WEB_FOLDER = "GRAPHCORE_ONNXRUNTIME_WEB"
"""The environment variable with the folder in which npm installed onnxruntime-web."""

_SUGGESTED = "1.30.0"


@dataclass(frozen=True, slots=True)
class WebPackage:
    """onnxruntime-web. release: its version. program: its module of JavaScript. wasm: its WebAssembly."""

    release: str
    program: bytes
    wasm: bytes


def web_package() -> WebPackage:
    """Return onnxruntime-web as npm installed it in the folder of `WEB_FOLDER`, by default the current one.

    Raises `MissingExtraError`.
    """
    folder = Path(os.environ.get(WEB_FOLDER) or ".", "node_modules", "onnxruntime-web")
    try:
        release = str(json.loads((folder / "package.json").read_bytes())["version"])
        files = "ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm"
        return WebPackage(release, *((folder / "dist" / name).read_bytes() for name in files))
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise MissingExtraError(
            f"onnxruntime-web cannot be read in {folder}: {error}",
            help=f"npm install onnxruntime-web@{_SUGGESTED} in this folder, or in one that {WEB_FOLDER} names",
        ) from None
