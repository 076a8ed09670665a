"""A proof over a real lake and a fake source: what it says of rows that are equal and of rows that are not, and that
it says the same whichever call fails or dies."""

import contextlib
import json

import pyarrow as pa
import pytest
from proof_scene import COLUMNS, Export, ProofScene, lake_in
from pyiceberg.catalog import Catalog

from calve.clickhouse.tables import Column
from calve.model.states import ProcessState
from calve.policy.proof import plan as proof_plan
from calve.policy.proof import source as proof_source
from calve.policy.proof.plan import ProofPlan
from calve.testing.faults import Break, Crash, Faults
from support.lake import arrow
from support.position_deletes import delete_rows

_LEASES_OVER = ProofScene.limits.lease_seconds + 1


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    return lake_in(tmp_path_factory.mktemp("proofs"))


def _answers(scene: ProofScene) -> list[tuple[bool, str]]:
    return [(proof.ok, proof.depth) for proof in scene.proofs]


def test_equal_rows_are_proven_row_by_row_in_as_many_tasks_as_needed(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proof_plan, "_TASK_BYTES", 1)
    monkeypatch.setattr(proof_source, "_QUERY_ROWS", 7)
    scene = ProofScene(Export.make(catalog, "equal"))
    id = scene.submit()
    row = scene.settle(id)
    assert (row.state, row.rows, row.files) == (ProcessState.COMPLETED, 30, 3), row.error
    assert _answers(scene) == [(True, "files")]
    assert len(scene.memory.tasks(id)) == 3
    assert len(scene.source_.queries) == 5  # 5 rows; 6; and 19 in three
    assert json.loads(row.result or "{}")["sums"].startswith("30:")
    assert scene.proofs[0].process_id == scene.export.work.process_id


def _other_value(scene: ProofScene) -> None:
    scene.source_.parts_["all_0"] = pa.concat_tables([arrow(range(4), 1), arrow([4], 2)])


def _swapped(scene: ProofScene) -> None:
    rows = scene.source_.parts_["all_0"]
    names = rows.column("name").take([1, 0, 2, 3, 4])
    scene.source_.parts_["all_0"] = rows.set_column(2, rows.schema.field(2), names)


def _one_more(scene: ProofScene) -> None:
    scene.source_.parts_["all_9"] = arrow([99], 1)


def _one_deleted_in_the_lake(scene: ProofScene) -> None:
    delete_rows(
        scene.export.catalog, scene.export.identifier, scene.export.work.receipts[0].files[0].path, [2]
    )


@pytest.mark.parametrize("change", [_other_value, _swapped, _one_more, _one_deleted_in_the_lake])
def test_rows_that_differ_fail_the_proof(catalog: Catalog, change: object) -> None:
    scene = ProofScene(Export.make(catalog, f"differs{change.__name__}"))  # type: ignore[attr-defined]
    change(scene)  # type: ignore[operator]
    row = scene.settle(scene.submit())
    assert row.state is ProcessState.FAILED
    assert row.error is not None
    assert row.error.code == "proof_failed"
    assert _answers(scene) == [(False, "files")]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"gone": True}, "no table"),
        ({"content": "content-2"}, "has changed"),
        ({"unable": "ClickHouse 18"}, "ClickHouse 18"),
        ({"row_policies": ("hides",)}, "row policies"),
        ({"columns": COLUMNS[:2]}, "column name is no longer at the source"),
    ],
)
def test_a_source_that_cannot_be_compared_leaves_what_its_tasks_read(
    catalog: Catalog, change: dict[str, object], says: str
) -> None:
    scene = ProofScene(Export.make(catalog, f"without_{says.replace(' ', '_')}"))
    for name, value in change.items():
        setattr(scene.source_, name, value)
    assert scene.settle(scene.submit()).state is ProcessState.COMPLETED
    assert _answers(scene) == [(True, "destination")]
    assert says in scene.proofs[0].detail
    _one_deleted_in_the_lake(scene)
    row = scene.settle(scene.submit())
    assert row.error is not None
    assert row.error.code == "proof_failed"
    assert _answers(scene)[1:] == [(False, "destination")]


def test_a_column_that_only_the_source_has_makes_the_proof_partial(catalog: Catalog) -> None:
    scene = ProofScene(Export.make(catalog, "partial"))
    scene.source_.columns = (
        *COLUMNS,
        Column(name="more", type="String"),
        Column(name="a", type="Int8", default_kind="ALIAS"),
    )
    assert scene.settle(scene.submit()).state is ProcessState.COMPLETED
    assert _answers(scene) == [(True, "partial")]
    assert scene.proofs[0].detail == "column more is not in the destination"


def test_a_sample_reads_some_files_and_asks_no_source(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proof_plan, "_SAMPLED", 2)
    scene = ProofScene(Export.make(catalog, "sample"))
    scene.source_.gone = True
    row = scene.settle(scene.submit(sample=True))
    assert (row.state, row.files, row.rows) == (ProcessState.COMPLETED, 2, 24), row.error
    assert _answers(scene) == [(True, "sample")]


def test_parts_that_merge_while_they_are_read_are_read_again(catalog: Catalog) -> None:
    scene = ProofScene(Export.make(catalog, "merging"))
    scene.source_.merges_at = 1
    assert scene.settle(scene.submit()).state is ProcessState.COMPLETED
    assert _answers(scene) == [(True, "files")]


def test_a_source_that_changes_after_the_plan_ends_without_an_answer(catalog: Catalog) -> None:
    scene = ProofScene(Export.make(catalog, "changing"))
    id, worker = scene.submit(), scene.worker()
    while scene.memory.plan(id) is None:
        worker.tick()
        scene.clock.advance(1.0)
    scene.source_.content = "content-2"
    row = scene.settle(id, worker)
    assert row.error is not None
    assert row.error.code == "source_changed"
    assert scene.proofs == []


def test_a_plan_holds_no_secret_and_nothing_of_the_table_s_history(catalog: Catalog) -> None:
    scene = ProofScene(Export.make(catalog, "plans"))
    id = scene.submit()
    scene.settle(id)
    text = scene.memory.plan(id)
    assert text is not None
    plan = ProofPlan.from_json(text)
    assert plan.scan.table.snapshots == []
    assert plan.scan.table.properties == {}
    assert scene.export.catalog.properties["uri"] not in text
    assert ProofPlan.from_json(plan.to_json()) == plan


@pytest.fixture(scope="module")
def export(catalog: Catalog) -> Export:
    return Export.make(catalog, "unchanging")


@pytest.mark.parametrize("how", list(Break))
@pytest.mark.parametrize("equal", [True, False])
def test_breaking_at_any_call_gives_the_same_answer(export: Export, how: Break, equal: bool) -> None:
    whole, faults = ProofScene(export), Faults()
    whole.settle(whole.submit(), whole.worker(faults))
    assert len(faults.calls) > 8, "the life is too short to say anything"
    for at, call in enumerate(faults.calls, start=1):
        scene = ProofScene(export)
        if not equal:
            _swapped(scene)
        id, broken = scene.submit(), Faults(at=at, how=how)
        with contextlib.suppress(Crash):
            scene.settle(id, scene.worker(broken))
        broken.armed = False
        scene.clock.advance(_LEASES_OVER)
        row, where = scene.settle(id), f"{how} call {at} ({call})"
        assert row.state is (ProcessState.COMPLETED if equal else ProcessState.FAILED), (where, row.error)
        assert set(_answers(scene)) == {(equal, "files")}, where
        assert scene.memory.holder(f"proof:{export.work.process_id}") is None, where
