"""Incomplete uploads are the bucket's to abort: its own rule is asked for, and its lack is told."""

import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from s3_server import S3, running

from calve.objects.storage import Storage
from support.s3 import S3Server

ROOT = "s3://bucket/lake/events"
RULE = "<Rule><Status>{status}</Status>{filter}<AbortIncompleteMultipartUpload><DaysAfterInitiation>{days}</DaysAfterInitiation></AbortIncompleteMultipartUpload></Rule>"
BUCKET = "calve-objects"


def rules(*each: str) -> str:
    body = "".join(each)
    return f'<LifecycleConfiguration xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{body}</LifecycleConfiguration>'


def rule(filter: str = "", *, status: str = "Enabled", days: int = 3) -> str:
    return RULE.format(status=status, filter=filter, days=days)


@pytest.fixture
def s3() -> Iterator[S3]:
    with running() as server:
        yield server


@pytest.mark.parametrize(
    "filter",
    [
        "",
        "<Prefix></Prefix>",
        "<Filter/>",
        "<Filter><Prefix>lake/</Prefix></Filter>",
        "<Filter><Prefix>lake/events</Prefix></Filter>",
    ],
)
def test_a_rule_that_covers_the_folder_is_found(s3: S3, filter: str) -> None:
    s3.lifecycle = rules(rule(days=30), rule(filter))
    found = Storage(s3.properties).upload_cleanup(ROOT)
    assert found.automatic is True and "after 3 days" in found.words and found.remedy == ""


@pytest.mark.parametrize(
    "text",
    [
        "",
        rules(),
        rules(rule(status="Disabled")),
        rules(rule("<Filter><Prefix>other/</Prefix></Filter>")),
        rules(rule("<Filter><And><Prefix>lake/</Prefix><Tag><Key>a</Key></Tag></And></Filter>")),
        rules("<Rule><Status>Enabled</Status><Expiration><Days>3</Days></Expiration></Rule>"),
    ],
)
def test_a_bucket_without_such_a_rule_is_told_with_the_command_that_adds_it(s3: S3, text: str) -> None:
    s3.lifecycle = text
    found = Storage(s3.properties).upload_cleanup(ROOT)
    assert found.automatic is False and "stays for ever" in found.words
    assert "--bucket bucket" in found.remedy and s3.properties["s3.endpoint"] in found.remedy


@pytest.mark.parametrize(
    ("status", "code"), [(403, "AccessDenied"), (501, "NotImplemented"), (503, "SlowDown")]
)
def test_what_cannot_be_asked_is_said_and_is_no_error(s3: S3, status: int, code: str) -> None:
    s3.fail_with = (status, code)
    found = Storage(s3.properties).upload_cleanup(ROOT)
    assert found.automatic is None and str(status) in found.words and found.remedy
    assert ("s3:GetLifecycleConfiguration" in found.words) is (status == 403)


def test_an_endpoint_that_is_silent_is_given_up_within_its_seconds(s3: S3) -> None:
    s3.fail_with = (0, "silence")
    found = Storage(s3.properties, call_seconds=0.5).upload_cleanup(ROOT)
    assert found.automatic is None and "cannot be checked" in found.words


def test_without_keys_to_sign_with_nobody_is_asked(s3: S3) -> None:
    found = Storage({"s3.endpoint": s3.properties["s3.endpoint"]}).upload_cleanup(ROOT)
    assert found.automatic is None and "role" in found.words and s3.requests == []


@pytest.mark.services
def test_a_real_server_takes_the_rule_that_the_remedy_names(seaweed: S3Server, tmp_path: Path) -> None:
    storage = Storage(seaweed.properties())
    before = storage.upload_cleanup(f"s3://{BUCKET}/lake")
    assert before.automatic is False
    words = shlex.split(before.remedy.removeprefix("add a rule: "))
    assert words[words.index("--bucket") + 1] == BUCKET
    xml = rules(rule("<Filter><Prefix></Prefix></Filter><ID>abort</ID>", days=2)).encode()
    status, body = seaweed.request("PUT", f"/{BUCKET}", xml, query={"lifecycle": ""})
    assert status == 200, body
    after = storage.upload_cleanup(f"s3://{BUCKET}/lake")
    assert after.automatic is True and "after 2 days" in after.words
