"""Versioning and Object Lock are read where they can be, and what cannot be read is said."""

from collections.abc import Iterator

import pytest
from s3_server import S3, running

from calve.objects.protection import protection
from calve.objects.storage import Bounds

ROOT = "s3://bucket/lake/events"
LOCK = (
    '<ObjectLockConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><ObjectLockEnabled>Enabled</ObjectLockEnabled>'
    "{rule}</ObjectLockConfiguration>"
)
RULE = "<Rule><DefaultRetention><Mode>COMPLIANCE</Mode><Days>30</Days></DefaultRetention></Rule>"


@pytest.fixture
def s3() -> Iterator[S3]:
    with running() as server:
        yield server


def test_a_bucket_with_neither_keeps_nothing(s3: S3) -> None:
    found = protection(ROOT, s3.properties, Bounds())
    assert (found.versioned, found.locked, found.keeps) == (False, False, False)
    assert found.words == "versioning is off; Object Lock is off"


@pytest.mark.parametrize("status", ["Enabled", "Suspended"])
def test_versioning_is_read(s3: S3, status: str) -> None:
    s3.versioning = f"<VersioningConfiguration><Status>{status}</Status></VersioningConfiguration>"
    found = protection(ROOT, s3.properties, Bounds())
    assert found.versioned is found.keeps is (status == "Enabled")
    assert f"versioning is {status.lower()}" in found.words


def test_a_lock_holds_new_objects_only_with_a_default_retention(s3: S3) -> None:
    s3.object_lock = LOCK.format(rule=RULE)
    found = protection(ROOT, s3.properties, Bounds())
    assert found.locked is True and "for 30 days, compliance" in found.words
    s3.object_lock = LOCK.format(rule="")
    found = protection(ROOT, s3.properties, Bounds())
    assert found.locked is False and "without a default retention" in found.words


@pytest.mark.parametrize(("status", "code"), [(403, "AccessDenied"), (501, "NotImplemented")])
def test_what_cannot_be_read_is_said_and_is_no_error(s3: S3, status: int, code: str) -> None:
    s3.fail_with = (status, code)
    found = protection(ROOT, s3.properties, Bounds())
    assert (found.versioned, found.locked, found.keeps) == (None, None, False)
    assert found.words.count(str(status)) == 2


@pytest.mark.parametrize("place", ["s3://bucket/lake", "gs://bucket/lake"])
def test_nobody_is_asked_without_keys_or_where_it_is_not_s3(s3: S3, place: str) -> None:
    found = protection(place, {"s3.endpoint": s3.properties["s3.endpoint"]}, Bounds())
    assert (found.versioned, found.locked, s3.requests) == (None, None, [])


def test_a_local_folder_keeps_nothing() -> None:
    assert not protection("file:///lake", {}, Bounds()).keeps
