"""OpenVINO GenAI, on the folder that its pipeline writes when it has read a GGUF file."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import openvino
import openvino_genai

if TYPE_CHECKING:
    from benchmarks.peers.decoders.worker import Job

_MAX_LENGTH = 1 << 16


class OpenVino:
    """Its pipeline of batches that requests join, which is the one that lets single steps be taken."""

    def __init__(self, job: Job) -> None:
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.max_num_batched_tokens = _MAX_LENGTH  # a prompt in one step
        scheduler.enable_prefix_caching = False
        options: dict[str, Any] = {"INFERENCE_NUM_THREADS": job.threads}
        if job.exact:
            options |= {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32"}
        self._pipeline = openvino_genai.ContinuousBatchingPipeline(job.path, scheduler, "CPU", options)
        self._numbers = itertools.count()
        self._prompts: list[list[int]] = []
        self._requests: list[Any] = []
        self._first: list[int] = []

    def prefill(self, prompt: list[int]) -> int:
        self._read([prompt])
        return self._first[0]

    def fill(self, prompts: list[list[int]]) -> None:
        self._prompts = prompts

    def rewind(self) -> None:
        self._read(self._prompts)

    def steps(self, count: int) -> list[list[int]]:
        results = [self._first]
        for _ in range(count):
            self._pipeline.step()
            results.append(self._new_tokens())
        return [[*row] for row in zip(*results, strict=True)]

    def logits(self, prompt: list[int]) -> list[float]:
        return []  # the pipeline does not give them

    def _read(self, prompts: list[list[int]]) -> None:
        for request in self._requests:
            request.cancel()
        if self._requests:
            self._pipeline.step()  # drops them
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens, config.do_sample, config.ignore_eos = _MAX_LENGTH, False, True
        self._requests = [
            self._pipeline.add_request(next(self._numbers), openvino.Tensor(np.array([prompt])), config)
            for prompt in prompts
        ]
        self._pipeline.step()
        self._first = self._new_tokens()

    def _new_tokens(self) -> list[int]:
        return [next(iter(request.read().values())).generated_ids[-1] for request in self._requests]


def open_engine(job: Job) -> OpenVino:
    return OpenVino(job)
