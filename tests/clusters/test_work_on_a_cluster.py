"""Each kind of work on executors that see nothing of the worker's machine."""

import os

import pytest
from cluster_place import ClusterPlace, numbers

from calve.app.doctor import examine
from calve.app.values import ExportOptions, OptimizeOptions, Selection
from calve.control.ports import TaskOrder, TaskResult
from calve.model.process import ProcessId

pytestmark = [pytest.mark.spark, pytest.mark.services]

ALL = Selection(all=True)


def test_D16_executors_are_strangers_here(place: ClusterPlace) -> None:
    """Or the rest would prove little."""
    results: list[TaskResult] = []
    order = TaskOrder(
        process_id=ProcessId("p"),
        number=0,
        attempt=1,
        function="support.stranger:look",
        payload=str(place.folder),
    )
    place.spark.run("look", [order], results.append)
    assert results[0].error is None, results[0].error
    user, sees, folder = results[0].receipt.split(" ", 2)
    assert folder.startswith("/tmp/calve-cluster-")
    if os.geteuid() == 0:
        assert (user, sees) == ("65534", "False")


def test_D16_a_server_is_exported_and_optimized_by_executors_that_share_nothing_with_the_worker(
    place: ClusterPlace,
) -> None:
    table = place.make("events")
    [process, *_] = place.do(lambda calve: calve.export(table, "far.ns.events", ALL))
    assert place.ids_in("far.ns.events") == numbers(4)
    assert place.pins == []
    with place.calve() as calve:
        assert all(proof["ok"] for proof in calve.verify([process.id]))
    [optimized] = place.do(lambda calve: calve.optimize("far.ns.events", OptimizeOptions(full=True)))
    assert place.ids_in("far.ns.events") == numbers(4)
    assert optimized.tasks.done == optimized.tasks.total > 0
    operations = [
        one.summary.operation.value for one in place.table("far.ns.events").snapshots() if one.summary
    ]
    assert operations[-1] == "replace"


def test_a_backup_goes_to_s3_and_is_restored_and_exported_from_there(place: ClusterPlace) -> None:
    """The disks are seen on the worker's machine only, so what needs them runs there; an export of the backup needs
    S3 alone, and runs on executors."""
    table = place.make("kept")
    before = place.select(f"SELECT * FROM {table} ORDER BY id")
    place.do(lambda calve: calve.backup_create("nightly", [table]))
    place.execute(f"DROP TABLE {table} SYNC")
    place.do(lambda calve: calve.backup_restore("nightly"))
    assert place.select(f"SELECT * FROM {table} ORDER BY id") == before
    place.execute(f"DROP TABLE {table} SYNC")
    of_backup = ExportOptions(from_backup="nightly")
    place.do(lambda calve: calve.export(table, "far.ns.kept", ALL, of_backup))
    assert place.ids_in("far.ns.kept") == numbers(4)


def test_doctor_and_ps_say_what_the_cluster_grants(place: ClusterPlace) -> None:
    with place.app() as app:
        [found] = [finding for finding in examine(app) if finding.part == "spark"]
    assert found.ok, found
    assert f"{place.cluster.url}, 8 slots (2 executors for 4 tasks at a time)" in found.words
