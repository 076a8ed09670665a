"""Two walls, each tried alone: the list refuses, and where it would not, the cage denies."""

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from calve.clickhouse.embedded.cage import Cage
from calve.clickhouse.embedded.parser import Parser
from calve.clickhouse.engine.engine import EngineError
from calve.model.errors import UsageError
from calve.sql import allowance, statement
from sql.escapes import CANARY, escapes

pytestmark = pytest.mark.programs

TABLES = ("calve.processes", "system.exports")


@pytest.fixture
def trap(tmp_path: Path) -> Iterator[tuple[list[str], Path, socket.socket]]:
    """Statements, the folder with the secret, and the socket that nobody must reach."""
    (tmp_path / "secret.txt").write_text(CANARY + "\n")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        port = listener.getsockname()[1]
        places = {
            "secret": tmp_path / "secret.txt",
            "out": tmp_path / "out.txt",
            "folder": tmp_path,
            "port": port,
        }
        yield escapes(**places), tmp_path, listener


def test_every_escape_is_refused_by_the_list(cage: Cage, trap: tuple[list[str], Path, socket.socket]) -> None:
    texts, folder, _ = trap
    assert len(texts) >= 150
    through = []
    for text in texts:
        with contextlib.suppress(UsageError):
            parsed = statement.parse(text)
            assert isinstance(parsed, statement.Select)
            allowance.allowed(Parser(cage), parsed.sql, TABLES)
            through.append(text)
    assert through == []
    assert sorted(one.name for one in folder.iterdir()) == ["secret.txt"]


def test_every_escape_is_denied_by_the_cage_without_the_list(
    cage: Cage, trap: tuple[list[str], Path, socket.socket]
) -> None:
    texts, folder, listener = trap
    answered = {}
    for text in texts:
        with contextlib.suppress(EngineError):
            answered[text] = cage.run(text, "TSV", {}, 20.0)
        assert cage.alive, text
    assert answered == {}
    assert sorted(one.name for one in folder.iterdir()) == ["secret.txt"]
    with pytest.raises(BlockingIOError):
        listener.accept()
