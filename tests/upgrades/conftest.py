from pathlib import Path

import pytest
from unpack import unpack

from calve.app.wiring import App
from support.calve_command import Run, in_this_process
from support.local_runner import LocalRunner


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The folder of an installation as release 0.1.0 left it (`make_v0_1.py`)."""
    return unpack(Path(__file__).with_name("v0_1.tar.xz"), tmp_path)


@pytest.fixture
def run(
    root: Path, runner: LocalRunner, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Run:
    """Today's `calve` in that folder; tasks run in a child instead of Spark."""
    monkeypatch.setattr(App, "runner", property(lambda app: runner))
    return in_this_process(root, capsys, monkeypatch)
