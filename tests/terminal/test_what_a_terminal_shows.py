"""What people see: lines that stay lines on any width, readable without colour, nothing left behind."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from screen import run

from calve.app.config.template import render
from calve.cli import output
from calve.model.errors import ErrorInfo
from calve.model.process import NewProcess, Worker, WorkerId, new_process_id
from calve.store import open_store

pytestmark = pytest.mark.programs

SHOWS_PROGRESS = str(Path(__file__).with_name("shows_progress.py"))


@pytest.mark.parametrize("columns", [40, 60, 80, 140])
def test_a_line_of_progress_stays_a_line(columns: int) -> None:
    drawn = run(SHOWS_PROGRESS, "2", columns=columns)
    assert max(len(line) for line in drawn.lines) <= columns
    running = [line for line in drawn.lines if "RUNNING" in line]
    assert running and all("202401" in line or "202402" in line for line in running)
    assert all("3/4 tasks" in line for line in running)


def test_a_wide_terminal_shows_the_bar_the_rows_and_what_is_waited_for() -> None:
    drawn = run(SHOWS_PROGRESS, "1", columns=140)
    (line,) = {line for line in drawn.lines if "RUNNING" in line}
    assert "███████████████░░░░░" in line
    assert "1,234,567 rows" in line
    assert "retrying after: catalog lake does not answer" in line
    assert line.endswith("…"), "a long reason is cut, not wrapped"


def test_before_it_is_planned_no_total_is_pretended() -> None:
    drawn = run(SHOWS_PROGRESS, "1", columns=100)
    pending = [line for line in drawn.lines if "PENDING" in line]
    assert pending and not any("█" in line or "░" in line or "?" in line for line in pending)


def test_many_processes_share_one_line() -> None:
    drawn = run(SHOWS_PROGRESS, "12", columns=100)
    assert any("0/12 processes" in line and "36/48 tasks" in line for line in drawn.lines)
    assert not any("202401" in line for line in drawn.lines)


def test_no_color_is_obeyed_and_colour_is_not_needed() -> None:
    assert not run(SHOWS_PROGRESS, "1", columns=100, NO_COLOR="1").coloured
    assert any("RUNNING" in line for line in run(SHOWS_PROGRESS, "1", columns=100, NO_COLOR="1").lines)


def test_a_dumb_terminal_gets_plain_lines() -> None:
    drawn = run(SHOWS_PROGRESS, "1", columns=100, TERM="dumb")
    assert "\x1b" not in drawn.raw
    assert [line.split()[:2] for line in drawn.lines] == [
        ["202401", "PENDING"],
        ["202401", "RUNNING"],
        ["202401", "COMPLETED"],
    ]


def test_ps_fits_a_narrow_terminal_and_is_whole_on_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "calve.toml").write_text(render())
    destination = "lake.a_rather_long_namespace.a_table_with_a_long_name"
    process_id = new_process_id()
    with open_store(f"sqlite:///{tmp_path / 'calve.db'}") as store:
        store.submit(
            [
                NewProcess(
                    id=process_id, kind="export", source="main:database.another_long_name", destination=destination,
                    lane="catalog:lake", needs=(), request="{}", partitions=("202401",),
                )
            ]
        )  # fmt: skip
    drawn = run("-m", "calve.cli", "ps", columns=80, cwd=tmp_path)
    assert max(len(line) for line in drawn.lines) <= 80
    assert process_id in drawn.lines[1] and "PENDING" in drawn.lines[1] and "…" in drawn.lines[1]
    wide = run("-m", "calve.cli", "ps", columns=200, cwd=tmp_path)
    assert destination in wide.lines[1]


def test_at_80_columns_the_processes_of_a_batch_can_be_told_apart(tmp_path: Path) -> None:
    """The cut falls on what matters least: they differ by their partitions alone."""
    (tmp_path / "calve.toml").write_text(render())
    with open_store(f"sqlite:///{tmp_path / 'calve.db'}") as store:
        store.submit(
            [
                NewProcess(
                    id=new_process_id(), kind="export", source="main:shop.orders", destination="lake.shop.orders",
                    lane="catalog:lake", needs=(), request="{}", partitions=(partition,),
                )
                for partition in ("202401", "202402")
            ]
        )  # fmt: skip
    drawn = run("-m", "calve.cli", "ps", columns=80, cwd=tmp_path)
    assert max(len(line) for line in drawn.lines) <= 80
    rows = [line.split() for line in drawn.lines[1:3]]
    assert drawn.lines[0].split() == ["ID", "STATE", "SOURCE", "DESTINATION", "PARTITIONS", "TASKS", "AGE"]
    assert {row[4] for row in rows} == {"202401", "202402"}
    assert all(row[2].endswith("shop.orders") and row[3].endswith("shop.orders") for row in rows)


def test_at_80_columns_a_worker_is_a_line_with_its_name_and_last_error(tmp_path: Path) -> None:
    (tmp_path / "calve.toml").write_text(render())
    now = datetime.now(UTC)
    with open_store(f"sqlite:///{tmp_path / 'calve.db'}") as store:
        error = ErrorInfo(code="unreachable", message="catalog lake does not answer")
        reach = ("source:main", "catalog:lake", "backup:file:///backups")
        store.heartbeat(
            Worker(id=WorkerId("lake-7-ee7mtb"), host="lake.example.org", reach=reach, slots=4, started_at=now,
                   heartbeat_at=now, error=error)
        )  # fmt: skip
    drawn = run("-m", "calve.cli", "ps", "--workers", columns=80, cwd=tmp_path)
    assert max(len(line) for line in drawn.lines) <= 80
    assert "lake-7-ee7mtb" in drawn.lines[1] and "catalog lak" in drawn.lines[1]


@pytest.mark.parametrize("columns", [30, 100])
def test_a_line_stands_while_something_takes_its_time_and_is_gone_afterwards(columns: int) -> None:
    code = "from calve.cli import output\nwith output.during('looking at db.events and lake.ns.events ...'): pass"
    drawn = run("-c", code, columns=columns)
    assert drawn.raw.startswith("looking at db.events"[: columns - 1])
    assert max(len(line) for line in drawn.lines) < columns, "no wrapping: it could not be wiped"
    assert drawn.raw.endswith("\r\x1b[2K")
    assert run("-c", code, columns=columns, TERM="dumb").raw == ""


def test_only_what_may_be_cut_is_cut() -> None:
    head, rows = ("ID", "NAME"), [("0123456789" * 3, "n" * 40)]
    text = output.table(head, rows, width=50, cut=frozenset({"NAME"}))
    assert text.splitlines()[1] == f"{'0123456789' * 3}  {'n' * 17}…"
    assert output.table(head, rows, width=10, cut=frozenset({"NAME"})).splitlines()[1].endswith("  nnnnn…")
    assert output.table(head, rows) == output.table(head, rows, width=1)
