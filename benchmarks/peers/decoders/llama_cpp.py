"""llama.cpp, by the C interface of the libraries that npm's node-llama-cpp brings: `npm install` in benchmarks/peers.

Structures are taken as their first fields and room for the rest: functions that return one write only what they know,
and those that take one read only that. The defaults of the fields are checked, which a release that moves them fails. https://github.com/ggml-org/llama.cpp/blob/master/include/llama.h
"""

from __future__ import annotations

import ctypes
import os
from ctypes import POINTER, byref, c_bool, c_char_p, c_float, c_int8, c_int32, c_uint8, c_uint32, c_void_p
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.peers.decoders.worker import Job

FOLDER = Path(__file__).parent.parent / "node_modules" / "@node-llama-cpp"
Q4_0, Q4_K_M = 2, 15
"""File types of `llama_ftype`."""

_FLOAT32, _FLOAT16 = 0, 1
"""Numbers of `ggml_type`."""


class _ModelParams(ctypes.Structure):
    _fields_ = (("all", c_uint8 * 512),)


class _ContextParams(ctypes.Structure):
    _fields_ = (
        ("n_ctx", c_uint32),
        ("n_batch", c_uint32),
        ("n_ubatch", c_uint32),
        ("n_seq_max", c_uint32),
        ("n_rs_seq", c_uint32),
        ("n_outputs_max", c_uint32),
        ("n_outputs_max_per_seq", c_uint32),
        ("n_threads", c_int32),
        ("n_threads_batch", c_int32),
        ("kinds", c_int32 * 4),
        ("flash_attn_type", c_int32),
        ("numbers", c_float * 8),
        ("callback", c_void_p * 2),
        ("type_k", c_int32),
        ("type_v", c_int32),
        ("rest", c_uint8 * 512),
    )


class _QuantizeParams(ctypes.Structure):
    _fields_ = (("nthread", c_int32), ("ftype", c_int32), ("rest", c_uint8 * 512))


class _Batch(ctypes.Structure):
    _fields_ = (
        ("n_tokens", c_int32),
        ("token", POINTER(c_int32)),
        ("embd", POINTER(c_float)),
        ("pos", POINTER(c_int32)),
        ("n_seq_id", POINTER(c_int32)),
        ("seq_id", POINTER(POINTER(c_int32))),
        ("logits", POINTER(c_int8)),
    )


_LOG = ctypes.CFUNCTYPE(None, c_int32, c_char_p, c_void_p)


_SILENT = _LOG(lambda level, text, data: None)


def folder() -> Path | None:
    """Return the folder of the libraries, GRAPHCORE_LLAMA_CPP or that of the package for this system; None without."""
    named = os.environ.get("GRAPHCORE_LLAMA_CPP")
    kind = {"x86_64": "linux-x64", "aarch64": "linux-arm64"}.get(os.uname().machine, "none")
    place = Path(named) if named else FOLDER / kind / "bins" / kind
    return place if any(place.glob("libllama.*")) else None


def library() -> Any:
    """Load the libraries and the kernels for this processor. Raises `OSError` where there are none."""
    result = folder()
    if result is None:
        raise OSError(f"no llama.cpp in {FOLDER}: npm install")
    ggml, llama = (ctypes.CDLL(str(next(result.glob(f"lib{name}.*")))) for name in ("ggml", "llama"))
    llama.llama_log_set.argtypes = (_LOG, c_void_p)
    llama.llama_log_set(_SILENT, None)
    ggml.ggml_backend_load_all_from_path(str(result).encode())
    llama.llama_model_default_params.restype = _ModelParams
    llama.llama_context_default_params.restype = _ContextParams
    llama.llama_model_quantize_default_params.restype = _QuantizeParams
    llama.llama_model_load_from_file.restype = c_void_p
    llama.llama_model_load_from_file.argtypes = (c_char_p, _ModelParams)
    llama.llama_init_from_model.restype = c_void_p
    llama.llama_init_from_model.argtypes = (c_void_p, _ContextParams)
    llama.llama_model_quantize.argtypes = (c_char_p, c_char_p, c_void_p)
    llama.llama_get_memory.restype = c_void_p
    llama.llama_get_memory.argtypes = (c_void_p,)
    llama.llama_memory_clear.argtypes = (c_void_p, c_bool)
    llama.llama_memory_seq_rm.argtypes = (c_void_p, c_int32, c_int32, c_int32)
    llama.llama_batch_init.restype = _Batch
    llama.llama_batch_init.argtypes = (c_int32, c_int32, c_int32)
    llama.llama_decode.argtypes = (c_void_p, _Batch)
    llama.llama_get_logits_ith.restype = POINTER(c_float)
    llama.llama_get_logits_ith.argtypes = (c_void_p, c_int32)
    llama.llama_sampler_init_greedy.restype = c_void_p
    llama.llama_sampler_sample.argtypes = (c_void_p, c_void_p, c_int32)
    llama.llama_backend_init()
    return llama


def quantize(source: Path, target: Path, kind: int) -> None:
    """Write a file's weights in a file type's encodings, as llama.cpp's own tool does."""
    llama = library()
    params = llama.llama_model_quantize_default_params()
    params.nthread, params.ftype = 1, kind
    if llama.llama_model_quantize(str(source).encode(), str(target).encode(), byref(params)):
        raise OSError(f"llama.cpp does not quantize {source}")


class LlamaCpp:
    """One context, with a sequence for each stream; otherwise the defaults."""

    def __init__(self, job: Job) -> None:
        self._llama = library()
        model = self._llama.llama_model_load_from_file(job.path.encode(), self._llama.llama_model_default_params())
        params = self._llama.llama_context_default_params()
        expected = (params.n_ctx, params.n_batch, params.n_ubatch, params.n_seq_max, params.n_threads, params.type_k)
        if expected != (512, 2048, 512, 1, 4, _FLOAT16):
            raise OSError(f"llama.cpp's parameters of contexts are not those known: {expected}")
        params.n_ctx, params.n_seq_max = job.cache * job.streams, job.streams
        params.n_threads = params.n_threads_batch = job.threads
        if job.exact:
            params.type_k = params.type_v = _FLOAT32
            params.flash_attn_type = 0
        self._context = self._llama.llama_init_from_model(model, params)
        if not self._context:
            raise OSError(f"llama.cpp does not open {job.path}")
        self._memory = self._llama.llama_get_memory(self._context)
        self._greedy = self._llama.llama_sampler_init_greedy()
        self._batch = self._llama.llama_batch_init(params.n_batch, 0, 1)
        self._lengths: list[int] = []
        self._tokens: list[int] = []

    def prefill(self, prompt: list[int]) -> int:
        self._llama.llama_memory_clear(self._memory, False)
        return self._read([prompt], [0])[0]

    def fill(self, prompts: list[list[int]]) -> None:
        self._llama.llama_memory_clear(self._memory, False)
        self._lengths = [len(prompt) for prompt in prompts]
        self._tokens = [self._read([prompt], [0], stream)[0] for stream, prompt in enumerate(prompts)]

    def rewind(self) -> None:
        for stream, length in enumerate(self._lengths):
            self._llama.llama_memory_seq_rm(self._memory, stream, length, -1)

    def steps(self, count: int) -> list[list[int]]:
        results = [self._tokens]
        for number in range(count):
            results.append(
                self._read([[token] for token in results[-1]], [length + number for length in self._lengths])
            )
        return [[*row] for row in zip(*results, strict=True)]

    def logits(self, prompt: list[int]) -> list[float]:
        self.prefill(prompt)
        return self._llama.llama_get_logits_ith(self._context, -1)[: self._size]  # type: ignore[no-any-return]

    @property
    def _size(self) -> int:
        self._llama.llama_get_model.restype = self._llama.llama_model_get_vocab.restype = c_void_p
        model = self._llama.llama_get_model(c_void_p(self._context))
        vocabulary = self._llama.llama_model_get_vocab(c_void_p(model))
        return int(self._llama.llama_vocab_n_tokens(c_void_p(vocabulary)))

    def _read(self, rows: list[list[int]], starts: list[int], first: int = 0) -> list[int]:
        """Read tokens of streams from `first` on, at positions from `starts` on; return the likeliest after each."""
        batch, at, last = self._batch, 0, []
        for stream, (row, start) in enumerate(zip(rows, starts, strict=True)):
            for number, token in enumerate(row):
                batch.token[at], batch.pos[at], batch.n_seq_id[at] = token, start + number, 1
                batch.seq_id[at][0], batch.logits[at] = first + stream, number == len(row) - 1
                at += 1
            last.append(at - 1)
        batch.n_tokens = at
        if self._llama.llama_decode(self._context, batch):
            raise OSError("llama.cpp does not run")
        return [self._llama.llama_sampler_sample(self._greedy, self._context, row) for row in last]


def open_engine(job: Job) -> LlamaCpp:
    return LlamaCpp(job)
