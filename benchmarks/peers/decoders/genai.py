"""onnxruntime-genai, on the folder that its model builder writes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime_genai

if TYPE_CHECKING:
    from benchmarks.peers.decoders.worker import Job


class Genai:
    """One generator for all streams, made anew for each prompt: those of several streams cannot go back."""

    def __init__(self, job: Job) -> None:
        config = onnxruntime_genai.Config(job.path)
        options = {"session_options": {"intra_op_num_threads": job.threads}}
        config.overlay(json.dumps({"model": {"decoder": options}}))
        self._model = onnxruntime_genai.Model(config)
        self._cache = job.cache
        self._prompts: list[list[int]] = []
        self._generator: Any = None

    def prefill(self, prompt: list[int]) -> int:
        return int(self._next(self._generating([prompt]))[0])

    def fill(self, prompts: list[list[int]]) -> None:
        self._prompts = prompts

    def rewind(self) -> None:
        self._generator = self._generating(self._prompts)
        self._first = self._next(self._generator)

    def steps(self, count: int) -> list[list[int]]:
        results = [self._first, *(self._next(self._generator) for _ in range(count))]
        return np.stack(results, 1).tolist()  # type: ignore[no-any-return]

    def logits(self, prompt: list[int]) -> list[float]:
        return self._generating([prompt]).get_logits()[0, -1].tolist()  # type: ignore[no-any-return]

    def _generating(self, prompts: list[list[int]]) -> Any:
        """Return a generator that has read prompts. Its cache is as long as asked for, and stays with it."""
        self._generator = None  # one at a time in memory
        params = onnxruntime_genai.GeneratorParams(self._model)
        params.set_search_options(max_length=self._cache, batch_size=len(prompts), do_sample=False)
        result = onnxruntime_genai.Generator(self._model, params)
        result.append_tokens(np.array(prompts, np.int32))
        return result

    @staticmethod
    def _next(generator: Any) -> Any:
        generator.generate_next_token()
        return np.array(generator.get_next_tokens())


def open_engine(job: Job) -> Genai:
    return Genai(job)
