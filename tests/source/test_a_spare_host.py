"""A program that expects visits of embedded sources has a child ready that has loaded the engine."""

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from calve.clickhouse.embedded import host, source
from calve.clickhouse.embedded.host import HostProcess, Spare
from calve.clickhouse.embedded.source import EmbeddedSession, EmbeddedSource
from calve.model.errors import CalveError


@pytest.fixture
def expecting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spare]:
    """Two visits. Those of the test program itself, which may last, are another spare's."""
    own = Spare()
    for module in (host, source):
        monkeypatch.setattr(module, "spare", own)
    own.expect(2)
    yield own
    own.expect(-2)
    assert own.host is None


def waiting(expecting: Spare) -> HostProcess:
    waits = expecting.host
    assert waits is not None
    return waits


def test_one_child_serves_the_visits_that_are_expected(tmp_path: Path, expecting: Spare) -> None:
    first = waiting(expecting)
    one, two = (EmbeddedSource(name, tmp_path / name, create=True) for name in ("one", "two"))
    with one.visit() as session:
        assert session.host is first
        assert expecting.host is None, "another child would compete with the visit for the cores"
        session.execute("CREATE TABLE t (a Int8) ENGINE = MergeTree ORDER BY a")
    assert waiting(expecting) is first
    with two.visit() as session:
        assert session.host is first
        assert session.rows("EXISTS TABLE t") == [{"result": 0}], "of the folder before, nothing is left"
    assert expecting.host is None, "no other visit is expected"
    assert not first.alive
    with one.visit() as session:
        assert session.rows("EXISTS TABLE t") == [{"result": 1}]


def test_a_session_that_is_kept_after_its_visit_has_no_part_in_the_next(
    tmp_path: Path, expecting: Spare
) -> None:
    with EmbeddedSource("main", tmp_path / "one", create=True).visit() as kept:
        kept.rows("SELECT 1")
    with pytest.raises(CalveError, match="the visit has ended"):
        kept.rows("SELECT 2")
    with EmbeddedSource("main", tmp_path / "two", create=True).visit() as session:
        assert session.rows("SELECT 3 AS x") == [{"x": 3}]


def test_a_statement_that_outlives_its_visit_ends_with_the_child(tmp_path: Path, expecting: Spare) -> None:
    """Its thread was given up by the caller. It must not take the answers of the next visit."""
    told: list[CalveError] = []

    def ask() -> None:
        try:
            kept.rows(
                "SELECT sleepEachRow(3) FROM numbers(100)", {"function_sleep_max_microseconds_per_block": "0"}
            )
        except CalveError as error:
            told.append(error)

    with EmbeddedSource("main", tmp_path / "one", create=True).visit() as kept:
        assert isinstance(kept, EmbeddedSession)
        given_up = threading.Thread(target=ask)
        given_up.start()
        while not kept.is_asking:
            given_up.join(0.01)
    given_up.join()
    assert [error.code for error in told] == ["source_died"]
    with EmbeddedSource("main", tmp_path / "two", create=True).visit() as session:
        assert session.rows("SELECT 3 AS x") == [{"x": 3}]


def test_a_child_that_waits_leaves_the_folder_to_others(tmp_path: Path, expecting: Spare) -> None:
    folder = tmp_path / "clickhouse"
    with EmbeddedSource("main", folder, create=True).visit():
        pass
    other = HostProcess()
    try:
        assert other.open(folder, "", 60).ok
        held = [one.readlink() for one in Path(f"/proc/{waiting(expecting).pid}/fd").iterdir()]
        assert not any(one.is_relative_to(folder) for one in held)
    finally:
        other.close()


def test_W9_a_child_is_replaced_after_some_visits(
    tmp_path: Path, expecting: Spare, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "_MOST_VISITS", 1)
    first = waiting(expecting)
    with EmbeddedSource("main", tmp_path / "clickhouse", create=True).visit() as session:
        assert session.host is first
    assert not first.alive
    assert waiting(expecting) is not first


def test_a_source_with_a_configuration_of_its_own_has_a_child_of_its_own(
    tmp_path: Path, expecting: Spare
) -> None:
    config = tmp_path / "config.xml"
    config.write_text("<clickhouse></clickhouse>")
    with EmbeddedSource("plain", tmp_path / "plain", create=True).visit():
        pass
    used = waiting(expecting)
    configured = EmbeddedSource("own", tmp_path / "own", engine_config=str(config), create=True)
    with configured.visit() as session:
        assert session.host is not used
        own = session.host
    assert own is not None and not own.alive


def test_visits_that_are_expected_during_one_start_no_child_until_it_has_ended(
    tmp_path: Path, expecting: Spare
) -> None:
    main = EmbeddedSource("main", tmp_path / "clickhouse", create=True)
    with main.visit() as session:
        first = session.host
        assert first is not None
        expecting.expect(2)
        assert expecting.host is None
    assert expecting.host is first
    with main.visit() as session:
        os.kill(first.pid, signal.SIGKILL)
        with pytest.raises(CalveError):
            session.rows("SELECT 1")
        expecting.expect(1)
        assert waiting(expecting) is not first, "one that died serves nobody"
    expecting.expect(-2)


def test_a_child_that_was_killed_while_it_waited_is_replaced(tmp_path: Path, expecting: Spare) -> None:
    waits = waiting(expecting)
    os.kill(waits.pid, signal.SIGKILL)
    while waits.alive:  # until the kernel has done it
        pass
    with EmbeddedSource("main", tmp_path / "clickhouse", create=True).visit() as session:
        assert session.rows("SELECT 1 AS one") == [{"one": 1}]


def test_a_child_that_waits_ends_when_no_visit_is_expected_any_more(expecting: Spare) -> None:
    waits = waiting(expecting)
    expecting.expect(-2)
    assert not waits.alive
