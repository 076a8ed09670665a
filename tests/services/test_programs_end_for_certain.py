"""What a test starts does not outlive it, however it dies."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from calve.model.errors import PermanentError
from support import stacks
from support.programs import ForkedProgram, Program, free_ports, listening, missing

OWNER = """
import sys, time
from pathlib import Path
from support.programs import Program
program = Program("sleeper", [sys.executable, "-c", "import subprocess, time; "
    "child = subprocess.Popen(['sleep', '1000']); print(child.pid, flush=True); time.sleep(1000)"],
    Path(sys.argv[1]))
print(program.pid, program.read_line(), flush=True)
time.sleep(1000)
"""
FORKING_OWNER = """
import sys, time
from pathlib import Path
from support import stacks
from support.programs import ForkedProgram
folder = Path(sys.argv[1])
program = ForkedProgram("waits", ["signal:pause"], folder / "log", {}, folder)
print(program.pid, flush=True)
time.sleep(1000)
"""


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def wait_gone(pid: int) -> None:
    until = time.monotonic() + 30
    while not gone(pid):
        assert time.monotonic() < until, f"process {pid} lives on"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_program_and_its_children_die_with_their_owner(tmp_path: Path, number: signal.Signals) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path / "log")], stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    pids = [int(word) for word in owner.stdout.readline().split()]
    assert len(pids) == 2
    owner.send_signal(number)
    owner.wait()
    owner.stdout.close()
    for pid in pids:
        wait_gone(pid)


def test_a_forked_program_has_a_group_and_signals_of_its_own_and_dies_with_its_owner(tmp_path: Path) -> None:
    def waiting() -> ForkedProgram:
        return ForkedProgram("waits", ["signal:pause"], tmp_path / "log", {}, tmp_path)

    signalled, killed = waiting(), waiting()
    assert os.getpgid(signalled.pid) == signalled.pid != os.getpgid(killed.pid)
    signalled.send(signal.SIGTERM)
    assert signalled.wait() == 128 + signal.SIGTERM
    assert killed.running
    killed.kill()
    killed.kill()
    wait_gone(killed.pid)
    owner = subprocess.Popen(
        [sys.executable, "-c", FORKING_OWNER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    orphan = int(owner.stdout.readline())
    assert not gone(orphan)
    owner.kill()
    owner.wait()
    owner.stdout.close()
    wait_gone(orphan)


def test_a_program_is_killed_with_its_children_and_twice_is_fine(tmp_path: Path) -> None:
    code = "import subprocess, time; c = subprocess.Popen(['sleep', '1000']); print(c.pid, flush=True); time.sleep(1000)"
    program = Program("sleeper", [sys.executable, "-c", code], tmp_path / "log")
    child = int(program.read_line())
    assert program.running
    program.kill()
    program.kill()
    wait_gone(program.pid)
    wait_gone(child)
    assert not program.running


def test_a_program_that_does_not_start_says_what_it_printed(tmp_path: Path) -> None:
    program = Program("broken", [sys.executable, "-c", "import sys; sys.exit('no luck')"], tmp_path / "log")
    with pytest.raises(PermanentError, match="broken ended before it was ready: no luck"):
        program.wait_ready(lambda: False)
    program.kill()


def test_a_program_that_never_gets_ready_is_given_up(tmp_path: Path) -> None:
    program = Program("slow", ["sleep", "1000"], tmp_path / "log")
    with pytest.raises(PermanentError, match="was not ready within 0 s"):
        program.wait_ready(lambda: False, seconds=0.1)
    wait_gone(program.pid)


def test_programs_that_hang_say_where(tmp_path: Path) -> None:
    def started() -> list[Program]:
        hanging = [
            sys.executable,
            "-c",
            "import time\ndef dawdle():\n  print('x', flush=True); time.sleep(900)\ndawdle()",
        ]
        forked = ForkedProgram("dawdler", ["calendar:main", "2026"], tmp_path / "forked.log", {}, tmp_path)
        forked.wait()  # the zygote is there
        program = Program("dawdler", hanging, tmp_path / "log", {"PYTHONFAULTHANDLER": "1"})
        program.read_line()
        return [program, ForkedProgram("waits", ["signal:pause"], tmp_path / "pause.log", {}, tmp_path)]

    earlier = started()
    born_after = stacks.now() + 0.01
    while stacks.now() < born_after:  # as exact as processes' times of birth are
        pass
    later = started()
    asks = [sys.executable, "-X", "faulthandler", "-c", "print('x', flush=True); input()"]
    piped = subprocess.Popen(asks, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert piped.stdout is not None and piped.stdout.readline()
    said = stacks.of_children(born_after)
    assert [f"process {program.pid}" in said for program in (*earlier, *later, piped)] == [
        False,
        False,
        True,
        True,
        True,
    ]
    assert "in dawdle" in said and "support/zygote.py" in said and 'File "<string>", line 1' in said
    assert all(program.running for program in earlier)
    piped.communicate()
    for program in (*earlier, *later):
        program.kill()


def test_a_missing_program_is_named_with_the_command_that_installs_it() -> None:
    error = missing("clickhouse-server", "apt-get install clickhouse-server")
    assert (error.exit_code, error.hint) == (2, "apt-get install clickhouse-server")
    assert "clickhouse-server is not installed" in error.message


def test_free_ports_are_free_and_all_different() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert not any(map(listening, ports))
