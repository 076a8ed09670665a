from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.calve_command import Answer, Run, in_this_process, through_a_server


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command, in a folder of its own; in this process, which saves a second of imports each."""
    return in_this_process(tmp_path, capsys, monkeypatch)


@pytest.fixture(params=["here", "served"])
def run_both(request: pytest.FixtureRequest, run: Run, tmp_path: Path) -> Iterator[Run]:
    """The command by itself, and with CALVE_SERVER: the same output, the same exit codes."""
    if request.param == "here":
        yield run
        return
    with ExitStack() as stack:
        there = through_a_server(run, stack)

        def call(*arguments: str, cwd: Path = tmp_path, env: dict[str, str] | None = None) -> Answer:
            return there(*arguments, cwd=cwd, env=env)

        yield call
