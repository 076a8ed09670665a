from pathlib import Path

import pytest
from executor import Executor
from part_shapes import SHAPES, Shape
from pinned_tables import by_value, make, pin, released

from calve.clickhouse.embedded.source import EmbeddedSession
from calve.clickhouse.engine.ddl import scratch_table


def _prints(folder: Path) -> dict[str, tuple[int, int, int, bytes]]:
    """Everything a file has except the number of its links."""
    return {
        str(path.relative_to(folder)): (
            path.stat().st_mode,
            path.stat().st_size,
            path.stat().st_mtime_ns,
            path.read_bytes(),
        )
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_a_pinned_part_of_every_shape_reads_equal_to_its_table(
    shape: Shape, session: EmbeddedSession, executor: Executor
) -> None:
    make(session, shape.name, shape.statements)
    with released(session):
        pinned = pin(session, shape.name)
        before = [_prints(Path(path)) for path in pinned.paths]
        sql = f"SELECT {pinned.columns} FROM {{table}}"
        expected = by_value(session.rows(sql.replace("{table}", pinned.table.sql)))

        found = by_value(executor.read(pinned.scratch.create, pinned.paths, sql))

        assert found == expected
        assert len(found) == sum(part.rows_seen for part in pinned.parts)
        assert [_prints(Path(path)) for path in pinned.paths] == before


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_slices_of_parts_together_are_the_whole_and_do_not_overlap(
    shape: Shape, session: EmbeddedSession, executor: Executor
) -> None:
    table = f"{shape.name}_sliced"
    make(session, table, shape.statements)
    with released(session):
        pinned = pin(session, table)
        sql = f"SELECT {pinned.columns} FROM {{table}} WHERE {{where}}"
        whole = by_value(executor.read(pinned.scratch.create, pinned.paths, sql))
        first = [(part.path, 0, part.rows // 3) for part in pinned.parts]
        rest = [(part.path, part.rows // 3, part.rows) for part in pinned.parts]

        pieces = [executor.read(pinned.scratch.create, pinned.paths, sql, slices) for slices in (first, rest)]

    assert by_value(pieces[0] + pieces[1]) == whole


@pytest.mark.parametrize(
    "engine", ["replacing", "summing", "collapsing", "versioned_collapsing", "aggregating"]
)
def test_the_merged_view_of_a_merging_engine_is_what_FINAL_shows_at_the_source(
    engine: str, session: EmbeddedSession, executor: Executor
) -> None:
    table = f"{engine}_final"
    make(session, table, next(shape.statements for shape in SHAPES if shape.name == engine))
    with released(session):
        pinned = pin(session, table)
        sql = f"SELECT {pinned.columns} FROM {{table}} FINAL"
        expected = by_value(session.rows(sql.replace("{table}", pinned.table.sql)))
        create = scratch_table(pinned.table, final=True).create

        assert by_value(executor.read(create, pinned.paths, sql)) == expected
        assert len(expected) < sum(part.rows for part in pinned.parts)
