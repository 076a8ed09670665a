"""What a caged child may ask of the kernel: memory, threads, clocks and the pipes it has. Nothing else.

The list says what is allowed, and every other call fails with EPERM: opening a file, making a socket, starting
a program, io_uring (whose requests no filter sees), signals to others, and whatever the next kernel adds. A list
of what is forbidden would have to name them all.

Once installed it holds for every thread of the process and cannot be taken back.
"""

import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Sequence

# name: (x86-64, aarch64); None where that machine has no such call
_ALLOWED: dict[str, tuple[int | None, int | None]] = {
    # memory
    "brk": (12, 214),
    "madvise": (28, 233),
    "mmap": (9, 222),
    "mprotect": (10, 226),
    "mremap": (25, 216),
    "munmap": (11, 215),
    # threads; clone and clone3 are below
    "exit": (60, 93),
    "exit_group": (231, 94),
    "futex": (202, 98),
    "getcpu": (309, 168),
    "getpid": (39, 172),
    "getrusage": (98, 165),
    "gettid": (186, 178),
    "membarrier": (324, 283),
    "restart_syscall": (219, 128),
    "rseq": (334, 293),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "sched_getaffinity": (204, 123),
    "sched_yield": (24, 124),
    "set_robust_list": (273, 99),
    "sigaltstack": (131, 132),
    # clocks
    "clock_getres": (229, 114),
    "clock_gettime": (228, 113),
    "clock_nanosleep": (230, 115),
    "gettimeofday": (96, 169),
    "nanosleep": (35, 101),
    "setitimer": (38, 103),  # the child's own end, see cage_child
    "time": (201, None),
    "timer_create": (222, 107),
    "timer_delete": (226, 111),
    "timer_settime": (223, 110),
    "timerfd_create": (283, 85),
    "timerfd_settime": (286, 86),
    # what is open already, and pipes between its own threads
    "close": (3, 57),
    "epoll_create1": (291, 20),
    "epoll_ctl": (233, 21),
    "epoll_pwait": (281, 22),
    "epoll_wait": (232, None),
    "eventfd2": (290, 19),
    "fstat": (5, 80),
    "lseek": (8, 62),
    "pipe2": (293, 59),
    "poll": (7, None),
    "ppoll": (271, 73),
    "pread64": (17, 67),
    "read": (0, 63),
    "readv": (19, 65),
    "write": (1, 64),
    "writev": (20, 66),
    # the machine
    "getrandom": (318, 278),
    "sysinfo": (99, 179),
    "uname": (63, 160),
}
_GUARDED: dict[str, tuple[int, int]] = {
    "clone": (56, 220),
    "clone3": (435, 435),
    "fcntl": (72, 25),
    "newfstatat": (262, 79),
    "prctl": (157, 167),
    "prlimit64": (302, 261),
    "tgkill": (234, 131),
}
NUMBERS = {**_ALLOWED, **_GUARDED}
_SECCOMP = (317, 277)
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column above, AUDIT_ARCH

_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCHITECTURE = 0, 4
_CLONE_THREAD, _AT_EMPTY_PATH = 0x00010000, 0x1000
_PR_SET_NAME, _PR_GET_NAME, _PR_SET_NO_NEW_PRIVS = 15, 16, 38
_SET_FILTER, _ALL_THREADS = 1, 1

Check = tuple[int, int, Sequence[int]]  # offset in seccomp_data, operation, values of which one must fit


def missing() -> str:
    """Why this machine cannot cage; empty where it can try."""
    if sys.platform != "linux" or sys.byteorder != "little":
        return f"{platform.system()} has no seccomp"
    if platform.machine() not in _MACHINES:
        return f"no list of system calls for {platform.machine()}"
    return ""


def program(machine: str, pid: int) -> bytes:
    """The filter as the kernel takes it, for a process with this id."""
    column, architecture = _MACHINES[machine]
    plain = [numbers[column] for numbers in _ALLOWED.values()]
    lines = [
        _line(_LOAD, _ARCHITECTURE),
        _line(_EQUAL, architecture, 1, 0),
        _line(_RETURN, _KILL),
        _line(_LOAD, _NUMBER),
    ]
    for number in (one for one in plain if one is not None):
        lines += [_line(_EQUAL, number, 0, 1), _line(_RETURN, _ALLOW)]
    guarded: list[tuple[int, list[Check]]] = [
        (_GUARDED["clone"][column], [(_argument(0), _ANY_BIT, [_CLONE_THREAD])]),
        (_GUARDED["fcntl"][column], [(_argument(1), _EQUAL, [1, 2, 3, 4])]),  # flags of a handle
        (
            _GUARDED["newfstatat"][column],
            [(_argument(3), _ANY_BIT, [_AT_EMPTY_PATH])],
        ),  # a handle, not a path
        (_GUARDED["prctl"][column], [(_argument(0), _EQUAL, [_PR_SET_NAME, _PR_GET_NAME])]),
        (  # read its own limits, set none
            _GUARDED["prlimit64"][column],
            [(_argument(0), _EQUAL, [0]), (_argument(2), _EQUAL, [0]), (_argument(2) + 4, _EQUAL, [0])],
        ),
        (_GUARDED["tgkill"][column], [(_argument(0), _EQUAL, [pid])]),
    ]
    for number, checks in guarded:
        block = _block(checks)
        lines += [_line(_EQUAL, number, 0, len(block)), *block]
    # Its arguments are behind a pointer, which a filter cannot follow. The C library then uses clone.
    lines += [_line(_EQUAL, _GUARDED["clone3"][column], 0, 1), _line(_RETURN, _ERRNO | errno.ENOSYS)]
    lines.append(_line(_RETURN, _ERRNO | errno.EPERM))
    return b"".join(lines)


def install() -> None:
    """Cage this process, all its threads, for ever. OSError where the kernel refuses."""
    machine = platform.machine()
    lines = program(machine, os.getpid())
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "no_new_privs")
    buffer = ctypes.create_string_buffer(lines, len(lines))
    filters = _Program(len(lines) // 8, ctypes.cast(buffer, ctypes.c_void_p))
    number = _SECCOMP[_MACHINES[machine][0]]
    if libc.syscall(number, _SET_FILTER, _ALL_THREADS, ctypes.byref(filters)) != 0:
        raise OSError(ctypes.get_errno() or errno.EBUSY, "seccomp")


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("lines", ctypes.c_void_p)]


def _line(operation: int, value: int, then: int = 0, otherwise: int = 0) -> bytes:
    return struct.pack("<HBBI", operation, then, otherwise, value)


def _argument(index: int) -> int:
    """Where the lower half of a call's argument is."""
    return 16 + 8 * index


def _block(checks: Sequence[Check]) -> list[bytes]:
    """Allowed when every check has a value that fits."""
    lines: list[bytes] = []
    for offset, operation, values in checks:
        lines.append(_line(_LOAD, offset))
        lines += [_line(operation, value, len(values) - at, 0) for at, value in enumerate(values)]
        lines.append(_line(_RETURN, _ERRNO | errno.EPERM))
    return [*lines, _line(_RETURN, _ALLOW)]
