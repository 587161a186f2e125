"""The sandbox of a worker: files by Landlock, system calls by seccomp, memory and time by limits.

Allowed system calls are for memory, threads, clocks, reads of files and of the two sockets to the parent, and facts
about the process and the machine, on Linux for x86-64 and 64-bit ARM. Landlock decides which files can be read; limits
decide how much memory can be used.

Source: https://docs.kernel.org/userspace-api/seccomp_filter.html
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import importlib.util
import os
import platform
import signal
import struct
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, fields

_SET_FILTER, _QUERY, _ALL_THREADS = 1, 2, 1
_LOAD, _EQUAL, _ABOVE, _ANY_BIT, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x06
_ALLOW, _KILL, _FAIL = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16

_AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_SECCOMP = {"x86_64": 317, "aarch64": 277}

# fmt: off
ALLOWED: dict[str, tuple[int | None, int | None]] = {
    # the name, its number on x86-64 and on 64-bit ARM; None if the architecture lacks it
    "brk": (12, 214), "mprotect": (10, 226), "munmap": (11, 215), "mremap": (25, 216), "msync": (26, 227),
    "madvise": (28, 233), "mbind": (237, 235), "set_mempolicy": (238, 237), "get_mempolicy": (239, 236),
    "mseal": (462, 462), "membarrier": (324, 283),
    "exit": (60, 93), "exit_group": (231, 94), "futex": (202, 98), "futex_waitv": (449, 449), "futex_wake": (454, 454),
    "futex_wait": (455, 455), "futex_requeue": (456, 456), "set_robust_list": (273, 99), "get_robust_list": (274, 100),
    "set_tid_address": (218, 96), "rseq": (334, 293), "restart_syscall": (219, 128), "sigaltstack": (131, 132),
    "arch_prctl": (158, None), "sched_yield": (24, 124), "sched_getaffinity": (204, 123), "sched_getparam": (143, 121),
    "sched_getscheduler": (145, 120), "sched_getattr": (315, 275), "sched_get_priority_max": (146, 125),
    "sched_get_priority_min": (147, 126), "sched_rr_get_interval": (148, 127), "getpriority": (140, 141),
    "nanosleep": (35, 101), "clock_nanosleep": (230, 115), "clock_gettime": (228, 113), "clock_getres": (229, 114),
    "gettimeofday": (96, 169), "time": (201, None), "times": (100, 153), "getrusage": (98, 165), "getcpu": (309, 168),
    "getrandom": (318, 278), "uname": (63, 160), "sysinfo": (99, 179), "getrlimit": (97, 163), "getpid": (39, 172),
    "gettid": (186, 178), "getppid": (110, 173), "getpgrp": (111, None), "getpgid": (121, 155), "getsid": (124, 156),
    "getuid": (102, 174), "geteuid": (107, 175), "getgid": (104, 176), "getegid": (108, 177), "getresuid": (118, 148),
    "getresgid": (120, 150), "getgroups": (115, 158), "capget": (125, 90), "getcwd": (79, 17),
    "read": (0, 63), "readv": (19, 65), "pread64": (17, 67), "preadv": (295, 69), "preadv2": (327, 286),
    "write": (1, 64), "writev": (20, 66), "lseek": (8, 62), "close": (3, 57), "close_range": (436, 436),
    "dup": (32, 23), "dup2": (33, None), "dup3": (292, 24), "pipe": (22, None), "pipe2": (293, 59),
    "fadvise64": (221, 223), "readahead": (187, 213), "getdents": (78, None), "getdents64": (217, 61),
    "stat": (4, None), "fstat": (5, 80), "lstat": (6, None), "newfstatat": (262, 79), "statx": (332, 291),
    "access": (21, None), "faccessat": (269, 48), "faccessat2": (439, 439), "readlink": (89, None),
    "readlinkat": (267, 78), "statfs": (137, 43), "fstatfs": (138, 44), "poll": (7, None), "ppoll": (271, 73),
    "select": (23, None), "pselect6": (270, 72), "epoll_create": (213, None), "epoll_create1": (291, 20),
    "epoll_ctl": (233, 21), "epoll_wait": (232, None), "epoll_pwait": (281, 22), "epoll_pwait2": (441, 441),
    "eventfd": (284, None), "eventfd2": (290, 19), "sendto": (44, 206), "recvfrom": (45, 207), "recvmsg": (47, 212),
    "getsockname": (51, 204), "getpeername": (52, 205), "getsockopt": (55, 209),
}
_VALUES = {
    # calls with an argument that must have one of some values: the index of the argument, and the values
    "fcntl": ((72, 25), 1, (0, 1, 2, 3, 4, 1030, 1034)),  # no owner that signals go to, no size of a pipe
    "ioctl": ((16, 29), 1, (0x5401, 0x802C542A, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)),  # no flags of files
    "prctl": ((157, 167), 0, (15, 16, 29, 30, 42, 50, 51, 63, 64, 0x53564D41)),  # it ends with its parent
}
_BITS = {
    # calls with an argument that must not have some bits: files cannot be opened for writing, created or truncated
    "open": ((2, None), 1, 0o1 | 0o2 | 0o100 | 0o1000),
    "openat": ((257, 56), 2, 0o1 | 0o2 | 0o100 | 0o1000),
}
_POINTERS = {
    # calls that read a value if an argument is null, and set it otherwise: limits, and handlers of signals. A signal
    # that can neither be handled nor blocked ends the process, which makes SIGXCPU as final as SIGKILL
    "prlimit64": ((302, 261), 2),
    "rt_sigaction": ((13, 134), 1),
    "rt_sigprocmask": ((14, 135), 1),
}
# fmt: on
_MMAP = (9, 222)
_SHARED, _ANONYMOUS, _GROWS_DOWN = 0x01, 0x20, 0x0100
_CLONE, _TGKILL = (56, 220), (234, 131)
_NEW_THREAD = 0x00010000  # CLONE_THREAD
_MISSING: dict[str, tuple[int | None, int | None]] = {"clone3": (435, 435), "openat2": (437, 437)}
"""Calls with arguments in memory, which filters cannot read: C libraries use other calls if a kernel lacks these."""
_NEWEST = 470
"""The last number that is covered here. C libraries check whether the kernel has later calls."""


def is_supported() -> bool:
    """Return True if the kernel has seccomp, and this file has the numbers of its system calls."""
    machine = platform.machine()
    if not sys.platform.startswith("linux") or machine not in _AUDIT:
        return False
    action = ctypes.byref(ctypes.c_uint32(_FAIL))
    return bool(ctypes.CDLL(None, use_errno=True).syscall(_SECCOMP[machine], _QUERY, 0, action) == 0)


def restrict_calls() -> list[str]:
    """Forbid this process all calls except those above, permanently; return a phrase for each failure.

    The process must have set no_new_privs before (`prctl`).
    """
    machine = platform.machine()
    if not sys.platform.startswith("linux") or machine not in _AUDIT:
        return ["the network and other calls of the kernel (no seccomp)"]
    program = _program(machine, os.getpid())
    code = ctypes.create_string_buffer(program, len(program))
    head = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(_SECCOMP[machine], _SET_FILTER, _ALL_THREADS, head):
        return [f"the network and other calls of the kernel (seccomp: {os.strerror(ctypes.get_errno())})"]
    return []


def _program(machine: str, process: int) -> bytes:
    """Return the seccomp filter in classic BPF."""
    column = list(_AUDIT).index(machine)
    allow, fail, lacks = (_step(_RETURN, value) for value in (_ALLOW, _FAIL | errno.EPERM, _FAIL | errno.ENOSYS))
    program = [_step(_LOAD, _ARCHITECTURE), _step(_EQUAL, _AUDIT[machine], 1, 0), _step(_RETURN, _KILL)]
    program.append(_step(_LOAD, _NUMBER))

    def add(numbers: tuple[int | None, ...], *steps: bytes) -> None:
        if (number := numbers[column]) is not None:
            program.extend((_step(_EQUAL, number, 0, len(steps)), *steps))

    for numbers in ALLOWED.values():
        add(numbers, allow)
    for numbers, argument, values in (*_VALUES.values(), (_TGKILL, 0, (process,))):
        tried = [step for value in values for step in (_step(_EQUAL, value, 0, 1), allow)]
        add(numbers, _argument(argument), *tried, fail)
    for numbers, argument, bits in _BITS.values():
        add(numbers, _argument(argument), _step(_ANY_BIT, bits, 1, 0), allow, fail)
    for numbers, argument in _POINTERS.values():
        is_null = (_step(_EQUAL, 0, 0, 3), _argument(argument, 4), _step(_EQUAL, 0, 0, 1))
        add(numbers, _argument(argument), *is_null, allow, fail)
    add(_CLONE, _argument(0), _step(_ANY_BIT, _NEW_THREAD, 0, 1), allow, fail)
    # memory that RLIMIT_DATA does not count: shared anonymous mappings, and those that grow down
    shared = (_step(_ANY_BIT, _ANONYMOUS, 0, 1), _step(_ANY_BIT, _SHARED, 1, 0), allow, fail)
    add(_MMAP, _argument(3), _step(_ANY_BIT, _GROWS_DOWN, 3, 0), *shared)
    for numbers in _MISSING.values():
        add(numbers, lacks)
    return b"".join([*program, _step(_ABOVE, _NEWEST, 0, 1), lacks, fail])


def _argument(position: int, half: int = 0) -> bytes:
    """Return the instruction that loads half of an argument. half: 0 for the lower one, 4 for the upper one."""
    return _step(_LOAD, _ARGUMENTS + 8 * position + half)


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


# Landlock: the files that a process may read and write. Linux 5.13 and later.
#
# Source: https://docs.kernel.org/userspace-api/landlock.html

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446
"""Numbers of the calls, equal on every architecture."""
_VERSION = 1
_PATH_BENEATH = 1
_WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 1, 1 << 2, 1 << 3
_FILES = {1: 13, 2: 14, 3: 15, 5: 16}
"""Number of file rights by ABI version."""
_NETWORK = 0b11  # to bind and to connect TCP, from version 4 on
_SCOPES = 0b11  # abstract sockets and signals, from version 6 on


def version() -> int:
    """Return the version of the kernel's Landlock ABI; 0 if it has none."""
    if not sys.platform.startswith("linux"):
        return 0
    abi = ctypes.CDLL(None, use_errno=True).syscall(_CREATE, None, ctypes.c_size_t(0), _VERSION)
    return max(0, int(abi))


def restrict_files(readable: Iterable[str], writable: Iterable[str] = ()) -> list[str]:
    """Forbid this thread and its future threads to access files, except to read below some paths.

    readable: files and folders; missing ones are skipped. writable: existing files that may be written. Returns a
    phrase for everything that the kernel cannot forbid.
    """
    abi = version()
    if not abi:
        return ["files (no Landlock)"]
    count = max(rights for since, rights in _FILES.items() if since <= abi)
    network = _NETWORK if abi >= 4 else 0
    scopes = _SCOPES if abi >= 6 else 0
    content = struct.pack("=QQQ", (1 << count) - 1, network, scopes)[: 24 if abi >= 6 else 16 if abi >= 4 else 8]
    libc = ctypes.CDLL(None, use_errno=True)
    rules = libc.syscall(_CREATE, content, ctypes.c_size_t(len(content)), 0)
    if rules < 0:
        return [f"files (Landlock: {os.strerror(ctypes.get_errno())})"]
    try:
        for path in readable:
            _allow(libc, rules, path, _READ_FILE, _READ_FILE | _READ_DIR)
        for path in writable:
            _allow(libc, rules, path, _READ_FILE | _WRITE_FILE, 0)
        if libc.syscall(_RESTRICT, rules, 0):
            return [f"files (Landlock: {os.strerror(ctypes.get_errno())})"]
    finally:
        os.close(rules)
    return []


def _allow(libc: ctypes.CDLL, rules: int, path: str, of_file: int, of_folder: int) -> None:
    """Add a rule for a path and everything below it. The kernel refuses rights of folders for files."""
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        rights = of_folder if os.path.isdir(path) else of_file
        if rights:
            libc.syscall(_ADD_RULE, rules, _PATH_BENEATH, struct.pack("=Qi", rights, handle), 0)
    finally:
        os.close(handle)


# Limits of a process: memory, processor time, files, and its end with its parent.

_PR_SET_PDEATHSIG, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 1, 24, 38
_CAPABILITIES_3 = 0x20080522
"""The version of the call with 64 capabilities, in three sets of two words."""
_OPEN_FILES = 256
_MAPPED = 1 << 38
"""Bytes of addresses besides the data: files, and reservations. Their page tables, which no limit counts, take
1/512."""
_SLACK = 2.0
"""Additional seconds of processor time of a request: the parent counts its limit by the clock."""
_PROCESS_TIME = 2
"""The clock of processor time; the bits above it are those of a process, inverted (`clock_getcpuclockid`)."""


def set_limits(memory: int, parent: int) -> list[str]:
    """Set the limits of this process; return a phrase for each limit that could not be set.

    memory: bytes of data, without files and the arrays for the parent. parent: the process with which this one ends.
    """
    try:
        import resource
    except ImportError:  # Windows
        return ["limits of memory and processor time (no setrlimit)"]
    missing = []
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for name, kind, wanted in (
        ("a limit of memory (RLIMIT_DATA)", resource.RLIMIT_DATA, memory),
        ("a limit of open files (RLIMIT_NOFILE)", resource.RLIMIT_NOFILE, _OPEN_FILES),
        ("a limit of addresses (RLIMIT_AS)", resource.RLIMIT_AS, memory + _MAPPED),
    ):
        hard = resource.getrlimit(kind)[1]
        least = min(wanted, sys.maxsize if hard == resource.RLIM_INFINITY else hard)
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
    """The processor time of all threads of a worker: a second limit in case the parent cannot enforce its own.

    process: the worker's id in its parent; 0 in the worker, which sets the limit if the system has no `prlimit`.
    """

    process: int = 0
    cores: int = field(default_factory=lambda: os.cpu_count() or 1)
    until: float = 0.0

    def allow(self, seconds: float | None) -> bool:
        """Let the process run for that many more seconds on every processor; None for no limit.

        Returns False if the system has no such limit. At the limit SIGXCPU ends the worker, which cannot handle or
        block it.
        """
        with contextlib.suppress(ImportError, OSError, ValueError):
            import resource

            if hasattr(resource, "prlimit") != bool(self.process):
                return True  # the other process sets it
            now = time.clock_gettime(~self.process << 3 | _PROCESS_TIME) if self.process else time.process_time()
            needed = 0.0 if seconds is None else now + (seconds + _SLACK) * self.cores
            if seconds is not None and needed <= self.until:
                return True
            hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
            soft = resource.RLIM_INFINITY if seconds is None else int(needed + seconds * self.cores) + 1
            if hard != resource.RLIM_INFINITY:
                soft = min(soft, hard) if soft != resource.RLIM_INFINITY else hard
            if self.process:
                resource.prlimit(self.process, resource.RLIMIT_CPU, (soft, hard))
            else:
                resource.setrlimit(resource.RLIMIT_CPU, (soft, hard))
            self.until = float("inf") if seconds is None else float(soft)
            return True
        return False


@dataclass(frozen=True, slots=True)
class Protections:
    """The protections of workers on this machine.

    memory: a limit of data (RLIMIT_DATA). files: Landlock. system_calls: seccomp, which also blocks the network and
    changes of file metadata. parent: workers end with their parent, and have no capabilities.
    """

    memory: bool
    files: bool
    system_calls: bool
    parent: bool

    @property
    def missing(self) -> tuple[str, ...]:
        """The names of missing protections."""
        return tuple(field.name for field in fields(self) if not getattr(self, field.name))


def protections() -> Protections:
    """Return the protections of this machine. Workers report themselves what they could not set up."""
    is_linux = sys.platform.startswith("linux")
    has_limits = importlib.util.find_spec("resource") is not None and sys.platform != "darwin"
    return Protections(has_limits, version() > 0, is_supported(), is_linux)
