"""The process that reads mutants: `python -m tests.fuzz.child MEGABYTES`.

Reads a line "KIND NAME PATH" for each, whose parts are JSON, and answers with a line. It may die of one: then the one
who asked knows of which.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import numpy as np

import graphcore as gc
from graphcore.errors import GraphcoreError
from tests.support.limits import limit_memory

MODULES = {
    "model": "tests.support.mutants", "feeds": "tests.fuzz.odd_feeds", "config": "graphcore.models.llama",
    "cache": "tests.fuzz.mutations", "operators": "tests.fuzz.operators",
}  # fmt: skip
"""The module that each kind imports on first use: a child starts again after each crash."""


def main() -> None:
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    megabytes = int(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what kernels print is not an answer
    used: set[str] = set()
    for line in sys.stdin:
        kind, name, path = json.loads(line)
        if kind not in used:
            used.add(kind)
            import_module(MODULES.get(kind, "graphcore"))
            if megabytes:
                limit_memory(megabytes)
        try:
            what = KINDS[kind](name, Path(path))
        except GraphcoreError as error:
            what = type(error).__name__
        except BaseException as error:  # whatever it is, it should not have been
            what = f"raised {type(error).__name__}: {error}".replace("\n", " ")[:300]
        print(what, file=answers, flush=True)


def _model(name: str, path: Path) -> str:
    from tests.support.mutants import outcome  # late: see MODULES

    return outcome(path.read_bytes())


def _feeds(name: str, path: Path) -> str:
    from tests.fuzz import odd_feeds  # late: see MODULES
    from tests.support.mutants import MAX_LENGTH

    content, feeds = odd_feeds.drawn(name, int(path.read_bytes() or 0))
    session = gc.InferenceSession(intra_op_num_threads=1, inter_op_num_threads=1)
    session.load(content).execute(feeds, timeout=MAX_LENGTH)
    return "ran"


def _operators(name: str, path: Path) -> str:
    from tests.fuzz import operators  # late: see MODULES

    return operators.outcome(name, int(path.read_bytes()))


def _tensors(name: str, path: Path) -> str:
    for array in dict(gc.load_tensors(path)).values():
        np.asarray(array).sum()
    return "ran"


def _config(name: str, path: Path) -> str:
    from graphcore.models import llama  # late: see MODULES

    config = llama.Config.read(path)
    return f"ran {config.layers}"[:3]


def _cache(name: str, path: Path) -> str:
    from tests.fuzz.mutations import cached_graph  # late: see MODULES

    x = np.ones((2, 16), np.float32)
    with tempfile.TemporaryDirectory() as folder:
        session = gc.InferenceSession(intra_op_num_threads=1)
        (want,) = session.load(cached_graph(), cache_dir=folder)(x)
        for entry in Path(folder).iterdir():
            if (entry.suffix or entry.name) == name:
                entry.write_bytes(path.read_bytes())
        (got,) = session.load(cached_graph(), cache_dir=folder)(x)
    return "ran" if np.array_equal(got, want) else "wrong: a damaged cache entry gave other numbers"


def _crash(name: str, path: Path) -> str:
    """Die, hang or take memory: the planted faults with which the pool is tested."""
    if name == "dies":
        os.abort()
    if name == "hangs":
        while True:
            time.thread_time()
    if name == "grows":
        return f"{len(bytearray(1 << 40))}"
    return "ran"


KINDS: dict[str, Callable[[str, Path], str]] = {
    "model": _model, "feeds": _feeds, "gguf": _tensors, "safetensors": _tensors, "config": _config, "cache": _cache,
    "operators": _operators, "planted": _crash,
}  # fmt: skip

if __name__ == "__main__":
    main()
