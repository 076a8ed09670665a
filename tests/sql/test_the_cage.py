"""A caged child: what the kernel denies it, and that it always ends."""

import errno
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from calve.clickhouse.embedded import seccomp
from calve.clickhouse.embedded.cage import Busy, Cage, CageDied, Cages, CageTimeout
from calve.clickhouse.engine.engine import EngineError
from calve.model.errors import RefusedError
from sql.schemas import TABLE

pytestmark = pytest.mark.programs

FOREVER = "SELECT count() FROM numbers(1000000000000) WHERE sipHash64(number) = 1"


def test_the_kernel_denies_what_a_caged_process_may_not() -> None:
    """Each by a call of its own, in a process that has only the filter."""
    tried = json.loads(subprocess.run([sys.executable, "-c", _TRIED], check=True, capture_output=True).stdout)
    denied = {name: code for name, code in tried.items() if name != "allowed"}
    assert set(denied.values()) == {errno.EPERM}, denied
    assert tried["allowed"] == "a thread, memory, the clock"


_TRIED = """
import ctypes, json, mmap, os, socket, threading, time
from calve.clickhouse.embedded import seccomp
libc = ctypes.CDLL(None, use_errno=True)
seen = {}
def call(name, work):
    try:
        work()
        seen[name] = 0
    except OSError as error:
        seen[name] = error.errno
def raw(x86, arm, *args):
    ctypes.set_errno(0)
    number = x86 if os.uname().machine == "x86_64" else arm
    if libc.syscall(number, *args) == -1:
        raise OSError(ctypes.get_errno(), "")
parent = os.getppid()
limit = ctypes.create_string_buffer(16)
held = os.open("/etc/hostname", os.O_RDONLY)
seccomp.install()
call("open", lambda: os.open("/etc/hostname", os.O_RDONLY))
call("create", lambda: os.open("/tmp/caged", os.O_CREAT | os.O_WRONLY))
call("stat", lambda: os.stat("/etc/hostname"))
call("list", lambda: os.listdir("/"))
call("unlink", lambda: os.unlink("/tmp/caged"))
call("mkdir", lambda: os.mkdir("/tmp/caged"))
call("link", lambda: os.symlink("/etc", "/tmp/caged"))
call("rename", lambda: os.rename("/tmp/a", "/tmp/b"))
call("chdir", lambda: os.chdir("/"))
call("socket", lambda: socket.socket())
call("unix socket", lambda: socket.socketpair())
call("fork", lambda: os.fork())
call("exec", lambda: os.execv("/bin/true", ["true"]))
call("kill", lambda: os.kill(parent, 0))
call("another's thread", lambda: raw(234, 131, parent, parent, 0))
call("ptrace", lambda: raw(101, 117, 16, parent, 0, 0))
call("io_uring", lambda: raw(425, 425, 4, 0))
call("open_by_handle_at", lambda: raw(304, 265, 3, 0, 0))
call("process_vm_readv", lambda: raw(310, 270, parent, 0, 0, 0, 0, 0))
call("pidfd_open", lambda: raw(434, 434, parent, 0))
call("memfd", lambda: os.memfd_create("x"))
call("mount", lambda: raw(165, 40, 0, 0, 0, 0, 0))
call("unshare", lambda: raw(272, 97, 0))
call("bpf", lambda: raw(321, 280, 0, 0, 0))
call("raise a limit", lambda: raw(302, 261, 0, 1, limit, 0))
call("another's limit", lambda: raw(302, 261, parent, 1, 0, limit))
call("dup", lambda: os.dup(held))
call("chmod by handle", lambda: os.fchmod(held, 0o644))
call("ioctl", lambda: raw(16, 29, held, 0x5412, 0))
thread = threading.Thread(target=lambda: seen.setdefault("allowed", "a thread, memory, the clock"))
thread.start(); thread.join()
mmap.mmap(-1, 1 << 20); time.time(); os.read(held, 1); os.fstat(held)
os.write(1, json.dumps(seen).encode())
os._exit(0)
"""


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_numbers_are_those_of_the_kernel_headers(machine: str) -> None:
    places = {
        "x86_64": "/usr/include/x86_64-linux-gnu/asm/unistd_64.h",
        "aarch64": "/usr/include/asm-generic/unistd.h",
    }
    header = Path(places[machine])
    if not header.exists():
        pytest.skip(f"this machine has no {header}")
    known = _numbers(header.read_text())
    for name, numbers in seccomp.NUMBERS.items():
        number = numbers[list(places).index(machine)]
        assert number == known.get(name), name


def _numbers(header: str) -> dict[str, int]:
    lines = [line.split() for line in header.splitlines() if line.startswith("#define __NR")]
    found = {words[1].removeprefix("#define "): words[2] for words in lines if len(words) > 2}
    plain = {name: value for name, value in found.items() if value.isdigit()}
    named = {name: plain.get(value, value) for name, value in found.items()}
    return {
        name.removeprefix("__NR3264_").removeprefix("__NR_"): int(value)
        for name, value in named.items()
        if value.isdigit()
    }


def test_a_filter_for_another_machine_is_well_formed() -> None:
    for machine in ("x86_64", "aarch64"):
        lines = seccomp.program(machine, 42)
        assert len(lines) % 8 == 0
        assert len(lines) // 8 < 4096  # the kernel's limit
        assert lines[-8:-6] == b"\x06\x00"  # the last line returns


def test_the_child_has_no_environment_and_no_folder(cage: Cage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CALVE_SECRET", "canary")
    own = Cage(tables=[TABLE], memory_mb=1024)
    try:
        seen = Path(f"/proc/{own.pid}/environ").read_bytes()
        names = {entry.split(b"=")[0] for entry in seen.split(b"\0") if entry}
        assert names <= {b"PATH", b"LANG", b"TZ", b"LD_LIBRARY_PATH"}
        assert Path(f"/proc/{own.pid}/cwd").readlink().name.endswith("(deleted)")
        assert "Seccomp:\t2" in Path(f"/proc/{own.pid}/status").read_text()
        assert own.uncaged == ""
    finally:
        own.kill()


def test_a_statement_is_killed_at_its_limit(cage: Cage) -> None:
    with pytest.raises(CageTimeout):
        cage.run(FOREVER, "TSV", {}, 0.3)
    assert not cage.alive


def test_a_child_whose_parent_went_away_ends_by_its_own_alarm(cage: Cage) -> None:
    """Stopped parents do not kill; the alarm was armed before the statement began."""
    fields = Path(f"/proc/{cage.pid}/status").read_text()
    ignored = next(line for line in fields.splitlines() if line.startswith("SigIgn"))
    assert not int(ignored.split()[1], 16) >> 13 & 1  # SIGALRM ends it


def test_memory_is_limited_and_a_child_without_any_left_is_ended(cage: Cage) -> None:
    with pytest.raises(EngineError, match="MEMORY_LIMIT_EXCEEDED"):
        cage.run("SELECT length(groupArray(number)) FROM numbers(200000000)", "TSV", {}, 30.0)
    assert not cage.alive


def test_an_answer_is_limited(cage: Cage) -> None:
    with pytest.raises(EngineError, match="TOO_MANY_ROWS_OR_BYTES"):
        cage.run("SELECT repeat('x', 1000) FROM numbers(100000)", "TSV", {}, 30.0)


def test_rows_of_one_statement_are_gone_at_the_next(cage: Cage) -> None:
    row = b'{"id": "a", "rows": 1, "created_at": "2026-01-01 00:00:00", "parts": []}\n'
    assert cage.run("SELECT count() FROM processes", "TSV", {TABLE.name: [row, row]}, 10.0) == b"2\n"
    with pytest.raises(EngineError, match="UNKNOWN_IDENTIFIER"):
        cage.run("SELECT nothing FROM processes", "TSV", {TABLE.name: [row]}, 10.0)
    assert cage.run("SELECT count() FROM processes", "TSV", {}, 10.0) == b"0\n"


def test_a_row_that_does_not_fit_is_an_error_and_the_next_statement_runs(cage: Cage) -> None:
    with pytest.raises(EngineError):
        cage.run("SELECT 1", "TSV", {TABLE.name: [b'{"rows": "many"}', b'{"rows": 1}']}, 10.0)
    assert cage.run("SELECT count() FROM processes", "TSV", {}, 10.0) == b"0\n"


def test_a_child_that_dies_says_so(cage: Cage) -> None:
    os.kill(cage.pid, 9)
    with pytest.raises(CageDied):
        cage.run("SELECT 1", "TSV", {}, 10.0)


def test_a_machine_without_seccomp_refuses_where_a_cage_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("calve.clickhouse.embedded.cage._MODULE", "sql.uncaged_child")
    monkeypatch.setattr("calve.clickhouse.embedded.cage._FLAGS", ["-P"])
    monkeypatch.setattr(
        "calve.clickhouse.embedded.cage._environment", lambda: {"PYTHONPATH": os.pathsep.join(sys.path)}
    )
    with pytest.raises(RefusedError, match="no list of system calls"):
        Cage(tables=[TABLE], memory_mb=1024)
    free = Cage(tables=[TABLE], memory_mb=1024, required=False)
    try:
        assert "no list of system calls" in free.uncaged
        assert free.run("SELECT 1", "TSV", {}, 10.0) == b"1\n"
    finally:
        free.kill()


@pytest.fixture
def cages() -> Iterator[Cages]:
    held = Cages(tables=[TABLE], memory_mb=1024, at_once=2, statements=2)
    yield held
    held.close()


def test_two_run_at_once_and_one_for_each_caller(cages: Cages) -> None:
    with cages.take("alice") as first:
        with pytest.raises(Busy, match="of yours"), cages.take("alice"):
            pass
        with cages.take("bob") as second:
            assert first.pid != second.pid
            with pytest.raises(Busy, match="2 SELECTs"), cages.take("carol"):
                pass
            pid = second.pid
            second.run("SELECT 1", "TSV", {}, 10.0)
        with cages.take("carol") as again:
            assert again.pid == pid  # used again
            again.run("SELECT 1", "TSV", {}, 10.0)
        with cages.take("carol") as fresh:
            assert fresh.pid != pid  # after two statements


def test_what_nobody_waits_for_any_more_ends_and_others_go_on(cages: Cages) -> None:
    with cages.take("bob", "other") as other:
        with pytest.raises(CageDied), cages.take("alice", "mine") as cage:
            threading.Timer(0.1, cages.leave, ["mine"]).start()
            cage.run(FOREVER, "TSV", {}, 3600.0)
        assert other.run("SELECT 1", "TSV", {}, 60.0) == b"1\n"
    cages.leave("other")  # it has ended, and its child serves the next one
    with cages.take("alice", "next") as cage:
        assert cage.pid == other.pid
        cages.leave("mine")
        assert cage.run("SELECT 2", "TSV", {}, 60.0) == b"2\n"
