"""A publish uses only files that receipts name, and only if the receipts are exactly the plan's work."""

from dataclasses import replace

import pytest

from calve.model.errors import PermanentError
from calve.objects.storage import Storage
from support.catalog_faults import FaultySqlCatalog
from support.lake import Work, make_work, rows_of, write_task
from support.outcomes import Publisher


@pytest.fixture
def work(catalog: FaultySqlCatalog) -> Work:
    return make_work(catalog, [(1, range(10)), (2, range(10, 20))])


def _refused(catalog: FaultySqlCatalog, work: Work, words: str) -> None:
    with pytest.raises(PermanentError, match=words) as refused:
        Publisher(catalog=catalog, work=work).run()
    assert refused.value.code == "receipts_incomplete"
    assert catalog.sends == 0
    assert rows_of(catalog) == []


def test_L23_a_missing_receipt_is_an_error(catalog: FaultySqlCatalog, work: Work) -> None:
    _refused(catalog, replace(work, receipts=work.receipts[:1]), "task 1 has no receipt")


def test_L23_no_receipt_at_all_is_an_error(catalog: FaultySqlCatalog, work: Work) -> None:
    _refused(catalog, replace(work, receipts=()), "task 0 has no receipt; task 1 has no receipt")


def test_L23_a_receipt_given_twice_is_an_error(catalog: FaultySqlCatalog, work: Work) -> None:
    _refused(catalog, replace(work, receipts=(*work.receipts, work.receipts[0])), "task 0 has 2 receipts")


def test_L23_two_attempts_of_one_task_are_an_error(catalog: FaultySqlCatalog, work: Work) -> None:
    second = write_task(work.plan, 0, 2, 1, range(10), Storage())
    _refused(catalog, replace(work, receipts=(*work.receipts, second)), "task 0 has 2 receipts")


def test_L23_a_receipt_of_a_task_that_was_not_planned_is_an_error(
    catalog: FaultySqlCatalog, work: Work
) -> None:
    third = write_task(work.plan, 2, 1, 1, range(20, 30), Storage())
    _refused(catalog, replace(work, receipts=(*work.receipts, third)), "task 2 is not in the plan")


def test_L23_more_rows_than_the_plan_read_are_an_error(catalog: FaultySqlCatalog, work: Work) -> None:
    larger = write_task(work.plan, 1, 2, 2, range(10, 21), Storage())
    _refused(catalog, replace(work, receipts=(work.receipts[0], larger)), "11 rows where the plan has 10")


def test_L23_fewer_rows_than_the_pin_holds_are_an_error(catalog: FaultySqlCatalog, work: Work) -> None:
    smaller = write_task(work.plan, 1, 2, 2, range(10, 19), Storage())
    keys = tuple(replace(key, rows=20) for key in work.plan.keys)
    short = replace(work, plan=replace(work.plan, keys=keys), receipts=(work.receipts[0], smaller))
    _refused(catalog, short, ": 19 rows were written and the pin has 20")
    filtered = replace(
        short, plan=replace(short.plan, relation=replace(short.plan.relation, where="id < 19"))
    )
    Publisher(catalog=catalog, work=filtered).run()
    assert rows_of(catalog) == list(range(19))


def test_P6_a_receipt_short_of_one_of_its_files_is_an_error(catalog: FaultySqlCatalog, work: Work) -> None:
    short = replace(work.receipts[1], files=())
    _refused(catalog, replace(work, receipts=(work.receipts[0], short)), "read 10 rows and wrote 0")


def test_P6_files_of_an_attempt_that_crashed_are_never_published(
    catalog: FaultySqlCatalog, work: Work
) -> None:
    write_task(work.plan, 0, 7, 1, range(10), Storage())
    Publisher(catalog=catalog, work=work).run()
    assert rows_of(catalog) == list(range(20))


def test_a_file_of_another_task_or_attempt_is_an_error(catalog: FaultySqlCatalog, work: Work) -> None:
    stray = replace(work.receipts[1], attempt=2)
    _refused(catalog, replace(work, receipts=(work.receipts[0], stray)), "is not of task 1, attempt 2")


def test_a_partition_value_of_the_wrong_type_is_an_error(catalog: FaultySqlCatalog, work: Work) -> None:
    file = replace(work.receipts[0].files[0], partition=("../../x",))
    broken = replace(work.receipts[0], files=(file,))
    with pytest.raises(PermanentError, match="is not a valid int"):
        Publisher(catalog=catalog, work=replace(work, receipts=(broken, work.receipts[1]))).run()
    assert catalog.sends == 0


def test_L15_counters_hold_more_than_2_to_the_31(catalog: FaultySqlCatalog, work: Work) -> None:
    many = 5_000_000_000
    file = replace(work.receipts[0].files[0], rows=many, bytes=many * 9, value_counts={1: many})
    big = replace(work.receipts[0], rows=many, files=(file,))
    slices = replace(work.plan.tasks[0][0], end=many)
    plan = replace(work.plan, tasks=((slices,), work.plan.tasks[1]))
    answer = Publisher(catalog=catalog, work=replace(work, plan=plan, receipts=(big, work.receipts[1]))).run()
    assert getattr(answer, "rows", 0) == many + 10
    table = catalog.load_table(("ns", "events"))
    assert sum(task.file.record_count for task in table.scan().plan_files()) == many + 10
