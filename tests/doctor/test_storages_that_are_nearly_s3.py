"""What a storage lacks is found by `calve doctor`, and named: a real server, with one ability taken away."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from calve.app.doctor import parts
from calve.app.doctor.finding import Finding
from calve.model.errors import PermanentError
from calve.objects.storage import Storage
from support.nearly_s3 import Lacks, nearly_s3
from support.place import Place
from support.s3 import S3Server, s3_server

pytestmark = pytest.mark.services
ROOT = "s3://quirks/lake"


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        server.create_bucket("quirks")
        yield server


def told(s3: S3Server, folder: Path, endpoint: str) -> list[Finding]:
    """Of a catalog there."""
    place = Place(folder)
    keys = s3.properties() | {"s3.endpoint": endpoint}
    lines = "".join(f'"{name}" = "{value}"\n' for name, value in keys.items())
    config = folder / "calve.toml"
    config.write_text(f'{config.read_text()}\n[catalog.far]\ntype = "sql"\nuri = "sqlite:///far.db"\n'
                      f'warehouse = "{ROOT}"\n{lines}')  # fmt: skip
    with place.app() as app:
        return [one for one in parts.catalog(app, name="far") if not one.warning]


def test_a_storage_that_is_whole_lacks_nothing_and_nothing_is_left(s3: S3Server, tmp_path: Path) -> None:
    [well] = told(s3, tmp_path, s3.endpoint)
    assert well.ok and f"{ROOT} can be written" in well.words
    assert Storage(s3.properties()).list(ROOT) == []


@pytest.mark.parametrize(
    ("lacks", "words"),
    [
        (Lacks.CONDITIONAL_PUT, "ignores If-None-Match"),
        (Lacks.CHECKSUMS, "but not by PyIceberg's client"),
        (Lacks.FRESH_LISTS, "does not list an object that was just put"),
        (Lacks.PARTS, "takes no upload in parts (multipart)"),
    ],
)
def test_what_is_lacking_is_bad_and_has_a_remedy(
    s3: S3Server, tmp_path: Path, lacks: Lacks, words: str
) -> None:
    with nearly_s3(s3, lacks) as endpoint:
        ill, *more = told(s3, tmp_path, endpoint)  # PyIceberg may stumble over it too
    assert not any(one.ok for one in (ill, *more)) and words in ill.words and ill.remedy
    assert Storage(s3.properties()).list(ROOT) == []


def test_conditions_that_are_not_implemented_are_refused_at_once_and_are_no_outage(
    s3: S3Server, tmp_path: Path
) -> None:
    with nearly_s3(s3, Lacks.CONDITIONS) as endpoint, pytest.raises(PermanentError) as refused:
        told(s3, tmp_path, endpoint)
    assert refused.value.code == "storage_unsupported" and "object-storage.md" in refused.value.hint


def test_a_storage_that_does_not_list_its_uploads_lacks_nothing_that_is_used(
    s3: S3Server, tmp_path: Path
) -> None:
    """Uploads that were given up are the bucket's rule's to find: Calve lists none."""
    with nearly_s3(s3, Lacks.UPLOAD_LISTS) as endpoint:
        [well] = told(s3, tmp_path, endpoint)
    assert well.ok


def test_checksums_may_be_switched_off(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
    with nearly_s3(s3, Lacks.CHECKSUMS) as endpoint:
        [well] = told(s3, tmp_path, endpoint)
    assert well.ok


def test_several_are_deleted_one_by_one_where_a_storage_cannot_delete_them_at_once(s3: S3Server) -> None:
    with nearly_s3(s3, Lacks.BULK_DELETE) as endpoint:
        storage = Storage(s3.properties() | {"s3.endpoint": endpoint})
        for name in ("a", "b"):
            storage.put_if_absent(f"{ROOT}/{name}", b"x")
        storage.delete([f"{ROOT}/{name}" for name in ("a", "b", "c")])
        assert storage.list(ROOT) == []


def test_a_bucket_without_rules_cannot_be_asked_whether_uploads_are_aborted(s3: S3Server) -> None:
    with nearly_s3(s3, Lacks.UPLOAD_RULES) as endpoint:
        found = Storage(s3.properties() | {"s3.endpoint": endpoint}).upload_cleanup(ROOT)
    assert found.automatic is None and "501" in found.words and found.remedy


def test_a_server_that_knows_only_the_path_style_is_answered_with_the_setting(s3: S3Server) -> None:
    """With `virtual_addressing` the endpoint is the bucket's own; this one takes the key for a bucket."""
    virtual = s3.properties() | {"s3.force-virtual-addressing": "true"}
    with pytest.raises(PermanentError) as refused:
        Storage(virtual).put_if_absent(f"{ROOT}/x", b"x")
    assert refused.value.code == "bucket_missing" and "virtual_addressing" in refused.value.hint
