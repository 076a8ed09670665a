from functools import partial
from pathlib import Path

import pytest
from calve_command import Run, call


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """The command, in a folder of its own."""
    return partial(call, cwd=tmp_path)
