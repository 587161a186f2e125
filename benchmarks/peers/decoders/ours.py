"""graphcore: a decoder's file as `InferenceSession.load` takes it, each stream in a row of `Model.slots`.

Prompts are read as `models.Streams` reads them: each in its own row, in pieces. A job with a folder of entries loads
with it as `cache_dir`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import graphcore as gc

if TYPE_CHECKING:
    from benchmarks.peers.decoders.worker import Job

PIECE = 128
"""Tokens of a prompt in a call, as `models.Streams` has them by default."""


class Ours:
    """A row for each stream."""

    def __init__(self, job: Job) -> None:
        session = gc.InferenceSession(intra_op_num_threads=job.threads)
        if job.start == "first":
            Path(f"{job.path}.prepared").unlink(missing_ok=True)
        prepared = {"file": False, "prepared": True}.get(job.start)
        self._slots = session.load(job.path, cache_dir=job.entries or None, prepared=prepared).slots(job.streams)
        self._lengths = np.array([0])
        self._first = np.array([0])

    def prefill(self, prompt: list[int]) -> int:
        return int(self._read(prompt, len(prompt)).argmax())

    def fill(self, prompts: list[list[int]]) -> None:
        self._lengths = np.array([len(prompt) for prompt in prompts])
        self._first = np.array([self._read(prompt, PIECE, row).argmax() for row, prompt in enumerate(prompts)])

    def rewind(self) -> None:
        pass  # the lengths say where a step begins

    def steps(self, count: int) -> list[list[int]]:
        results = [self._first]
        for number in range(count):
            (logits,) = self._slots.run(0, len(results[0]), results[-1][:, None], self._lengths + number + 1)
            results.append(logits.argmax(-1))
        return np.stack(results, 1).tolist()  # type: ignore[no-any-return]

    def logits(self, prompt: list[int]) -> list[float]:
        return self._read(prompt, PIECE).tolist()  # type: ignore[no-any-return]

    def _read(self, prompt: list[int], piece: int, row: int = 0) -> np.ndarray[Any, Any]:
        """Return the logits of the last token of a prompt that is read into a row."""
        for start in range(0, len(prompt), piece):
            tokens = np.array([prompt[start : start + piece]])
            (logits,) = self._slots.run(row, row + 1, tokens, np.array([start + tokens.size]))
        return np.asarray(logits[0])


def open_engine(job: Job) -> Ours:
    return Ours(job)
