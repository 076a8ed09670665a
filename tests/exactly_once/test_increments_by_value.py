"""What was added to an exported partition: it fits only what it was planned for, and goes with the whole."""

import json
from dataclasses import replace

import pytest

from calve.destination.content import increment_selection
from calve.iceberg.publish import AlreadyExported, PublishedSnapshot, find_export
from calve.iceberg.publish.marks import property_of
from calve.model.errors import RefusedError
from support.catalog_faults import FaultySqlCatalog
from support.lake import IDENTIFIER, Work, make_table, make_work, rows_of
from support.outcomes import Publisher


def some(
    catalog: FaultySqlCatalog, key: str, ids: range, *, selection: str = "", force: bool = False
) -> Work:
    """Of partition 202401: all of it, or what a selection says."""
    work = make_work(catalog, [(1, ids)], keys=[("202401", key)], content=f"content of {ids}")
    text = json.dumps(["server/table", "202401", selection, "uuid"])
    keys = tuple(replace(one, text=text) for one in work.plan.keys)
    return replace(work, plan=replace(work.plan, keys=keys, replace=force))


def published(catalog: FaultySqlCatalog, work: Work) -> PublishedSnapshot:
    answer = Publisher(catalog=catalog, work=work).run()
    assert isinstance(answer, PublishedSnapshot)
    return answer


@pytest.fixture
def whole(catalog: FaultySqlCatalog) -> Work:
    """Published, with one increment."""
    work = some(catalog, "whole", range(10))
    published(catalog, work)
    published(catalog, added(catalog, work, 1, range(10, 12)))
    return work


def added(catalog: FaultySqlCatalog, whole: Work, number: int, ids: range) -> Work:
    selection = increment_selection(whole.process_id, number)
    return some(catalog, f"added-{number}", ids, selection=selection)


def test_the_next_increment_fits_and_no_other(catalog: FaultySqlCatalog, whole: Work) -> None:
    stranger = some(catalog, "whole", range(10))  # that was planned, and never published
    for other in (added(catalog, whole, 3, range(20, 22)), added(catalog, stranger, 2, range(20, 22))):
        with pytest.raises(RefusedError) as refused:
            Publisher(catalog=catalog, work=other).run()
        assert refused.value.code == "changed_since"
    assert rows_of(catalog) == list(range(12))
    published(catalog, added(catalog, whole, 2, range(12, 14)))
    assert rows_of(catalog) == list(range(14))


def test_a_whole_that_is_replaced_takes_its_increments_with_it(
    catalog: FaultySqlCatalog, whole: Work
) -> None:
    answer = published(catalog, some(catalog, "whole", range(100, 120), force=True))
    assert (answer.rows, answer.replaced_rows) == (20, 12)
    assert rows_of(catalog) == list(range(100, 120))
    assert property_of("added-1") not in catalog.load_table(IDENTIFIER).properties


def test_of_two_keys_one_that_changed_is_a_change(catalog: FaultySqlCatalog) -> None:
    keys = [("202401", "one"), ("202402", "two")]
    published(catalog, make_work(catalog, [(1, range(5)), (2, range(5, 10))], keys=keys))
    again = make_work(catalog, [(1, range(5)), (2, range(5, 10))], keys=keys)
    first, second = again.plan.keys
    plans = {
        content: replace(again.plan, keys=(first, replace(second, content=content)))
        for content in (second.content, "another")
    }
    for content, plan in plans.items():
        answer = Publisher(catalog=catalog, work=replace(again, plan=plan)).run()
        assert isinstance(answer, AlreadyExported)
        assert answer.unchanged == (content == second.content)


@pytest.mark.parametrize(("version", "sequence"), [("1", 0), ("2", 1)])
def test_a_key_knows_the_sequence_number_of_its_snapshot(
    catalog: FaultySqlCatalog, version: str, sequence: int
) -> None:
    catalog.drop_table(IDENTIFIER)
    make_table(catalog, properties={"format-version": version})
    published(catalog, make_work(catalog, [(1, range(5))]))
    export = find_export(catalog.load_table(IDENTIFIER), "k-202401")
    assert export is not None and export.sequence == sequence
