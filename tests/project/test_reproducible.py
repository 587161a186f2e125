"""The same graph gives the same bytes whatever the seed of Python's hashes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_files_of_graphs_do_not_depend_on_the_seed_of_hashes() -> None:
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.support.reproduced"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for seed in ("0", "1", "4294967295")
    ]
    said = [(*child.communicate(timeout=300), child.returncode) for child in running]
    assert [status for *_, status in said] == [0, 0, 0], said[0][1]
    first, *others = [out.splitlines() for out, *_ in said]
    assert len(first) > 100
    assert sum(": " in line and len(line.rpartition(": ")[2]) == 64 for line in first) > 100
    for lines in others:
        assert [pair for pair in zip(first, lines, strict=True) if pair[0] != pair[1]] == []
