"""Errors of a worker, as text that is checked, and errors for the end of a worker."""

from __future__ import annotations

import errno
import re
import signal
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from graphcore import errors
from graphcore.errors import FeedError, GraphcoreError, GraphError, ModelError, ResourceLimitError, RunError
from graphcore.runtime.isolation.framing import Malformed

MAX_LENGTH = 20_000
"""Maximum number of characters of a worker's message."""
_NO_MEMORY = ("bad_alloc", "Failed to allocate memory", "Cannot allocate memory", "MemoryError", "Unable to allocate")
_KINDS: Mapping[str, type[GraphcoreError]] = {
    name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, GraphcoreError)
}

_OWN_LINE = re.compile(r"<frozen runpy>:\d+")
"""The line that a worker reports as the user's, although the user has no code there."""
_NOISE = ("[W:onnxruntime", "pthread_setaffinity_np failed")
"""Parts of harmless lines on stderr: warnings, and threads that cannot choose a processor."""
_REFUSED = "Operation not permitted"
_ON_REFUSAL = "the sandbox refused a system call (docs/howto/isolate.md says which, and how to find them)"

What = Literal["load", "run"]


@dataclass(frozen=True, slots=True)
class WorkerLimits:
    """Limits of a worker: bytes of memory, seconds to start and load, and seconds of a run; None for no limit.

    is_strict: whether a missing protection is an error.
    """

    memory: int
    load_seconds: float | None
    run_seconds: float | None
    is_strict: bool = False

    def seconds(self, what: What) -> float | None:
        return self.load_seconds if what == "load" else self.run_seconds


def incomplete(missing: Sequence[str]) -> GraphError:
    """Return the error for a machine without required protections."""
    return GraphError(
        f'IsolatedSession: require="full", but workers on this machine lack: {"; ".join(missing)}',
        help="run it on a newer kernel (docs/howto/isolate.md), or omit require",
    )


def describe_error(error: BaseException, what: What, line: str) -> dict[str, str]:
    """Describe an error for the parent. line: of the user's code that loaded the model."""
    reasons = [error]
    while (cause := reasons[-1].__cause__ or reasons[-1].__context__) is not None and len(reasons) < 10:
        reasons.append(cause)
    if any(isinstance(e, MemoryError) and not isinstance(e, GraphcoreError) for e in reasons) or any(
        word in str(e) for e in reasons for word in _NO_MEMORY
    ):
        return {"kind": "memory", "summary": "", "help": "", "text": ""}
    note = _refusal(reasons)[:MAX_LENGTH]
    if not isinstance(error, GraphcoreError):
        reason = " ".join(str(error).split())
        message = f"{type(error).__name__}: {reason}"[:MAX_LENGTH]
        text = f"{message}\n  help: {note}"[:MAX_LENGTH] if note else message
        return {"kind": "ModelError" if what == "load" else "RunError", "summary": message, "help": note, "text": text}
    own_line = None if error.line is None else f"  at {error.line}   {error.line.excerpt}".rstrip()
    text = "\n".join(line for line in str(error).split("\n") if line != own_line)
    text = _OWN_LINE.sub(lambda _: line, text) + (f"\n  {note}" if note else "")
    return {
        "kind": type(error).__name__,
        "summary": error.summary[:MAX_LENGTH],
        "help": "; ".join(filter(None, (error.help, note)))[:MAX_LENGTH],
        "text": text[:MAX_LENGTH],
    }


def _refusal(reasons: Sequence[BaseException]) -> str:
    """Return where a system call was refused, as far as the causes of an error show; "" if none was."""
    for each in reasons:
        frames = traceback.extract_tb(each.__traceback__)
        if frames and isinstance(each, PermissionError) and each.errno == errno.EPERM:
            return f"{_ON_REFUSAL}: {frames[-1].filename}:{frames[-1].lineno}   {frames[-1].line or frames[-1].name}"
    return _ON_REFUSAL if any(_REFUSED in str(each) for each in reasons) else ""


def error_of(answer: Any, name: str, what: What, limits: WorkerLimits) -> GraphcoreError:
    """Return the error that a worker describes. Raises `Malformed` for an invalid description."""
    if not isinstance(answer, dict):
        raise Malformed("no error")
    if answer.get("kind") == "memory":
        return _no_memory(name, what, limits)
    kind = _KINDS.get(str(answer.get("kind")))
    summary, help, text = (answer.get(key) for key in ("summary", "help", "text"))
    if kind is None or not all(isinstance(each, str) and len(each) <= MAX_LENGTH for each in (summary, help, text)):
        raise Malformed("no error")
    error = kind(clean(summary), help=clean(help))
    closing = "" if error.line is None else f"\n  at {error.line}   {error.line.excerpt}".rstrip()
    error.args = (clean(text) + closing,)
    return error


def clean(text: Any) -> str:
    """Return text with control characters escaped."""
    return "".join(c if c == "\n" or c.isprintable() else repr(c)[1:-1] for c in text)


def too_long(name: str, what: What, limits: WorkerLimits) -> GraphcoreError:
    """Return the error of a request that exceeded its time."""
    return ResourceLimitError(
        f"{what}: {name} takes longer than {what}_seconds={limits.seconds(what):g}; its worker was ended",
        help=f"give IsolatedSession a larger {what}_seconds, if the model is worth the time",
    )


def _no_memory(name: str, what: What, limits: WorkerLimits) -> GraphcoreError:
    return ResourceLimitError(
        f"{what}: {name} needs more than memory={limits.memory} bytes",
        help="give IsolatedSession a larger memory, if the model is worth it",
    )


def died(status: int, last_words: str, name: str, what: What, limits: WorkerLimits) -> GraphcoreError:
    """Return the error of a request during which the worker ended.

    status: of the process, the negative number of a signal. last_words: what it wrote on stderr.
    """
    if status < 0 and -status == getattr(signal, "SIGXCPU", 0):
        return too_long(name, what, limits)
    if any(word in last_words for word in _NO_MEMORY):
        return _no_memory(name, what, limits)
    kind = ModelError if what == "load" else RunError
    lines = [line for line in last_words.splitlines() if line.strip() and not any(noise in line for noise in _NOISE)]
    output = clean(" | ".join(lines)[-1000:])
    by = f"with status {status}" if status >= 0 else f"by {_signal(-status)}"
    return kind(
        f"{what}: the worker of {name} was ended {by}",
        help=_ON_REFUSAL
        if _REFUSED in output
        else (
            "the model makes onnxruntime crash, or another program ended the worker; other requests are not affected"
        ),
        raw=output,
    )


def malformed_answer(name: str, what: What, why: str) -> GraphcoreError:
    """Return the error of a worker that sent an invalid answer, and was ended."""
    kind = ModelError if what == "load" else RunError
    return kind(
        f"{what}: the worker of {name} answered {clean(why)}, and was ended",
        help="do not trust the model: it may have taken over the process that it ran in",
    )


def unsupported_value(name: str, error: TypeError) -> GraphcoreError:
    """Return the error of a value that cannot be sent to a worker."""
    return FeedError(
        f"{name}: {error}: it cannot be sent to a worker", help="give arrays, text, numbers, or lists and dicts of them"
    )


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
