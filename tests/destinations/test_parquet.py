"""Folders of plain Parquet keep the destination's contract."""

import json
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from calve.destination.names import DestinationAddress
from calve.destination.outcome import PublishedSnapshot, PublishFenced
from calve.destination.port import Destination
from calve.model.errors import RefusedError, UnavailableError
from calve.objects.storage import Storage
from calve.parquet.destination import ParquetDestination
from calve.testing.contracts.destination import DestinationContract, Work, make_work, publish


class LosesAnswers(Storage):
    """Puts a commit, and reports that the storage could not be reached."""

    def put_if_absent(self, uri: str, data: bytes) -> bool:
        put = super().put_if_absent(uri, data)
        if "/_calve/commits/" in uri:
            raise UnavailableError("the answer was lost", code="storage_unavailable", service="storage:test")
        return put


class ParquetStage:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._address = DestinationAddress.folder(folder.as_uri())

    def open(self) -> ParquetDestination:
        return ParquetDestination(self._address, Storage())

    def open_losing_answers(self) -> ParquetDestination:
        return ParquetDestination(self._address, LosesAnswers())

    def visible(self) -> list[int]:
        """Of the files that each key's last commit lists."""
        last: dict[str, list[str]] = {}
        commits = [json.loads(file.read_text()) for file in self._folder.glob("_calve/commits/*.json")]
        for commit in sorted(commits, key=lambda one: one["generation"]):
            if not commit["tombstone"]:
                last[commit["key"]] = [file["path"].removeprefix("file://") for file in commit["files"]]
        files = [file for listed in last.values() for file in listed]
        return sorted(row for file in files for row in pq.ParquetFile(file).read().column("id").to_pylist())


class TestParquet(DestinationContract):
    @pytest.fixture
    def stage(self, tmp_path: Path) -> ParquetStage:
        return ParquetStage(tmp_path / "out")

    def test_a_replace_removes_the_files_that_it_replaced(
        self, stage: ParquetStage, destination: Destination, work: Work, tmp_path: Path
    ) -> None:
        first = publish(destination, work)
        assert isinstance(first, PublishedSnapshot) and (first.replaced_rows, first.replaced_files) == (0, 0)
        other = make_work(destination, ids=range(100, 103))
        asked = replace(other, plan=replace(other.plan, replace=True, allow_shrink=True))
        publish(stage.open(), asked)
        there = {file.name.split("-")[1] for file in (tmp_path / "out").rglob("*.parquet")}
        assert there == {other.process_id}

    def test_T9_a_file_that_a_commit_of_others_lists_is_not_removed(
        self, stage: ParquetStage, destination: Destination, work: Work, tmp_path: Path
    ) -> None:
        publish(destination, work)
        mine = tmp_path / "mine.txt"
        mine.write_text("not Calve's")
        [commit] = (tmp_path / "out").glob("_calve/commits/*.json")
        said = json.loads(commit.read_text())
        said["files"][0]["path"] = mine.as_uri()
        commit.write_text(json.dumps(said))
        other = make_work(destination, ids=range(100, 120))
        with pytest.raises(RefusedError) as refused:
            publish(stage.open(), replace(other, plan=replace(other.plan, replace=True)))
        assert refused.value.code == "foreign_file" and mine.exists()

    def test_L20_what_was_fenced_is_undone_though_it_was_noted(
        self, stage: ParquetStage, destination: Destination, work: Work
    ) -> None:
        note = json.dumps({"generations": [0]})
        assert isinstance(stage.open().fence(work.process_id, work.plan, note), PublishFenced)
        undone = stage.open().undo(work.process_id, work.plan, work.receipts, note)
        assert (undone.left, undone.in_use) == ((), False)
        assert destination.files_of(work.process_id, work.plan) == ()
