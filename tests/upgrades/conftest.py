from pathlib import Path

import pytest
from unpack import unpack

from calve.app.wiring import App
from support.calve_command import Run, in_this_process
from support.local_runner import LocalRunner

# What each version left, made by `make.py`: the first release, then the last commit of each schema of the store. Today's is
# read here too, so that it is known to be whole.
SCHEMAS = range(3, 8)
FIXTURES = ("v0_1", *(pytest.param(f"schema_{number}", marks=pytest.mark.long) for number in SCHEMAS))


@pytest.fixture(params=FIXTURES)
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The folder of an installation as that version left it."""
    return unpack(Path(__file__).with_name(f"{request.param}.tar.xz"), tmp_path)


@pytest.fixture
def run(
    root: Path, runner: LocalRunner, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Run:
    """Today's `calve` in that folder; tasks run in a child instead of Spark."""
    monkeypatch.setattr(App, "runner", property(lambda app: runner))
    return in_this_process(root, capsys, monkeypatch)
