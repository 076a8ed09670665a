"""A fence, look by look: what it does when main moves under it, when it is refused, and when nobody answers."""

from pathlib import Path

import pytest
from pyiceberg.exceptions import ForbiddenError
from sqlalchemy.exc import OperationalError

from calve.destination.names import FENCE
from calve.iceberg.publish import PublishFenced, fence
from calve.iceberg.publish.fence import LOOKS
from calve.model.errors import DeniedError, UnavailableError, UnknownOutcomeError
from support.catalog_faults import Fault, FaultySqlCatalog, Landing, Reading, Told
from support.lake import IDENTIFIER, Work, make_work
from support.outcomes import append_as_somebody_else


@pytest.fixture
def work(catalog: FaultySqlCatalog) -> Work:
    append_as_somebody_else(catalog, range(50, 53))
    return make_work(catalog, [(1, range(10))])


def fenced(catalog: FaultySqlCatalog, work: Work) -> object:
    return fence(catalog, work.process_id, work.plan, "")


def main_moves(catalog: FaultySqlCatalog, times: int) -> list[int]:
    """Right before each of the next sends."""
    moved: list[int] = []

    def move() -> None:
        if len(moved) < times:
            moved.append(len(moved))
            catalog.before_send = lambda: None
            append_as_somebody_else(catalog, range(60 + len(moved), 61 + len(moved)))
            catalog.before_send = move

    catalog.before_send = move
    return moved


def test_a_race_that_is_lost_is_run_again_and_leaves_no_file_behind(
    catalog: FaultySqlCatalog, work: Work
) -> None:
    moved = main_moves(catalog, 2)
    assert isinstance(fenced(catalog, work), PublishFenced)
    assert len(moved) == 2
    table = catalog.load_table(IDENTIFIER)
    folder = Path(table.location().removeprefix("file://")) / "metadata"
    assert len([file for file in folder.rglob("*.avro") if FENCE in file.name]) == 1
    assert str(table.current_snapshot().manifest_list).count(FENCE) == 1  # type: ignore[union-attr]


def test_a_main_that_always_moves_ends_the_fence_within_its_looks(
    catalog: FaultySqlCatalog, work: Work
) -> None:
    moved = main_moves(catalog, 100)
    with pytest.raises(UnknownOutcomeError, match="main moved at every try") as unknown:
        fenced(catalog, work)
    assert (len(moved), LOOKS, unknown.value.code) == (8, 8, "fence_unknown")
    catalog.before_send = lambda: None
    assert isinstance(fenced(catalog, work), PublishFenced)


def test_a_refusal_is_told_as_it_is(
    catalog: FaultySqlCatalog, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise ForbiddenError("not you")

    monkeypatch.setattr(catalog, "commit_table", refuse)
    with pytest.raises(DeniedError):
        fenced(catalog, work)


@pytest.mark.parametrize("landing", [Landing.LANDED, Landing.NOT])
def test_without_an_answer_one_look_tells_or_nobody_knows(
    catalog: FaultySqlCatalog, work: Work, landing: Landing
) -> None:
    catalog.arm(Fault(told=Told.TIMEOUT, landing=landing, reading=Reading.AT_ONCE, looks=0))
    sends = catalog.sends
    if landing is Landing.LANDED:
        assert isinstance(fenced(catalog, work), PublishFenced)
    else:
        with pytest.raises(UnknownOutcomeError, match="could not be fenced") as unknown:
            fenced(catalog, work)
        assert "main moved" not in unknown.value.message and "no reason given" not in unknown.value.message
    assert catalog.sends == sends + 1


def test_a_catalog_that_is_away_is_that_before_a_send_and_unknown_after_it(
    catalog: FaultySqlCatalog, work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog.arm(Fault(told=Told.TIMEOUT, landing=Landing.NOT, reading=Reading.UNREADABLE, looks=9))
    with pytest.raises(UnknownOutcomeError) as unknown:
        fenced(catalog, work)
    assert unknown.value.service == "catalog:lake"

    def away(*_: object) -> None:
        raise OperationalError("SELECT", {}, Exception("connection refused"))

    monkeypatch.setattr(catalog, "load_table", away)
    with pytest.raises(UnavailableError):
        fenced(catalog, work)
