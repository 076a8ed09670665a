"""A table bucket takes data and metadata files, and refuses Calve's receipts: they go elsewhere."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from calve.app.doctor import parts
from calve.model.errors import DeniedError
from calve.model.process import Process
from calve.model.states import ProcessState
from support.child_runner import ChildRunner
from support.iceberg_rest import SeaweedRest, seaweed_rest
from support.outage_place import OutagePlace, make_table

pytestmark = pytest.mark.services

WORK = "work"
ROWS = [*range(10), *range(50, 60)]  # of partition 0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeaweedRest]:
    with seaweed_rest(tmp_path_factory.mktemp("rest")) as server:
        server.create_bucket(WORK)
        yield server


def exported(
    folder: Path, runner: ChildRunner, given: dict[str, str], table: str
) -> tuple[OutagePlace, Process]:
    place = OutagePlace(folder, runner, {})
    config = folder / "calve.toml"
    lines = "\n".join(f'"{name}" = "{value}"' for name, value in given.items())
    config.write_text(f"{config.read_text()}\n[catalog.tables]\n{lines}\n")
    place.reopen()
    place.place.execute(*make_table("events", rows=10))
    with place.worker():
        [process] = place.finish(place.submit("events", table, "0"))
    return place, process


def test_receipts_are_put_where_the_catalog_s_entry_says(
    server: SeaweedRest, tmp_path: Path, runner: ChildRunner
) -> None:
    given = server.catalog_properties() | {"calve.receipts": f"s3://{WORK}/receipts"}
    place, process = exported(tmp_path, runner, given, "tables.ns.events")
    try:
        assert process.state is ProcessState.COMPLETED, place.told(process.id)
        assert place.ids_in("tables.ns.events") == ROWS
        uuid = place.place.table("tables.ns.events").metadata.table_uuid
        found = place.app.storage("tables").list(f"s3://{WORK}/receipts")
        assert found == [f"s3://{WORK}/receipts/{uuid}/{process.id}/0-1.json"]
    finally:
        place.close()


def test_without_such_a_place_the_export_is_refused_before_anything_is_read(
    server: SeaweedRest, tmp_path: Path, runner: ChildRunner
) -> None:
    place, process = exported(tmp_path, runner, server.catalog_properties(), "tables.ns.refused")
    try:
        assert process.state is ProcessState.FAILED
        assert process.error is not None
        assert process.error.code == "receipts_refused"
        assert '"calve.receipts" = ' in process.error.hint and "[catalog.tables]" in process.error.hint
        assert not process.planned
        with pytest.raises(DeniedError) as said:  # and `calve doctor` says the same
            list(parts.catalog(place.app, name="tables"))
        assert said.value.hint == process.error.hint
    finally:
        place.close()
