"""Limits of a process: memory, processor time, files, and that it ends with its parent."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import struct
import sys
import time
from dataclasses import dataclass, field

_PR_SET_PDEATHSIG, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 1, 24, 38
_CAPABILITIES_3 = 0x20080522
"""The version of the call that has 64 of them, in three sets of two words."""
_OPEN_FILES = 256
_MAPPED = 1 << 38
"""Bytes of addresses beside the data: files, and what is reserved. Their tables, which no limit counts, take 1/512."""
_SLACK = 2.0
"""Seconds of processor time that a request has beyond its limit, which the parent counts by the clock."""
_PROCESS_TIME = 2
"""The clock of processor time; the bits above it are those of a process, inverted (`clock_getcpuclockid`)."""


def limit(memory: int, parent: int) -> list[str]:
    """Set the limits of this process; return what could not be set, a phrase each.

    memory: bytes of data, which files and the arrays that go to the parent are no part of. parent: the process that
    this one ends with.
    """
    try:
        import resource
    except ImportError:  # Windows
        return ["limits of memory and processor time (no setrlimit)"]
    missing = []
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for name, kind, most in (
        ("a limit of memory (RLIMIT_DATA)", resource.RLIMIT_DATA, memory),
        ("a limit of open files (RLIMIT_NOFILE)", resource.RLIMIT_NOFILE, _OPEN_FILES),
        ("a limit of addresses (RLIMIT_AS)", resource.RLIMIT_AS, memory + _MAPPED),
    ):
        hard = resource.getrlimit(kind)[1]
        least = min(most, sys.maxsize if hard == resource.RLIM_INFINITY else hard)
        try:
            resource.setrlimit(kind, (least, least))
        except (OSError, ValueError):
            missing.append(name)
    if sys.platform == "darwin":
        missing.append("a limit of memory (macOS heeds none)")
    if not sys.platform.startswith("linux"):
        return [*missing, "an end with its parent (prctl is Linux')"]
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the line above
        os._exit(1)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        missing.append("no new privileges (prctl)")
    for capability in range(64):
        libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)  # fails for a user who has none
    if libc.capset(struct.pack("=Ii", _CAPABILITIES_3, 0), bytes(24)):
        missing.append("no capabilities (capset)")
    return missing


@dataclass(slots=True)
class ProcessorTime:
    """The processor time that a worker may take in all threads: a second wall, should the parent's watch sleep.

    process: of the worker, as its parent has it; 0 in the worker, which sets a limit where the system has no `prlimit`.
    """

    process: int = 0
    cores: int = field(default_factory=lambda: os.cpu_count() or 1)
    until: float = 0.0

    def allow(self, seconds: float | None) -> bool:
        """Let the process run for so many seconds more on every processor; None for as long as it likes.

        Return False where the system has no such limit. At its end comes SIGXCPU, which a worker neither handles nor
        blocks.
        """
        with contextlib.suppress(ImportError, OSError, ValueError):
            import resource

            if hasattr(resource, "prlimit") != bool(self.process):
                return True  # it is the other one's to set
            now = time.clock_gettime(~self.process << 3 | _PROCESS_TIME) if self.process else time.process_time()
            needed = 0.0 if seconds is None else now + (seconds + _SLACK) * self.cores
            if seconds is not None and needed <= self.until:
                return True
            hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
            most = resource.RLIM_INFINITY if seconds is None else int(needed + seconds * self.cores) + 1
            if hard != resource.RLIM_INFINITY:
                most = min(most, hard) if most != resource.RLIM_INFINITY else hard
            if self.process:
                resource.prlimit(self.process, resource.RLIMIT_CPU, (most, hard))
            else:
                resource.setrlimit(resource.RLIMIT_CPU, (most, hard))
            self.until = float("inf") if seconds is None else float(most)
            return True
        return False
