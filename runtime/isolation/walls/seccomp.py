"""seccomp: the calls of the kernel that a process is refused. Linux on x86-64 and 64-bit ARM.

Refused are sockets, other programs and processes, memory of its own that no limit counts, metadata of files, settings
of the machine, and what opens the kernel itself. What is not listed is allowed: the limits and Landlock are the walls
of memory and of files.

Source: https://docs.kernel.org/userspace-api/seccomp_filter.html
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys

_SET_FILTER, _ASK, _ALL_THREADS = 1, 2, 1
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL, _FAIL = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT, _FOURTH_ARGUMENT = 0, 4, 16, 40
_NEW_THREAD = 0x00010000  # CLONE_THREAD
_X32 = 0x40000000

_AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_SECCOMP = {"x86_64": 317, "aarch64": 277}

# fmt: off
_REFUSED = {
    # the name, its number on x86-64 (None where that has it not) and on 64-bit ARM
    "socket": (41, 198), "socketpair": (53, 199), "bind": (49, 200), "listen": (50, 201), "accept": (43, 202),
    "connect": (42, 203), "accept4": (288, 242),
    "execve": (59, 221), "execveat": (322, 281), "fork": (57, None), "vfork": (58, None),
    "kill": (62, 129), "tkill": (200, 130), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
    "pidfd_open": (434, 434), "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "process_madvise": (440, 440), "process_mrelease": (448, 448), "move_pages": (279, 239),
    "migrate_pages": (256, 238),
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194), "shmat": (30, 196),
    "shmctl": (31, 195), "mq_open": (240, 180), "msgget": (68, 186), "semget": (64, 190),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "personality": (135, 92),
    "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "open_tree": (428, 428),
    "move_mount": (429, 429), "mount_setattr": (442, 442), "setns": (308, 268), "unshare": (272, 97),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265),
    "init_module": (175, 105), "delete_module": (176, 106), "finit_module": (313, 273), "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "swapon": (167, 224), "swapoff": (168, 225), "reboot": (169, 142),
    "iopl": (172, None), "ioperm": (173, None), "quotactl": (179, 60), "acct": (163, 89), "syslog": (103, 116),
    # what files are called by, owned by and dated; Landlock knows no such rights, and truncation only from version 3 on
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452), "chown": (92, None),
    "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54), "utime": (132, None), "utimes": (235, None),
    "futimesat": (261, None), "utimensat": (280, 88), "setxattr": (188, 5), "lsetxattr": (189, 6),
    "fsetxattr": (190, 7), "setxattrat": (463, 463), "removexattr": (197, 14), "lremovexattr": (198, 15),
    "fremovexattr": (199, 16), "removexattrat": (466, 466), "file_setattr": (469, 469), "truncate": (76, 45),
    "ftruncate": (77, 46), "fallocate": (285, 47),
    # what all processes of the machine share
    "setpriority": (141, 140), "sched_setaffinity": (203, 122), "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118), "sched_setattr": (314, 274), "ioprio_set": (251, 30), "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263), "sethostname": (170, 161), "setdomainname": (171, 162), "settimeofday": (164, 170),
    "clock_settime": (227, 112), "adjtimex": (159, 171), "clock_adjtime": (305, 266),
}
# fmt: on
_TO_ITSELF = {"tgkill": (234, 131), "prlimit64": (302, 261)}
"""Calls whose first argument must be this process: abort() signals itself, and limits are read."""
_PRCTL, _SET_DEATH_SIGNAL = (157, 167), 1
_MMAP = (9, 222)
_SHARED, _ANONYMOUS, _GROWS_DOWN = 0x01, 0x20, 0x0100
_CLONE = (56, 220)
_CLONE3 = (435, 435)


def is_supported() -> bool:
    """Return whether the kernel has seccomp, and this file its numbers."""
    machine = platform.machine()
    if not sys.platform.startswith("linux") or machine not in _AUDIT:
        return False
    action = ctypes.byref(ctypes.c_uint32(_FAIL))
    return bool(ctypes.CDLL(None, use_errno=True).syscall(_SECCOMP[machine], _ASK, 0, action) == 0)


def refuse() -> list[str]:
    """Refuse this process the calls of `_REFUSED`, for good; return what could not be refused, a phrase each.

    No new privileges must have been given up before (`prctl`).
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
    """Return the filter in classic BPF."""
    column = list(_AUDIT).index(machine)
    fail = _step(_RETURN, _FAIL | errno.EPERM)
    made = [_step(_LOAD, _ARCHITECTURE), _step(_EQUAL, _AUDIT[machine], 1, 0), _step(_RETURN, _KILL)]
    made.append(_step(_LOAD, _NUMBER))
    if machine == "x86_64":
        made += [_step(_AT_LEAST, _X32, 0, 1), fail]
    for numbers in _REFUSED.values():
        if (number := numbers[column]) is not None:
            made += [_step(_EQUAL, number, 0, 1), fail]
    # glibc then calls clone, whose flags can be looked at
    made += [_step(_EQUAL, _CLONE3[column], 0, 1), _step(_RETURN, _FAIL | errno.ENOSYS)]
    made += [
        _step(_EQUAL, _CLONE[column], 0, 4),
        _step(_LOAD, _FIRST_ARGUMENT),
        _step(_ANY_BIT, _NEW_THREAD, 0, 1),
        _step(_RETURN, _ALLOW),
        fail,
    ]
    # it ends with its parent for good
    made += [_step(_EQUAL, _PRCTL[column], 0, 4), _step(_LOAD, _FIRST_ARGUMENT)]
    made += [_step(_EQUAL, _SET_DEATH_SIGNAL, 0, 1), fail, _step(_RETURN, _ALLOW)]
    # memory that RLIMIT_DATA does not count: shared without a file, and what grows down
    made += [_step(_EQUAL, _MMAP[column], 0, 6), _step(_LOAD, _FOURTH_ARGUMENT)]
    made += [_step(_ANY_BIT, _GROWS_DOWN, 2, 0), _step(_ANY_BIT, _ANONYMOUS, 0, 2)]
    made += [_step(_ANY_BIT, _SHARED, 0, 1), fail, _step(_RETURN, _ALLOW)]
    for own in _TO_ITSELF.values():
        made += [_step(_EQUAL, own[column], 0, 5), _step(_LOAD, _FIRST_ARGUMENT)]
        made += [_step(_EQUAL, 0, 1, 0), _step(_EQUAL, process, 0, 1), _step(_RETURN, _ALLOW), fail]
    return b"".join([*made, _step(_RETURN, _ALLOW)])


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


__all__ = ["refuse"]
