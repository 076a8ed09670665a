import itertools

from hypothesis import given
from hypothesis import strategies as st

from calve.clickhouse.reader import Piece
from calve.destination.plan import PartPlan, Slice
from calve.export.slices import PARTS_A_TASK, slice_parts
from calve.export.writer import take


def part(rows: int, mb: float, partition: str = "p") -> PartPlan:
    return PartPlan(name=f"{partition}_{rows}", partition_id=partition, rows=rows, bytes=int(mb * 1_000_000))


def test_small_parts_share_a_task_up_to_its_size() -> None:
    tasks = slice_parts([part(10, 100), part(20, 100), part(30, 100)], task_bytes_mb=256)
    assert [[piece.part for piece in task] for task in tasks] == [[0, 1], [2]]


def test_a_huge_part_is_split_by_offsets_of_whole_granules() -> None:
    tasks = slice_parts([part(1_000_000, 1000)], task_bytes_mb=256)
    assert len(tasks) == 4
    assert tasks[0] == (Slice(part=0, start=0, end=253_952),)
    assert all(piece.start % 8192 == 0 for (piece,) in tasks)


def test_thousands_of_tiny_parts_are_not_one_task_nor_thousands() -> None:
    tasks = slice_parts([part(1, 0.001)] * 2000, task_bytes_mb=256)
    assert len(tasks) == 2000 // PARTS_A_TASK


def test_empty_parts_make_no_slices() -> None:
    assert slice_parts([part(0, 0)], task_bytes_mb=1) == ()


def test_final_keeps_a_partition_together_whatever_its_size() -> None:
    tasks = slice_parts(
        [part(10, 900, "a"), part(10, 1, "b"), part(10, 900, "a")], task_bytes_mb=1, whole=True
    )
    assert [[piece.part for piece in task] for task in tasks] == [[0, 2], [1]]


PARTS = st.lists(
    st.builds(
        lambda rows, size: PartPlan(name="x", partition_id="p", rows=rows, bytes=size),
        st.integers(0, 5_000_000_000),  # L15: more than 2^31 rows in a part
        st.integers(0, 40_000_000_000),
    ),
    max_size=20,
)


@given(PARTS, st.integers(100, 5000))
def test_L15_every_row_is_in_exactly_one_slice(parts: list[PartPlan], task_bytes_mb: int) -> None:
    tasks = slice_parts(parts, task_bytes_mb=task_bytes_mb)
    assert tasks == slice_parts(parts, task_bytes_mb=task_bytes_mb)
    for place, whole in enumerate(parts):
        at = 0
        for piece in (piece for task in tasks for piece in task if piece.part == place):
            assert piece.start == at < piece.end
            at = piece.end
        assert at == whole.rows


@given(
    st.lists(st.tuples(st.integers(0, 100_000), st.integers(1, 100_000)), min_size=1, max_size=5),
    st.integers(1, 50_000),
)
def test_ranges_of_files_cover_a_task_without_gaps(pieces: list[tuple[int, int]], rows: int) -> None:
    given_pieces = tuple(
        Piece(path=str(place), start=start, end=start + length)
        for place, (start, length) in enumerate(pieces)
    )
    remaining, seen = given_pieces, []
    while remaining:
        taken, remaining = take(remaining, rows)
        assert taken
        seen += taken
    for whole in given_pieces:
        mine = [piece for piece in seen if piece.path == whole.path]
        assert mine[0].start == whole.start and mine[-1].end == whole.end
        assert all(first.end == second.start for first, second in itertools.pairwise(mine))
