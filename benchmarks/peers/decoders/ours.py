"""graphcore: a decoder's file as `InferenceSession.load` takes it, stepped by `Model.state`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import graphcore as gc

if TYPE_CHECKING:
    from benchmarks.peers.decoders.worker import Job


class Ours:
    """One state for all streams, made anew for prompts of another number of them."""

    def __init__(self, job: Job) -> None:
        self._model = gc.InferenceSession(intra_op_num_threads=job.threads).load(job.path)
        self._state = self._model.state()
        self._lengths = np.array([0])
        self._first = np.array([0])

    def prefill(self, prompt: list[int]) -> int:
        (logits,) = self._state(np.array([prompt]), np.array([len(prompt)]))
        return int(logits.argmax())

    def fill(self, prompts: list[list[int]]) -> None:
        self._lengths = np.array([len(prompt) for prompt in prompts])
        self._state = self._model.state()
        (logits,) = self._state(np.array(prompts), self._lengths)
        self._first = logits.argmax(-1)

    def rewind(self) -> None:
        pass  # the lengths say where a step begins

    def steps(self, count: int) -> list[list[int]]:
        made = [self._first]
        for number in range(count):
            (logits,) = self._state(made[-1][:, None], self._lengths + number + 1)
            made.append(logits.argmax(-1))
        return np.stack(made, 1).tolist()  # type: ignore[no-any-return]

    def logits(self, prompt: list[int]) -> list[float]:
        (logits,) = self._state(np.array([prompt]), np.array([len(prompt)]))
        return logits[0].tolist()  # type: ignore[no-any-return]


def open_engine(job: Job) -> Ours:
    return Ours(job)
