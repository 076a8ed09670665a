"""What a table's history proves of destination partitions, asked of real tables: who took rows out, and where they were."""

import pytest

from calve.destination.outcome import EarlierExport
from calve.iceberg.publish import find_export, history
from calve.iceberg.publish.replace import is_of
from calve.model.errors import RefusedError
from support.catalog_faults import FaultySqlCatalog
from support.lake import IDENTIFIER, make_work
from support.outcomes import Publisher, append_as_somebody_else

KEY = frozenset({"k-202401"})


def exported(catalog: FaultySqlCatalog, month: int = 1, **plan: object) -> EarlierExport:
    work = make_work(catalog, [(month, range(10))], content=f"content-{month}")
    Publisher(catalog=catalog, work=work.with_plan(**plan) if plan else work).run()
    found = find_export(catalog.load_table(IDENTIFIER), "k-202401")
    assert found is not None
    return found


def months(catalog: FaultySqlCatalog, export: EarlierExport) -> frozenset[history.FilePartition]:
    return history.places_of(catalog.load_table(IDENTIFIER), export, is_of)


def lost(catalog: FaultySqlCatalog, export: EarlierExport, places: frozenset[history.FilePartition]) -> str:
    """The code with which a replace would be refused for deletes since the export; "" if it is not."""
    table = catalog.load_table(IDENTIFIER)
    try:
        history.refuse_lost_deletes(table, table.current_snapshot(), places, KEY, export)
    except RefusedError as error:
        return error.code
    return ""


def alone(
    catalog: FaultySqlCatalog,
    export: EarlierExport,
    places: frozenset[history.FilePartition],
    *,
    discard: bool,
) -> str:
    """As `lost`, where the files were compacted."""
    table = catalog.load_table(IDENTIFIER)
    try:
        history.refuse_unless_only(table, table.current_snapshot(), places, KEY, export, discard)
    except RefusedError as error:
        return error.code
    return ""


def test_a_replace_is_where_it_put_files_and_not_where_it_took_them_out(catalog: FaultySqlCatalog) -> None:
    first = exported(catalog, 1)
    before = months(catalog, first)
    second = exported(catalog, 2, replace=True, allow_shrink=True)
    after = months(catalog, second)
    assert len(before) == len(after) == 1 and before != after


def test_deletes_elsewhere_are_nobody_s_loss_and_deletes_among_others_are(catalog: FaultySqlCatalog) -> None:
    export = exported(catalog)
    places = months(catalog, export)
    append_as_somebody_else(catalog, range(50, 53))
    append_as_somebody_else(catalog, range(60, 63), month=8)
    catalog.load_table(IDENTIFIER).delete("month = 8")
    assert lost(catalog, export, places) == ""
    catalog.load_table(IDENTIFIER).delete("month = 1 or id = 50")
    assert lost(catalog, export, places) == "deletes_would_be_lost"


def test_what_exports_of_these_keys_took_out_is_not_lost(catalog: FaultySqlCatalog) -> None:
    first = exported(catalog)
    places = months(catalog, first)
    exported(catalog, 1, replace=True)
    assert lost(catalog, first, places) == ""


def test_rows_that_others_took_out_stop_a_replace_unless_they_are_to_be_discarded(
    catalog: FaultySqlCatalog,
) -> None:
    export = exported(catalog)
    places = months(catalog, export)
    assert alone(catalog, export, places, discard=False) == ""
    catalog.load_table(IDENTIFIER).delete("month = 1")
    assert alone(catalog, export, places, discard=False) == "deletes_would_be_lost"
    assert alone(catalog, export, places, discard=True) == ""
    append_as_somebody_else(catalog, range(50, 53), month=1)
    assert alone(catalog, export, places, discard=True) == "replace_refused"


def test_deletes_that_nobody_can_tell_are_refused_with_what_to_do(catalog: FaultySqlCatalog) -> None:
    with pytest.raises(RefusedError) as refused:
        history.refuse_unknown_deletes(exported(catalog))
    assert refused.value.code == "deletes_would_be_lost" and "--discard-deletes" in refused.value.hint
