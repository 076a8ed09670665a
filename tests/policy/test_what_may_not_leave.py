"""What keeps a partition in its table, beside what its source says: each with a code of its own."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from release_scene import IDENTITY, PARTITION, REQUEST, SCAN, SCHEMA, TABLE

from calve.clickhouse.tier.replicas import Replica, obstacles
from calve.destination.outcome import EarlierExport
from calve.model.errors import RefusedError
from calve.policy.bounds import NoTimeKey, not_over, time_key
from calve.policy.proof.kind import OUTSIDE
from calve.policy.proof.plan import Depth, ProofPlan
from calve.policy.release.ports import SeenPartition
from calve.policy.release.survey import survey

NOW = datetime(2024, 6, 15, tzinfo=UTC)
MONTHS = time_key("toYYYYMM(day)", {"day": "Date"}, "UTC")
NO_SKEW = timedelta()


@pytest.mark.parametrize(
    ("key", "value", "others", "skew", "code"),
    [
        (MONTHS, "202401", ["202401", "202402"], NO_SKEW, ""),
        (MONTHS, "202405", ["202401", "202405", "202406"], NO_SKEW, ""),
        (MONTHS, "202406", ["202401", "202406", "209901"], NO_SKEW, "not_over"),
        (MONTHS, "209901", ["202401", "209901"], NO_SKEW, "not_over"),
        (MONTHS, "197001", ["197001", "202402"], NO_SKEW, "no_bounds"),
        (MONTHS, "202402", ["202401", "202402"], NO_SKEW, "newest_partition"),
        (MONTHS, "202401", ["202401"], NO_SKEW, "newest_partition"),
        (time_key("toMonth(day)", {"day": "Date"}, "UTC"), "1", ["1", "2"], NO_SKEW, "cyclic_key"),
        (time_key("id % 8", {"id": "UInt64"}, "UTC"), "1", ["1", "2"], NO_SKEW, "no_time_key"),
        (NoTimeKey.NONE, "1", ["1"], NO_SKEW, "no_time_key"),
        (MONTHS, "202401", ["202401", "202402"], timedelta(minutes=6), "clock_skew"),
        (MONTHS, "202401", ["202401", "202402"], timedelta(minutes=-6), "clock_skew"),
    ],
)
def test_only_a_time_that_is_over_for_good_may_leave(
    key: Any, value: str, others: list[str], skew: timedelta, code: str
) -> None:
    found = not_over(key, value, others, NOW, skew)
    assert (found[0] if found else "") == code


ALL_WELL = Replica(name="a", uuid="u", total=2, active=2, read_only=False, queued=0)
OTHER = replace(ALL_WELL, name="b")


@pytest.mark.parametrize(
    ("replicas", "said"),
    [
        ([ALL_WELL, OTHER], ""),
        ([ALL_WELL], "names 1"),  # the reachable ones are not all
        ([replace(ALL_WELL, active=1), OTHER], "1 of 2"),
        ([ALL_WELL, replace(OTHER, queued=1)], "queue"),
        ([ALL_WELL, replace(OTHER, read_only=True)], "read-only"),
        ([ALL_WELL, ALL_WELL], "names 1"),  # one server under two names
    ],
)
def test_all_replicas_are_there_and_done_and_not_only_those_that_answer(
    replicas: list[Replica], said: str
) -> None:
    found = list(obstacles(replicas))
    assert {one.code for one in found} == ({"replicas"} if said else set())
    assert all(said in one.words for one in found)


class Lake:
    """A destination, with what it remembers; and the proof of the export in it."""

    address = "lake.ns.events"
    uuid = "lake-1"

    def __init__(self, exports: list[EarlierExport], notes: tuple[str, ...], depth: Depth) -> None:
        self._exports, self._notes, self._depth = exports, notes, depth

    def find(self) -> "Lake":
        return self

    def exports(self) -> list[EarlierExport]:
        return self._exports

    def full(self, request: object) -> ProofPlan:
        return ProofPlan(
            process_id="", export="export-1", depth=self._depth, scan=SCAN, tasks=((0,),),
            schema=SCHEMA.model_dump_json(), notes=self._notes,
        )  # fmt: skip


EXPORT = EarlierExport(
    key_hash="k", process_id="export-1", snapshot_id="1", content="content-1", input=(IDENTITY, PARTITION, "")
)
SEEN = SeenPartition(table=TABLE, content="content-1")


def _survey(
    exports: list[EarlierExport],
    seen: SeenPartition = SEEN,
    notes: tuple[str, ...] = (),
    depth: Depth = Depth.ROWS,
) -> str:
    lake: Any = Lake(exports, notes, depth)
    try:
        survey(lake, lake, seen, REQUEST, "p", "")
    except RefusedError as error:
        return error.code
    return ""


ELSEWHERE = replace(EXPORT, key_hash="o", process_id="export-2", input=(IDENTITY, "202402", ""))
INCREMENT = '{"after": "export-1", "increment": 1}'


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (([EXPORT, ELSEWHERE],), ""),
        (([],), "not_exported"),
        (([replace(EXPORT, process_id="export-9")],), "not_exported"),
        (([replace(EXPORT, input=(IDENTITY, PARTITION, '{"where": "id > 1"}'))],), "not_exported"),
        (([replace(EXPORT, released="r9")],), "released"),
        (([EXPORT, replace(ELSEWHERE, input=("other/table", "202402", ""))],), "other_identity"),
        (([EXPORT], replace(SEEN, content="content-2")), "source_changed"),
        (([EXPORT], replace(SEEN, table=replace(TABLE, identity="new"))), "source_changed"),
        (([replace(EXPORT, shared=True)],), "shared_export"),
        (([EXPORT, replace(ELSEWHERE, process_id="export-1")],), "shared_export"),
        (
            ([EXPORT, replace(EXPORT, process_id="export-3", input=(IDENTITY, PARTITION, INCREMENT))],),
            "several_exports",
        ),
        (([EXPORT], SEEN, (OUTSIDE,), Depth.PARTIAL), "rows_outside_bounds"),
        (([EXPORT], SEEN, ("column j is compared after its cast to string",), Depth.PARTIAL), "not_by_value"),
        (([EXPORT], SEEN, ("column x is not in the destination",), Depth.PARTIAL), "not_by_value"),
        (([EXPORT], SEEN, (), Depth.FILES), "not_by_value"),
        (([EXPORT], SEEN, ("the export does not have all rows",), Depth.DESTINATION), "not_by_value"),
        (([EXPORT], SEEN, (), Depth.SAMPLE), "not_by_value"),
    ],
)
def test_only_a_whole_partition_that_is_proven_by_value_may_leave(given: tuple[Any, ...], code: str) -> None:
    assert _survey(*given) == code
