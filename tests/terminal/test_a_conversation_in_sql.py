"""`calve sql` without a statement, on a terminal."""

from pathlib import Path

import pytest
from screen import INTERRUPT, INTERRUPT_ITS_CHILD, Drawn, talk

pytestmark = pytest.mark.programs

UP = "\x1b[A"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "calve.toml").write_text("")
    return tmp_path


def say(place: Path, *lines: str) -> Drawn:
    return talk(
        "-m", "calve.cli", "sql", answers=lines, prompt="> ", cwd=place, HOME=str(place), LANG="C.UTF-8"
    )  # fmt: skip


def shown(drawn: Drawn, text: str) -> int:
    return sum(text in line for line in drawn.lines)


def test_statements_go_over_lines_errors_are_said_and_the_next_one_is_asked_for(place: Path) -> None:
    drawn = say(
        place,
        "\n",
        "SELECT 40 + 2\n",
        "AS answer;\n",
        "SELECT ';\n",  # the quote is open
        "' || 'later' AS said;\n",
        "SELEC 1;\n",
        "SELECT nope\n",
        INTERRUPT,
        "help\n",
        "SELECT 1; SHOW TABLES LIKE 'w%';\n",
        "\\q\n",
    )
    assert shown(drawn, "│     42 │") == 1
    assert shown(drawn, "later") == 2  # typed, and answered
    assert shown(drawn, "error: SELEC is not a statement") == 1
    assert shown(drawn, "hint:") == 1
    assert shown(drawn, "unknown") == 0  # what was interrupted is not sent
    assert shown(drawn, "SYSTEM STOP EXPORTS db.events;") == 1
    assert shown(drawn, "workers") == 1
    assert drawn.lines[-1].endswith("\\q")


def test_what_was_typed_is_recalled_as_one_line_also_the_next_time(place: Path) -> None:
    say(place, "SELECT 1,\n", "2, 'kept';\n", "exit;\n")
    kept = place / ".local/state/calve/sql_history"
    assert kept.read_text() == "SELECT 1, 2, 'kept';\n"
    assert kept.stat().st_mode & 0o777 == 0o600
    drawn = say(place, f"{UP}\n", "\x04")
    assert shown(drawn, "│ 1 │ 2 │ kept") == 1


def test_a_statement_that_runs_is_interrupted_and_the_next_one_is_asked_for(place: Path) -> None:
    slow = "SELECT count() FROM (SELECT arrayJoin(range(300000)) AS a) AS x, (SELECT arrayJoin(range(300000)) AS b) AS y;\n"
    drawn = say(place, slow, INTERRUPT_ITS_CHILD, "SELECT 40 + 2 AS answer;\n", "\\q\n")
    assert shown(drawn, "interrupted") == 1
    assert shown(drawn, "error:") == 0
    assert shown(drawn, "│     42 │") == 1
