"""Parts of one partition, each exported by a process of its own, at the same time: they hold different
rows, and are all accepted. What overlaps is refused, whichever store it comes from (D8)."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from test_stores_that_forget import another_store
from whole_life import Life

from calve.clickhouse.parts.partitions import Selection
from calve.export.request import ExportRequest
from calve.export.submit import submit_export, survey_export
from calve.model.errors import RefusedError
from calve.model.process import ProcessId
from calve.model.states import ProcessState
from support.kept_source import KeptSource
from support.local_runner import LocalRunner

PARTS = ("all_1_1_0", "all_2_2_0", "all_3_3_0")


@pytest.fixture
def life(tmp_path: Path, source: KeptSource, runner: LocalRunner) -> Iterator[Life]:
    source.execute(
        "DROP TABLE IF EXISTS db.side SYNC",
        "CREATE TABLE db.side (id UInt64) ENGINE = MergeTree ORDER BY id",
        "SYSTEM STOP MERGES db.side",
        *(f"INSERT INTO db.side SELECT number + {10 * part} FROM numbers(10)" for part in range(3)),
    )
    life = Life(tmp_path / "life", source, runner)
    yield life
    life.close()


def submit(life: Life, *parts: str) -> ProcessId:
    """These parts, or all there is."""
    request = ExportRequest(
        source="main", database="db", table="side", catalog="lake", identifier=("ns", "events"), partitions=()
    )
    selection = Selection(parts=parts) if parts else Selection(all=True)
    [process] = submit_export(life.ports, life.store, survey_export(life.ports, request, selection)).processes
    life.ids.append(process.id)
    return process.id


def test_L28_parts_of_one_partition_are_all_accepted_and_published_once(life: Life) -> None:
    ids = [submit(life, part) for part in PARTS]
    life.run(life.worker())
    assert {life.row(one).state for one in ids} == {ProcessState.COMPLETED}
    assert life.exported_ids() == list(range(30))


def test_D8_while_a_part_is_exported_the_whole_partition_is_refused(life: Life) -> None:
    first = submit(life, PARTS[0])
    assert submit(life, PARTS[0]) == first  # T16: the very same request joins it
    for again in (PARTS[:2], ()):
        with pytest.raises(RefusedError, match=first) as refused:
            submit(life, *again)
        assert refused.value.code == "locked"
    submit(life, *PARTS[1:])
    life.run(life.worker())
    assert life.exported_ids() == list(range(30))


def test_D8_a_part_that_was_merged_from_one_that_is_exported_is_refused(life: Life) -> None:
    first = submit(life, PARTS[0])
    life.kept.execute("SYSTEM START MERGES db.side", "OPTIMIZE TABLE db.side FINAL")
    [merged] = life.kept.select(
        "SELECT name FROM system.parts WHERE active AND database = 'db' AND table = 'side'"
    )
    with pytest.raises(RefusedError, match=first):
        submit(life, merged["name"])


@pytest.mark.parametrize("second", [(), PARTS[:2]], ids=["the whole", "two parts"])
def test_D8_of_two_stores_that_both_began_with_the_same_rows_one_publishes(
    life: Life, second: tuple[str, ...]
) -> None:
    """Neither saw the other when it was planned: the table is asked again right before the commit."""
    other = another_store(life)
    mine, theirs = submit(life, PARTS[0]), submit(other, *second)
    life.run_until(ProcessState.PUBLISHING, mine)
    other.run(other.worker())
    life.run(life.worker())
    assert other.row(theirs).state is ProcessState.COMPLETED
    row = life.row(mine)
    assert row.state is ProcessState.FAILED
    assert row.error is not None and row.error.code == "overlap"
    assert life.exported_ids() == list(range(10 * (len(second) or 3)))
    other.close()


def test_L28_of_two_stores_with_different_parts_both_publish(life: Life) -> None:
    other = another_store(life)
    mine, theirs = submit(life, PARTS[0]), submit(other, PARTS[1])
    life.run_until(ProcessState.PUBLISHING, mine)
    other.run(other.worker())
    life.run(life.worker())
    assert (life.row(mine).state, other.row(theirs).state) == (ProcessState.COMPLETED,) * 2
    assert life.exported_ids() == list(range(20))
    other.close()
