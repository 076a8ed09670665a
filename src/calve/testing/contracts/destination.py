"""What every destination must do: `calve.destination.port`, as tests.

Inherit `DestinationContract` and give it a `stage`. Work is real: Parquet files with statistics, where
the destination's own placement puts them, and receipts as tasks leave them. What readers see is asked
of the stage, not of the destination.
"""

import hashlib
import io
import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from calve.destination import checksums
from calve.destination.file_io import bounded
from calve.destination.names import DataFileName, placement, receipt_uri, receipts_of
from calve.destination.outcome import AlreadyExported, PublishedSnapshot, PublishFenced
from calve.destination.plan import ColumnPlan, ExportPlan, KeyPlan, PartPlan, Relation, Slice
from calve.destination.port import Destination
from calve.destination.proof import expected_checksums, read_back, written_columns
from calve.destination.receipt import FileReceipt, Receipt
from calve.model.errors import CalveError, PermanentError, RefusedError, TemporaryError, UnknownOutcomeError
from calve.model.process import new_process_id

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "month", IntegerType(), required=False),
    NestedField(3, "name", StringType(), required=False),
)
BY_NAME = PartitionSpec(
    PartitionField(source_id=3, field_id=1000, transform=IdentityTransform(), name="name")
)
OTHER = Schema(NestedField(1, "other", StringType(), required=False))
ROWS = range(10)


class DestinationStage(Protocol):
    """An empty destination of one kind, and a look at it from outside."""

    def open(self) -> Destination:
        """As another worker would: nothing is shared with those opened before."""

    def open_losing_answers(self) -> Destination:
        """Its next publish is applied, and the answer to it is lost."""

    def visible(self) -> list[int]:
        """The `id` of every row that readers see, sorted."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """A planned process whose tasks are done."""

    process_id: str
    plan: ExportPlan
    receipts: tuple[Receipt, ...]

    def of_another(self, **changes: Any) -> "Work":
        """The same input and files, by a process that knows nothing of the first."""
        process_id = new_process_id()
        return replace(self, process_id=process_id, plan=replace(self.plan, process_id=process_id, **changes))


class Notes:
    """The control plane's row: a note is durable before anything is sent."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> None:
        self.text = text


def publish(
    destination: Destination, work: Work, notes: Notes | None = None
) -> PublishedSnapshot | AlreadyExported:
    notes = notes or Notes()
    return destination.publish(work.process_id, work.plan, work.receipts, notes.text, notes.write)


class DestinationContract:
    @pytest.fixture
    def stage(self) -> DestinationStage:
        raise NotImplementedError("the class that inherits the contract gives the stage")

    @pytest.fixture
    def destination(self, stage: DestinationStage) -> Destination:
        opened = stage.open()
        opened.create(SCHEMA, BY_NAME, UNSORTED_SORT_ORDER)
        return opened

    @pytest.fixture
    def work(self, destination: Destination) -> Work:
        return make_work(destination)

    # -- find, create, describe, place --------------------------------------------------------------

    def test_one_that_is_not_there_is_not_found(self, stage: DestinationStage) -> None:
        assert stage.open().find() is None

    def test_one_that_was_created_is_found_by_others(
        self, stage: DestinationStage, destination: Destination
    ) -> None:
        own, found = destination.find(), stage.open().find()
        assert own is not None and found is not None
        assert found.uuid == own.uuid
        assert [field.name for field in found.schema.fields] == ["id", "month", "name"]
        assert [field.name for field in found.spec.fields] == ["name"]
        assert list(found.exports()) == []
        assert list(found.released_exports()) == []

    def test_created_twice_it_is_what_the_first_made_it(
        self, stage: DestinationStage, destination: Destination
    ) -> None:
        first = destination.find()
        again = stage.open().create(OTHER, PartitionSpec(), UNSORTED_SORT_ORDER)
        assert first is not None and again.uuid == first.uuid
        assert [field.name for field in again.schema.fields] == ["id", "month", "name"]

    def test_columns_are_added_or_refused(self, destination: Destination) -> None:
        table = destination.find()
        assert table is not None
        if not destination.evolves:
            with pytest.raises(RefusedError):
                destination.add_columns(table, [("more", StringType())])
            return
        added = destination.add_columns(table, [("more", StringType())])
        assert added.uuid == table.uuid
        assert [field.name for field in added.schema.fields] == ["id", "month", "name", "more"]

    def test_columns_are_widened_or_refused(self, destination: Destination) -> None:
        table = destination.find()
        assert table is not None
        optional = [
            NestedField(field.field_id, field.name, field.field_type, required=False)
            for field in table.schema.fields
            if field.name == "name"
        ]
        if not destination.evolves:
            with pytest.raises(RefusedError):
                destination.widen_columns(table, optional)
            return
        widened = destination.widen_columns(table, optional)
        assert widened.uuid == table.uuid and not widened.schema.find_field("name").required

    def test_columns_are_renamed_or_refused(self, destination: Destination) -> None:
        table = destination.find()
        assert table is not None
        if not destination.evolves:
            with pytest.raises(RefusedError):
                destination.rename_columns(table, {"name": "title"})
            return
        before = table.schema.find_field("name").field_id
        renamed = destination.rename_columns(table, {"name": "title"})
        assert renamed.uuid == table.uuid and renamed.schema.find_field("title").field_id == before

    def test_a_plan_remembers_where_it_goes(self, destination: Destination) -> None:
        table = destination.find()
        assert table is not None
        plan = destination.describe(table)
        assert (plan.catalog, plan.identifier) == (
            destination.address.catalog,
            destination.address.identifier,
        )
        assert (plan.form, plan.uuid) == (destination.address.form, table.uuid)
        assert [field.name for field in plan.spec] == ["name"]

    @pytest.mark.parametrize("value", [None, "", ".", "..", "/../../x", "a/b", "?", "x\n", "é" * 300, "%2F"])
    def test_D10_no_value_leads_out_of_the_folder(self, destination: Destination, value: str | None) -> None:
        table = destination.find()
        assert table is not None
        plan = destination.describe(table)
        uri = placement(plan, table.spec, table.schema).file(Record(value), "f.parquet")
        below = uri.removeprefix(f"{plan.data_location}/")
        assert below != uri, "it is under the data's own folder"
        *folders, name = below.split("/")
        assert name == "f.parquet"
        assert len(folders) == 1 and folders[0] not in ("", ".", "..")
        assert len(folders[0].encode()) <= 255

    def test_two_values_have_two_folders(self, destination: Destination) -> None:
        table = destination.find()
        assert table is not None
        place = placement(destination.describe(table), table.spec, table.schema)
        values = [None, "", "a", "A", "a/b", "a%2Fb", "x" * 300 + "1", "x" * 300 + "2"]
        assert len({place.file(Record(value), "f") for value in values}) == len(values)

    # -- publish ------------------------------------------------------------------------------------

    def test_a_publish_shows_every_row_at_once(
        self, stage: DestinationStage, destination: Destination, work: Work
    ) -> None:
        assert stage.visible() == []
        outcome = publish(destination, work)
        assert isinstance(outcome, PublishedSnapshot)
        assert (outcome.process_id, outcome.rows, outcome.files) == (work.process_id, 10, 2)
        assert stage.visible() == list(ROWS)

    def test_what_was_published_is_remembered_by_its_key(
        self, stage: DestinationStage, destination: Destination, work: Work
    ) -> None:
        publish(destination, work)
        found = stage.open().find()
        assert found is not None
        export = found.find_export(work.plan.keys[0].hash)
        assert export is not None
        assert (export.process_id, export.content, export.rows) == (work.process_id, "content-1", 10)
        assert [one.process_id for one in found.exports()] == [work.process_id]
        assert list(found.released_exports()) == []
        assert found.find_export("another") is None

    @pytest.mark.parametrize("kept", [True, False], ids=["noted", "by a store that forgot"])
    def test_L13_a_second_publish_finds_the_first(
        self, stage: DestinationStage, destination: Destination, work: Work, kept: bool
    ) -> None:
        notes = Notes()
        first = publish(destination, work, notes)
        again = publish(stage.open(), work, notes if kept else Notes())
        assert isinstance(first, PublishedSnapshot) and isinstance(again, PublishedSnapshot)
        assert again.snapshot_id == first.snapshot_id
        assert stage.visible() == list(ROWS)

    def test_D1_another_process_finds_the_key_taken(
        self, stage: DestinationStage, destination: Destination, work: Work
    ) -> None:
        publish(destination, work)
        outcome = publish(stage.open(), work.of_another())
        assert isinstance(outcome, AlreadyExported) and outcome.unchanged
        assert [one.process_id for one in outcome.exports] == [work.process_id]
        changed = work.of_another(keys=(replace(work.plan.keys[0], content="content-2"),))
        outcome = publish(stage.open(), changed)
        assert isinstance(outcome, AlreadyExported) and not outcome.unchanged
        assert stage.visible() == list(ROWS)

    def test_L13_those_that_race_publish_once(self, stage: DestinationStage, work: Work) -> None:
        racers = [work, work, work.of_another(), work.of_another()]
        start, answers = threading.Barrier(len(racers)), list[object]()

        def run(mine: Work) -> None:
            opened = stage.open()
            start.wait()
            try:
                answers.append(publish(opened, mine))
            except CalveError as error:
                answers.append(error)

        threads = [threading.Thread(target=run, args=(mine,)) for mine in racers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        winners = {one.process_id for one in answers if isinstance(one, PublishedSnapshot)}
        assert len(winners) == 1, answers
        assert all(one.retryable for one in answers if isinstance(one, CalveError)), answers
        assert stage.visible() == list(ROWS)

    def test_D8_another_selection_of_the_partition_is_refused(
        self, stage: DestinationStage, destination: Destination
    ) -> None:
        publish(destination, make_work(destination, key=_key("")))
        other = make_work(destination, key=_key('{"where": "id > 5"}'))
        with pytest.raises(RefusedError) as refused:
            publish(stage.open(), other)
        assert refused.value.code == "overlap"
        assert stage.visible() == list(ROWS)

    def test_L21_force_replaces(self, stage: DestinationStage, destination: Destination, work: Work) -> None:
        publish(destination, work)
        other = make_work(destination, ids=range(100, 103))
        with pytest.raises(RefusedError) as fewer:  # T19
            publish(stage.open(), replace(other, plan=replace(other.plan, replace=True)))
        assert fewer.value.code == "would_shrink"
        assert stage.visible() == list(ROWS)
        asked = replace(other.plan, replace=True, allow_shrink=True)
        outcome = publish(stage.open(), replace(other, plan=asked))
        assert isinstance(outcome, PublishedSnapshot)
        assert (outcome.replaced_rows, outcome.replaced_files) == (10, 2)
        assert stage.visible() == [100, 101, 102]

    def test_a_lost_answer_is_looked_up(self, stage: DestinationStage, work: Work) -> None:
        notes = Notes()
        try:
            outcome = publish(stage.open_losing_answers(), work, notes)
        except UnknownOutcomeError:
            assert notes.text, "what may have been sent is noted"
            outcome = publish(stage.open(), work, notes)
        assert isinstance(outcome, PublishedSnapshot) and outcome.rows == 10
        assert stage.visible() == list(ROWS)

    def test_a_note_that_is_refused_sends_nothing(
        self, stage: DestinationStage, destination: Destination, work: Work
    ) -> None:
        def refuse(text: str) -> None:
            raise PermanentError("another worker owns the process", code="fence_lost")

        with pytest.raises(PermanentError, match="another worker"):
            destination.publish(work.process_id, work.plan, work.receipts, "", refuse)
        assert stage.visible() == []

    def test_L23_a_missing_receipt_is_an_error(
        self, stage: DestinationStage, destination: Destination, work: Work
    ) -> None:
        with pytest.raises(PermanentError) as told:
            publish(destination, replace(work, receipts=work.receipts[:1]))
        assert told.value.code == "receipts_incomplete"
        assert stage.visible() == []

    # -- fence --------------------------------------------------------------------------------------

    def test_D2_a_publish_that_comes_after_the_fence_is_refused(
        self, stage: DestinationStage, destination: Destination, work: Work
    ) -> None:
        """The worker noted, stopped before it sent, and woke up after its process was ended."""
        with pytest.raises(PermanentError) as told:
            destination.publish(
                work.process_id, work.plan, work.receipts, "", _fencing(stage.open(), work, Notes())
            )
        assert told.value.code == "publish_fenced"
        assert stage.visible() == []

    def test_a_fence_that_comes_too_late_finds_the_publish(
        self, stage: DestinationStage, destination: Destination, work: Work
    ) -> None:
        notes = Notes()
        publish(destination, work, notes)
        answer = stage.open().fence(work.process_id, work.plan, notes.text)
        assert isinstance(answer, PublishedSnapshot) and answer.rows == 10

    def test_after_a_fence_another_process_publishes_the_key(
        self, stage: DestinationStage, destination: Destination, work: Work
    ) -> None:
        notes = Notes()
        with pytest.raises(PermanentError):
            destination.publish(
                work.process_id, work.plan, work.receipts, "", _fencing(stage.open(), work, notes)
            )
        assert isinstance(stage.open().fence(work.process_id, work.plan, notes.text), PublishFenced), (
            "again the same"
        )
        assert isinstance(publish(stage.open(), work.of_another()), PublishedSnapshot)
        assert stage.visible() == list(ROWS)

    # -- undo ---------------------------------------------------------------------------------------

    def test_L20_undo_deletes_the_process_s_own_files_and_no_others(
        self, stage: DestinationStage, destination: Destination, work: Work
    ) -> None:
        other = make_work(destination, ids=range(50, 53), key=_key("", partition="202402"))
        publish(destination, other)
        assert len(destination.files_of(work.process_id, work.plan)) == 2
        undone = stage.open().undo(work.process_id, work.plan, work.receipts, "")
        assert (undone.left, undone.message) == ((), "")
        assert destination.files_of(work.process_id, work.plan) == ()
        assert not destination.storage().list(
            receipts_of(work.plan.destination.receipts_location, work.process_id)
        )
        assert stage.open().undo(work.process_id, work.plan, work.receipts, "").left == (), (
            "twice is harmless"
        )
        assert stage.visible() == [50, 51, 52]

    @pytest.mark.parametrize("noted", [True, False])
    def test_L20_undo_leaves_what_is_published(
        self, stage: DestinationStage, destination: Destination, work: Work, noted: bool
    ) -> None:
        notes = Notes()
        publish(destination, work, notes)
        undone = stage.open().undo(work.process_id, work.plan, work.receipts, notes.text if noted else "")
        assert len(undone.left) == 2 and undone.message
        assert stage.visible() == list(ROWS)

    def test_L20_undo_leaves_files_that_a_retry_published(
        self, stage: DestinationStage, destination: Destination, work: Work
    ) -> None:
        publish(destination, work.of_another())
        undone = stage.open().undo(work.process_id, work.plan, work.receipts, "")
        assert len(undone.left) == 2 and undone.message
        assert stage.visible() == list(ROWS)

    def test_T2_undo_leaves_what_a_retry_s_receipts_name_whatever_the_look_shows(
        self, stage: DestinationStage, destination: Destination, work: Work
    ) -> None:
        """The retry published it, and this look does not show that yet."""
        undone = stage.open().undo(work.process_id, work.plan, work.receipts, "", work.receipts[:1])
        used = tuple(file.path for file in work.receipts[0].files)
        assert (undone.left, undone.in_use) == (used, True)
        assert destination.files_of(work.process_id, work.plan) == used

    # -- attempts that lost ---------------------------------------------------------------------------

    def test_T13_files_that_a_publish_does_not_list_are_removed_and_no_others(
        self, stage: DestinationStage, destination: Destination, work: Work
    ) -> None:
        publish(destination, work)
        published = destination.files_of(work.process_id, work.plan)
        lost = published[0].replace("-0-1-0.parquet", "-0-7-0.parquet")
        destination.storage().put_if_absent(lost, b"half of an attempt")
        assert lost in destination.files_of(work.process_id, work.plan)
        assert stage.open().remove_lost(work.process_id, work.plan, work.receipts) == (lost,)
        assert stage.open().remove_lost(work.process_id, work.plan, work.receipts) == ()
        assert destination.files_of(work.process_id, work.plan) == published
        assert stage.visible() == list(ROWS)

    def test_T13_what_is_published_stays_though_the_store_names_other_files(
        self, stage: DestinationStage, destination: Destination, work: Work
    ) -> None:
        """A store restored from yesterday: the receipts it has are not those that were published."""
        publish(destination, work)
        before = destination.files_of(work.process_id, work.plan)
        assert stage.open().remove_lost(work.process_id, work.plan, ()) == ()
        assert destination.files_of(work.process_id, work.plan) == before
        assert stage.visible() == list(ROWS)

    def test_D1_a_process_finds_what_it_has_published(self, destination: Destination, work: Work) -> None:
        assert destination.find_publish(work.process_id, work.plan) is None
        published = publish(destination, work)
        assert destination.find_publish(work.process_id, work.plan) == published
        assert destination.find_publish(work.of_another().process_id, work.plan) is None

    def test_D1_what_was_published_before_the_plan_stays(
        self, stage: DestinationStage, destination: Destination, work: Work
    ) -> None:
        """A store that was put back from a copy knew of no plan: the process was planned once more."""
        published = publish(destination, work)
        assert isinstance(published, PublishedSnapshot)
        now = replace(work.plan.destination, base_snapshot_id=published.snapshot_id)
        before = destination.files_of(work.process_id, work.plan)
        assert stage.open().remove_lost(work.process_id, replace(work.plan, destination=now), ()) == ()
        assert destination.files_of(work.process_id, work.plan) == before

    def test_T13_nothing_is_removed_while_the_publish_is_not_seen(
        self, stage: DestinationStage, destination: Destination, work: Work
    ) -> None:
        with pytest.raises(TemporaryError):
            stage.open().remove_lost(work.process_id, work.plan, work.receipts[:1])
        assert len(destination.files_of(work.process_id, work.plan)) == 2

    # -- verify, probe, access ----------------------------------------------------------------------

    def test_an_export_is_proven_by_value(
        self, stage: DestinationStage, destination: Destination, work: Work
    ) -> None:
        published = publish(destination, work)
        assert isinstance(published, PublishedSnapshot)
        proof = stage.open().verify(work.process_id, work.plan, work.receipts, published.snapshot_id)
        assert proof.ok and (proof.files, proof.found_rows) == (2, 10)

    def test_a_value_that_differs_is_found(
        self, stage: DestinationStage, destination: Destination, work: Work
    ) -> None:
        published = publish(destination, work)
        assert isinstance(published, PublishedSnapshot)
        wrong = replace(
            work.receipts[0], checksums={**work.receipts[0].checksums, "month": checksums.text(1)}
        )
        receipts = (wrong, *work.receipts[1:])
        proof = stage.open().verify(work.process_id, work.plan, receipts, published.snapshot_id)
        assert [column.name for column in proof.columns if not column.same] == ["month"]

    def test_what_reads_an_export_can_be_written_down_and_read_elsewhere(
        self, stage: DestinationStage, destination: Destination, work: Work
    ) -> None:
        published = publish(destination, work)
        assert isinstance(published, PublishedSnapshot)
        scan = stage.open().scan(work.process_id, work.plan, work.receipts, published.snapshot_id)
        assert (len(scan.files), scan.snapshot_id, scan.current) == (2, published.snapshot_id, True)
        io = load_file_io(bounded(destination.executor_access().storage), scan.location)
        schema, tasks = written_columns(work.plan), [file.task for file in scan.files]
        rows, sums = read_back(scan.table, io, schema, tasks)
        found = {name: checksums.text(value) for name, value in sums.items()}
        assert (rows, found) == (10, expected_checksums(work.plan, work.receipts))

    def test_a_probe_leaves_nothing(self, destination: Destination, work: Work) -> None:
        process_id, folder = new_process_id(), work.plan.destination.receipts_location
        destination.probe()
        destination.probe(process_id)
        destination.check_writable(work.plan)
        assert not destination.storage().list(f"{folder}/{process_id}")


def _fencing(destination: Destination, work: Work, notes: Notes) -> Callable[[str], None]:
    """A note that is written, after which the process is fenced before its publish is sent."""

    def note(text: str) -> None:
        notes.write(text)
        if text:
            assert isinstance(destination.fence(work.process_id, work.plan, text), PublishFenced)

    return note


def _key(selection: str, partition: str = "202401") -> KeyPlan:
    text = json.dumps(["server/table", partition, selection, "uuid"])
    return KeyPlan(
        partition=partition,
        hash=hashlib.sha256(text.encode()).hexdigest()[:32],
        content="content-1",
        text=text,
    )


def make_work(destination: Destination, ids: Sequence[int] = ROWS, key: KeyPlan | None = None) -> Work:
    """Two tasks, each with one file of a destination partition of its own."""
    table = destination.find()
    assert table is not None
    key = key or KeyPlan(partition="202401", hash="0123abcd", content="content-1")
    slices = [ids[: len(ids) // 2], ids[len(ids) // 2 :]]
    process_id = new_process_id()
    plan = ExportPlan(
        process_id=process_id,
        source="main",
        source_identity="server/table",
        table="db.events",
        relation=Relation(mode="frozen"),
        parts=tuple(
            PartPlan(name=f"all_{number}", partition_id=key.partition, rows=len(rows), bytes=100)
            for number, rows in enumerate(slices)
        ),
        tasks=tuple((Slice(part=number, start=0, end=len(rows)),) for number, rows in enumerate(slices)),
        columns=tuple(
            ColumnPlan(
                name=field.name,
                source=field.name,
                source_type="",
                select=field.name,
                field_id=field.field_id,
                type=str(field.field_type),
                required=field.required,
            )
            for field in table.schema.fields
        ),
        keys=(key,),
        destination=destination.describe(table),
        refuse_overlap=True,
    )
    receipts = tuple(
        _done(destination, plan, number, rows, f"name {number}") for number, rows in enumerate(slices)
    )
    return Work(process_id=process_id, plan=plan, receipts=receipts)


def _done(destination: Destination, plan: ExportPlan, task: int, ids: Sequence[int], name: str) -> Receipt:
    table = destination.find()
    assert table is not None
    rows = [{"id": number, "month": 1, "name": name} for number in ids]
    data = pa.Table.from_pylist(rows, schema=schema_to_pyarrow(table.schema))
    file_name = str(DataFileName(process_id=plan.process_id, task=task, attempt=1, number=0))
    path = placement(plan.destination, table.spec, table.schema).file(Record(name), file_name)
    buffer = io.BytesIO()
    pq.write_table(data, buffer)
    destination.storage().put_if_absent(path, buffer.getvalue())
    file = FileReceipt(
        path=path,
        rows=len(ids),
        bytes=buffer.tell(),
        partition=(name,),
        value_counts=dict.fromkeys((1, 2, 3), len(ids)),
        null_counts=dict.fromkeys((1, 2, 3), 0),
        lower_bounds={1: to_bytes(LongType(), min(ids)).hex()},
        upper_bounds={1: to_bytes(LongType(), max(ids)).hex()},
        split_offsets=(4,),
    )
    receipt = Receipt(
        process_id=plan.process_id,
        task=task,
        attempt=1,
        rows=len(ids),
        bytes=file.bytes,
        files=(file,),
        checksums={
            field.name: checksums.text(checksums.of_arrow(field.field_type, data.column(field.name)))
            for field in table.schema.fields
        },
    )
    uri = receipt_uri(plan.destination.receipts_location, plan.process_id, task, 1)
    destination.storage().put_if_absent(uri, receipt.to_json().encode())
    return receipt
