"""Folders of plain Parquet keep the destination's contract."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from calve.destination.names import DestinationAddress
from calve.model.errors import UnavailableError
from calve.objects.storage import Storage
from calve.parquet.destination import ParquetDestination
from calve.testing.contracts.destination import DestinationContract


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
