import pytest
from backup_place import DirectRunner

from calve.app.backups.requests import BackupReach
from calve.archive.source import BackupSource
from calve.backup import submit
from calve.backup.request import BackupOptions
from calve.model.states import ProcessState
from calve.testing.contracts.source import DATABASE, FILL, SourceContract
from support.place import Place


@pytest.fixture(scope="module")
def backup(tmp_path_factory: pytest.TempPathFactory) -> BackupSource:
    place = Place(tmp_path_factory.mktemp("place"))
    place.execute(*FILL)
    with place.app() as app:
        app.__dict__["runner"] = DirectRunner()
        reach = BackupReach(app)
        request = submit.request_of(
            reach, "nightly", "main", (f"{DATABASE}.*",), BackupOptions(mutations="wait")
        )
        [process] = place.finish(app, [submit.submit(reach, app.store, request).process.id])
        assert process.state is ProcessState.COMPLETED, process.error
        return BackupSource(reach.location(), "nightly", "main", reach.location_properties())


class TestBackupSource(SourceContract):
    @pytest.fixture
    def source(self, backup: BackupSource) -> BackupSource:
        return backup
