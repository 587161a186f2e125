"""Runs model files in whatever onnxruntime is installed: a script that needs onnxruntime and NumPy alone.

    python run_files.py FOLDER

Each `name.onnx` of the folder is fed `name.feeds.npz`; its results go to `name.results.npz`, or what it failed with to
`name.failed.txt`. What has results or failed already is left alone, so that the script can be started again after a
file that ended its process.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnxruntime


def run(path: Path) -> None:
    """Run one file."""
    results, failed = path.with_suffix(".results.npz"), path.with_suffix(".failed.txt")
    if results.exists() or failed.exists():
        return
    failed.write_text("the process ended")
    try:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        with np.load(path.with_suffix(".feeds.npz"), allow_pickle=True) as feeds:
            result = session.run(None, dict(feeds))
    except Exception as error:
        failed.write_text(f"{type(error).__name__}: {error}")
        return
    np.savez(results, **{value.name: array for value, array in zip(session.get_outputs(), result, strict=True)})
    failed.unlink()


def main(folder: str) -> None:
    """Run all files of a folder."""
    for path in sorted(Path(folder).glob("*.onnx")):
        run(path)


if __name__ == "__main__":
    main(sys.argv[1])
