import itertools

from hypothesis import given
from hypothesis import strategies as st

from calve.clickhouse.reader import Piece
from calve.destination.plan import PartPlan, Slice
from calve.export.slices import PARTS_A_TASK, partition_slices, slice_parts
from calve.export.task import take


def part(rows: int, mb: float, partition: str = "p") -> PartPlan:
    return PartPlan(name=f"{partition}_{rows}", partition_id=partition, rows=rows, bytes=int(mb * 1_000_000))


def mb(parts: list[PartPlan], task: tuple[Slice, ...]) -> float:
    return sum(
        parts[piece.part].bytes * (piece.end - piece.start) / parts[piece.part].rows / 1e6 for piece in task
    )


def test_small_parts_share_a_task() -> None:
    tasks = slice_parts([part(10, 80), part(20, 80), part(30, 80)], task_bytes_mb=256)
    assert [[piece.part for piece in task] for task in tasks] == [[0, 1, 2]]


def test_a_huge_part_is_split_by_offsets_of_whole_granules() -> None:
    tasks = slice_parts([part(1_000_000, 1000)], task_bytes_mb=256)
    assert len(tasks) == 4
    assert tasks[0] == (Slice(part=0, start=0, end=253_952),)
    assert all(piece.start % 8192 == 0 for (piece,) in tasks)


def test_parts_of_one_partition_are_cut_evenly_for_the_cores() -> None:
    parts = [part(1_000_000, 33)] * 4
    assert len(partition_slices(parts, task_bytes_mb=256, cores=1)) == 1
    tasks = partition_slices(parts, task_bytes_mb=256, cores=2)
    assert [[piece.part for piece in task] for task in tasks] == [[0, 1], [2, 3]]


def test_one_part_is_cut_for_the_cores() -> None:
    parts = [part(5_000_000, 165)]
    for cores in (2, 3, 4):
        tasks = partition_slices(parts, task_bytes_mb=256, cores=cores)
        assert len(tasks) == cores
        assert all(abs(mb(parts, task) - 165 / cores) < 1 for task in tasks)


def test_a_part_that_cannot_be_split_stays_whole() -> None:
    tasks = partition_slices([part(5_000_000, 900), part(5_000_000, 900)], task_bytes_mb=256, split=False)
    assert [[piece.part for piece in task] for task in tasks] == [[0], [1]]


def test_a_cut_near_the_end_of_a_part_is_made_there() -> None:
    parts = [part(1_000_000, 101), part(1_000_000, 99), part(1_000_000, 104), part(1_000_000, 96)]
    tasks = partition_slices(parts, task_bytes_mb=256, cores=4, columns=8)
    assert all(len(task) == 1 for task in tasks)


def test_the_number_of_tasks_is_a_multiple_of_the_cores() -> None:
    assert len(partition_slices([part(10_000_000, 600)], task_bytes_mb=256, cores=2)) == 4


def test_little_data_is_not_cut_into_small_files_however_many_cores_there_are() -> None:
    assert len(partition_slices([part(1000, 0.1)] * 10, task_bytes_mb=256, cores=64)) == 1
    tasks = partition_slices([part(1_000_000, 124.5)], task_bytes_mb=256, cores=64, file_mb=128)
    assert len(tasks) == 4
    tasks = partition_slices([part(10_000_000, 1600)], task_bytes_mb=256, cores=64, file_mb=128)
    assert len(tasks) == 25, "half a file each, where there are many"


def test_rows_that_compress_well_are_cut_by_the_number_of_their_values() -> None:
    assert len(partition_slices([part(2_000_000, 18)], task_bytes_mb=256, cores=2, columns=8)) == 2
    assert len(partition_slices([part(2_000_000, 18)], task_bytes_mb=256, cores=2, columns=1)) == 1


def test_the_largest_task_starts_first() -> None:
    parts = [part(1_000_000, 10, "a"), part(1_000_000, 200, "b"), part(1_000_000, 50, "c")]
    tasks = partition_slices(parts, task_bytes_mb=256, cores=2)
    sizes = [mb(parts, task) for task in tasks]
    assert sizes == sorted(sizes, reverse=True)
    assert all(len({parts[piece.part].partition_id for piece in task}) == 1 for task in tasks)


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
        lambda rows, size, one: PartPlan(name="x", partition_id=one, rows=rows, bytes=size),
        st.integers(0, 5_000_000_000),  # L15: more than 2^31 rows in a part
        st.integers(0, 40_000_000_000),
        st.sampled_from("ab"),
    ),
    max_size=20,
)


@given(PARTS, st.integers(100, 5000), st.integers(1, 64), st.booleans())
def test_L15_every_row_is_in_exactly_one_slice(
    parts: list[PartPlan], task_bytes_mb: int, cores: int, split: bool
) -> None:
    tasks = partition_slices(parts, task_bytes_mb=task_bytes_mb, cores=cores, split=split)
    assert tasks == partition_slices(parts, task_bytes_mb=task_bytes_mb, cores=cores, split=split)
    assert all(tasks)
    for place, whole in enumerate(parts):
        at = 0
        mine = (piece for task in tasks for piece in task if piece.part == place)
        for piece in sorted(mine, key=lambda piece: piece.start):
            assert split or piece.start == 0
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
