"""One form of location, one place that takes it apart, and no name that leads outside."""

import pytest

from calve.model.errors import PermanentError
from calve.objects.uri import LOCAL, S3, Uri, comparable, full_uri, is_below, is_served, kind_of


@pytest.mark.parametrize("text", ["file:///a/b", "s3://bucket/a b/%2F..%2Fx", "s3a://bucket/", "gs://b/k"])
def test_L8_a_uri_is_its_own_text(text: str) -> None:
    assert str(Uri.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    ["", "/a", "a", "file://a/b", "file://", "s3://", "s3:///key", "://b/k", "s3://b/../k", "file:///a/.."],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(PermanentError) as error:
        Uri.parse(text)
    assert error.value.code == "storage_uri" and repr(text) in error.value.message


def test_a_uri_has_a_bucket_a_key_and_a_kind() -> None:
    uri = Uri.parse("s3n://bucket/a/b")
    assert (uri.kind, uri.bucket, uri.key, uri.place) == (S3, "bucket", "a/b", "s3n://bucket")
    assert str(Uri.parse("file:///a/b").path) == "/a/b"
    assert [kind_of(text) for text in ("/a", "file:/a", "s3a://b/k", "gs://b/k")] == [LOCAL, LOCAL, S3, "gs"]
    assert (
        is_served("s3a://b")
        and is_served("file:///")
        and not is_served("s3:///k")
        and not is_served("ftp://b/k")
    )


def test_a_name_is_joined_and_taken_off_again() -> None:
    for folder in (Uri.parse("s3://bucket"), Uri.parse("s3://bucket/a/"), Uri.parse("file:///a")):
        joined = folder / "b=1/c"
        assert joined.relative_to(folder) == "b=1/c" and is_below(str(joined), str(folder))
    with pytest.raises(PermanentError):
        Uri.parse("s3://bucket/ab").relative_to(Uri.parse("s3://bucket/a"))


@pytest.mark.parametrize("name", ["", "/etc/passwd", "..", "../x", "a/../../x"])
def test_T9_a_name_that_leads_outside_is_refused(name: str) -> None:
    with pytest.raises(PermanentError) as error:
        Uri.parse("file:///folder") / name
    assert error.value.code == "storage_uri" and repr(name) in error.value.message


@pytest.mark.parametrize(
    ("location", "folder", "expected"),
    [
        ("s3://bucket/a", "s3://bucket", True),
        ("s3a://bucket/a", "s3://bucket/", True),
        ("s3://bucket", "s3://bucket/", True),
        ("s3://bucket-of-another/a", "s3://bucket", False),
        ("file:/a/b", "file:///a", True),
        ("/a/b", "file:///a", True),
        ("file:///a/../etc", "file:///a", False),
    ],
)
def test_T9_below_is_by_whole_names(location: str, folder: str, expected: bool) -> None:
    assert is_below(location, folder) is expected


def test_two_spellings_of_one_file_compare_equal_and_two_files_never_do() -> None:
    assert comparable("file:/x/y") == comparable("file:///x/y") == comparable("/x/y")
    assert comparable("s3a://b/k") == comparable("s3://b/k") != comparable("s3://b/k2")
    assert full_uri("file:/a/b") == full_uri("/a/b") == "file:///a/b"
