"""A program that expects visits of embedded sources has a child ready that has loaded the engine."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from calve.clickhouse.embedded.host import HostProcess, Spare, spare
from calve.clickhouse.embedded.source import EmbeddedSource


@pytest.fixture
def expecting() -> Iterator[Spare]:
    spare.expect(2)
    yield spare
    spare.expect(-2)
    assert spare.host is None


def waiting(expecting: Spare) -> HostProcess:
    host = expecting.host
    assert host is not None
    return host


def test_the_next_visit_is_by_the_child_that_waits_and_another_takes_its_place(
    tmp_path: Path, expecting: Spare
) -> None:
    first = waiting(expecting)
    source = EmbeddedSource("main", tmp_path / "clickhouse", create=True)
    with source.visit() as session:
        assert session.host is first
        assert expecting.host is None, "it would compete with the visit for the cores"
        assert session.rows("SELECT 1 AS one") == [{"one": 1}]
    second = waiting(expecting)
    with source.visit() as session:
        assert session.host is second
    assert expecting.host is None, "no other visit is expected"
    with source.visit() as session:
        assert session.rows("SELECT 2 AS two") == [{"two": 2}]


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
