"""The npm package onnxruntime-web, which runs models in browsers and Node.js."""

from __future__ import annotations

import json
import os
from pathlib import Path

from graphcore.errors import MissingExtraError

WEB_FOLDER = "GRAPHCORE_ONNXRUNTIME_WEB"
"""The environment variable with the folder in which npm installed onnxruntime-web."""

_SUGGESTED = "1.30.0"


def web_package() -> tuple[str, bytes, bytes]:
    """Return the release of onnxruntime-web, its program in JavaScript and its WebAssembly.

    They are read where npm installed them: in the folder of `WEB_FOLDER`, by default the current one. Raises
    `MissingExtraError`.
    """
    folder = Path(os.environ.get(WEB_FOLDER) or ".", "node_modules", "onnxruntime-web")
    try:
        release = str(json.loads((folder / "package.json").read_bytes())["version"])
        program = (folder / "dist" / "ort.wasm.bundle.min.mjs").read_bytes()
        return release, program, (folder / "dist" / "ort-wasm-simd-threaded.wasm").read_bytes()
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise MissingExtraError(
            f"onnxruntime-web cannot be read in {folder}: {error}",
            help=f"npm install onnxruntime-web@{_SUGGESTED} in this folder, or in one that {WEB_FOLDER} names",
        ) from None
