"""Sentence embeddings in a static page: all-MiniLM-L6-v2 in bytes, with onnxruntime-web's WebAssembly.

python examples/browser.py, then python -m http.server --directory minilm-page; needs npm install onnxruntime-web@1.30.0
"""

import os
import shutil
import sys
from pathlib import Path

import graphcore as gc
from graphcore.models import minilm

SOURCE = Path(__file__).with_name("browser")
PACKAGE = Path(os.environ.get("GRAPHCORE_ONNXRUNTIME_WEB", "."), "node_modules", "onnxruntime-web")


def write(folder: Path, scheme: str | None = "int8_dynamic") -> None:
    """Write the page into a new folder. scheme: of quantisation; None for float32."""
    graph = minilm.build(Path(minilm.folder(), "model.safetensors"))
    if scheme is not None:
        graph = gc.quantize(graph, scheme, embeddings=True).graph
    folder.mkdir()
    graph.export(folder / "model.onnx", runtime="web-1.30")
    dist = PACKAGE / "dist"
    files = [*SOURCE.iterdir(), dist / "ort.wasm.bundle.min.mjs", dist / "ort-wasm-simd-threaded.wasm"]
    for file in (*files, Path(minilm.folder(), "vocab.txt")):
        shutil.copy(file, folder)


if __name__ == "__main__":
    if not PACKAGE.is_dir():
        sys.exit("npm install onnxruntime-web@1.30.0 in this folder, or name another in GRAPHCORE_ONNXRUNTIME_WEB")
    folder = Path("minilm-page")
    write(folder)
    for file in sorted(folder.iterdir()):
        print(f"{file.name:28} {file.stat().st_size / 1e6:8.3f} MB")
