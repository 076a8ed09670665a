"""The obligations of `objects.storage`: a local folder, S3, S3 by Hadoop's name, lent keys, Azure, Google."""

import secrets
from collections.abc import Mapping
from pathlib import Path

import pytest

from calve.objects import local
from calve.objects.storage import ObjectStore, Storage
from calve.testing.contracts.objects import ObjectStoreContract
from support.azurite import HOST, Azurite
from support.fake_gcs import FakeGcs
from support.s3 import S3Server

BUCKET = "calve-objects"


class TestALocalFolder(ObjectStoreContract):
    @pytest.fixture
    def storage(self) -> ObjectStore:
        return Storage()

    @pytest.fixture
    def root(self, tmp_path: Path) -> str:
        return f"file://{tmp_path}/deep/er"


class TestALocalFolderWithoutNamelessFiles(TestALocalFolder):
    """As on NFS."""

    @pytest.fixture(autouse=True)
    def named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(local, "_NAMELESS", 0)


@pytest.mark.services
class TestS3(ObjectStoreContract):
    @pytest.fixture
    def storage(self, seaweed: S3Server) -> ObjectStore:
        return Storage(seaweed.properties())

    @pytest.fixture
    def root(self) -> str:
        return f"s3://{BUCKET}/{secrets.token_hex(6)}"


@pytest.mark.services
class TestS3ByHadoopsName(TestS3):
    @pytest.fixture
    def root(self) -> str:
        return f"s3a://{BUCKET}/{secrets.token_hex(6)}"


class _Lent:
    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = dict(properties)

    def properties(self) -> dict[str, str]:
        return self._properties

    def renewed(self, refused: Mapping[str, str]) -> bool:
        return False


@pytest.mark.services
class TestLentKeys(TestS3):
    @pytest.fixture
    def storage(self, seaweed: S3Server) -> ObjectStore:
        return Storage(keys=_Lent(seaweed.properties()))


@pytest.mark.services
class TestAzure(ObjectStoreContract):
    @pytest.fixture
    def storage(self, azure: Azurite) -> ObjectStore:
        return Storage(azure.properties())

    @pytest.fixture
    def root(self) -> str:
        return f"abfss://{BUCKET}@{HOST}/{secrets.token_hex(6)}"


@pytest.mark.services
class TestAzureByItsShortName(TestAzure):
    @pytest.fixture
    def root(self) -> str:
        return f"az://{BUCKET}/{secrets.token_hex(6)}"


@pytest.mark.services
@pytest.mark.long
class TestGoogle(ObjectStoreContract):
    @pytest.fixture
    def storage(self, google: FakeGcs) -> ObjectStore:
        return Storage(google.properties())

    @pytest.fixture
    def root(self) -> str:
        return f"gs://{BUCKET}/{secrets.token_hex(6)}"
