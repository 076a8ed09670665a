"""The scratch table and the engine under it."""

import signal
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from executor import Executor
from pinned_tables import make, pin, released

from calve.clickhouse.embedded.source import EmbeddedSession
from calve.model.errors import CalveError, PermanentError, TemporaryError

_CREATE = "CREATE TABLE {t} (id UInt64, s String) ENGINE = MergeTree ORDER BY id"
_SCRATCH = "CREATE TABLE {table} (id UInt64, s String) ENGINE = MergeTree ORDER BY id"
_INSERT = "INSERT INTO {t} SELECT number, 'x' FROM numbers(1000)"
_SUM = "SELECT count() AS n, sum(id) AS total FROM {table}"


@pytest.fixture
def paths(session: EmbeddedSession, request: pytest.FixtureRequest) -> Iterator[list[str]]:
    table = f"t_{abs(hash(request.node.name))}"
    make(session, table, (_CREATE, _INSERT, _INSERT))
    with released(session, "calve-attach-1"):
        yield pin(session, table, "calve-attach-1").paths


def test_W8_expired_rows_stay_because_the_scratch_table_has_no_TTL_and_never_merges(
    session: EmbeddedSession, executor: Executor
) -> None:
    make(
        session,
        "expired",
        (
            "SYSTEM STOP MERGES",
            "CREATE TABLE {t} (id UInt64, at DateTime TTL at + INTERVAL 1 DAY, v String TTL at + INTERVAL 1 DAY) "
            "ENGINE = MergeTree ORDER BY id TTL at + INTERVAL 1 DAY SETTINGS merge_with_ttl_timeout = 0",
            "SYSTEM STOP MERGES {t}",
            "INSERT INTO {t} SELECT number, now(), 'kept' FROM numbers(10)",
            "ALTER TABLE {t} MODIFY TTL at - INTERVAL 1 DAY SETTINGS materialize_ttl_after_modify = 0",
        ),
    )
    with released(session):
        pinned = pin(session, "expired")
        assert "TTL" not in pinned.scratch.create
        merged = "OPTIMIZE TABLE {table} FINAL"
        with pytest.raises(CalveError, match="ancelled"):
            executor.read(pinned.scratch.create, pinned.paths, merged)
        rows = executor.read(
            pinned.scratch.create, pinned.paths, "SELECT count() AS n, any(v) AS v FROM {table}"
        )
        assert rows == [{"n": 10, "v": "kept"}]


def test_W9_hundreds_of_scratch_tables_leave_threads_handles_and_memory_flat(
    executor: Executor, paths: list[str]
) -> None:
    def cycles(count: int) -> dict[str, int]:
        for _ in range(count):
            assert executor.read(_SCRATCH, paths, _SUM) == [{"n": 2000, "total": 999000}]
        usage: dict[str, int] = executor.ask("usage")
        return usage

    warm = cycles(50)
    after = cycles(200)
    assert after["threads"] <= warm["threads"] + 4  # pools breathe; a leak would be hundreds
    assert after["handles"] <= warm["handles"] + 8
    assert after["resident_mb"] <= warm["resident_mb"] + 40
    assert executor.ask("tables") == 0


def test_parts_of_one_name_from_several_folders_are_read_together(
    session: EmbeddedSession, executor: Executor, paths: list[str]
) -> None:
    make(session, "other", (_CREATE, _INSERT))
    with released(session, "calve-other-1"):
        other = pin(session, "other", "calve-other-1").paths
        assert Path(other[0]).name == Path(paths[0]).name
        assert executor.read(_SCRATCH, paths + other, _SUM) == [{"n": 3000, "total": 1498500}]
        one = [(other[0], 10, 20)]
        sliced = executor.read(_SCRATCH, paths + other, _SUM + " WHERE {where}", one)
        assert sliced == [{"n": 10, "total": 145}]


def test_no_slices_are_no_rows(executor: Executor, paths: list[str]) -> None:
    assert executor.read(_SCRATCH, paths, _SUM + " WHERE {where}", []) == [{"n": 0, "total": 0}]


@pytest.mark.parametrize("symbolic", [False, True], ids=["symbolic links", "copies"])
def test_where_hard_links_are_impossible_parts_are_read_all_the_same(
    symbolic: bool, tmp_path: Path, paths: list[str]
) -> None:
    before = {path: path.read_bytes() for path in sorted(Path(paths[0]).iterdir())}
    executor = Executor.start(TMPDIR=str(tmp_path))
    executor.ask("forbid", hard_links=True, symbolic_links=symbolic)
    assert executor.read(_SCRATCH, paths, _SUM) == [{"n": 2000, "total": 999000}]
    executor.stop()
    assert {path: path.read_bytes() for path in sorted(Path(paths[0]).iterdir())} == before


def test_a_part_that_is_not_there_is_named_and_the_scratch_table_is_gone(
    executor: Executor, paths: list[str], tmp_path: Path
) -> None:
    with pytest.raises(TemporaryError, match="all_9_9_0 is not there") as caught:
        executor.read(_SCRATCH, [*paths, str(tmp_path / "all_9_9_0")], _SUM)
    assert caught.value.code == "part_missing"
    assert caught.value.hint
    assert executor.ask("tables") == 0


def test_a_damaged_part_is_a_permanent_error_that_names_it(
    executor: Executor, paths: list[str], tmp_path: Path
) -> None:
    damaged = tmp_path / "all_1_1_0"
    damaged.mkdir()
    for path in Path(paths[0]).iterdir():
        data = path.read_bytes()
        (damaged / path.name).write_bytes(data[:-10] if path.name == "data.bin" else data)
    with pytest.raises(CalveError, match="all_1_1_0"):
        executor.read(_SCRATCH, [str(damaged)], "SELECT sum(cityHash64(id, s)) FROM {table}")
    assert executor.ask("tables") == 0


def test_rows_lose_no_digit_no_byte_and_no_special_value(executor: Executor) -> None:
    rows = executor.ask(
        "rows",
        sql="SELECT toUInt64(18446744073709551615) AS u, toInt256('-9' || repeat('9', 60)) AS i, "
        "toDecimal128('1234567890123456.12345678901234567891', 20) AS d, nan AS n, -inf AS f, "
        "[toDecimal32('1.5', 2)] AS a, map(toUInt64(9007199254740993), 0.1) AS m, unhex('ff0a22') AS b, "
        "tuple(1::UInt8, NULL::Nullable(Decimal(9, 3))) AS t, NULL::LowCardinality(Nullable(String)) AS l",
        settings={},
    )
    row = rows[0]
    assert row["u"] == 18446744073709551615
    assert row["i"] == -int("9" * 61)
    assert row["d"] == Decimal("1234567890123456.12345678901234567891")
    assert row["n"] != row["n"] and row["f"] == float("-inf")
    assert row["a"] == [Decimal("1.5")]
    assert row["m"] == {9007199254740993: 0.1}
    assert row["b"] == b'\xff\n"'.decode("utf-8", "surrogateescape")
    assert row["t"] == [1, None] and row["l"] is None


def test_too_little_memory_is_a_permanent_error_and_the_session_lives_on(executor: Executor) -> None:
    with pytest.raises(PermanentError, match="241") as caught:
        executor.ask(
            "rows",
            sql="SELECT length(groupArray(toString(number))) FROM numbers(50000000)",
            settings={"max_memory_usage": "50000000"},
        )
    assert caught.value.code == "memory_limit"
    assert "limits.task_memory_mb" in caught.value.hint
    left = executor.ask("rows", sql="SELECT getSetting('max_memory_usage') AS m", settings={})
    assert left == [{"m": 0}]  # a statement's settings end with it, also when it fails


def test_the_scratch_folder_of_a_killed_worker_is_swept_and_that_of_a_living_one_is_not(
    tmp_path: Path,
) -> None:
    killed, living = (Executor.start(TMPDIR=str(tmp_path)) for _ in range(2))
    killed_folder, living_folder = Path(killed.ask("scratch")), Path(living.ask("scratch"))
    killed.child.send_signal(signal.SIGKILL)
    killed.stop()
    assert killed_folder.exists()

    third = Executor.start(TMPDIR=str(tmp_path))
    assert Path(third.ask("scratch")).exists()
    assert not killed_folder.parent.exists()
    assert living_folder.exists()

    living.stop()
    third.stop()
    assert list(tmp_path.iterdir()) == []
