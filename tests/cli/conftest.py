from pathlib import Path

import pytest

from support.calve_command import Run, in_this_process


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command, in a folder of its own; in this process, which saves a second of imports each."""
    return in_this_process(tmp_path, capsys, monkeypatch)
