"""Which keys reach a bucket of Google: found once, checked, and shown to nobody."""

import json
from pathlib import Path

import pytest

from calve.app.config.tree import is_secret
from calve.model.errors import UsageError
from calve.objects.credentials import resolve, section_properties
from calve.objects.errors import translate
from calve.objects.gcs import GcsObjects, obstore_config
from calve.objects.gcs_access import GcsAccess
from calve.objects.storage import Bounds
from calve.objects.uri import GCS

KEY = json.dumps({"type": "service_account", "client_email": "calve@p", "private_key": "hush"})
LOGIN = json.dumps({"type": "authorized_user", "refresh_token": "r"})


def key(given: dict[str, str], environ: dict[str, str]) -> str:
    return GcsAccess.of(resolve(given, environ, kind=GCS)).service_account_key


def test_the_configuration_comes_first_then_a_key_then_a_file(tmp_path: Path) -> None:
    file = tmp_path / "key.json"
    file.write_text(KEY)
    files = {"GOOGLE_APPLICATION_CREDENTIALS": str(file)}
    other = KEY.replace("calve@p", "other@p")
    assert key({"gcs.service-account-key": other}, files) == other
    assert key({}, {"GOOGLE_SERVICE_ACCOUNT_KEY": other} | files) == other
    assert key({}, files) == KEY
    assert key({"gcs.oauth2.token": "t"}, files) == "", "a token is not mixed with a key"
    assert key({}, {}) == "", "the identity of the machine, or of the pod"


def test_a_person_s_login_stays_with_each_program(tmp_path: Path) -> None:
    file = tmp_path / "login.json"
    file.write_text(LOGIN)
    assert key({}, {"GOOGLE_APPLICATION_CREDENTIALS": str(file)}) == ""


@pytest.mark.parametrize("given", ["hush", "[]", '{"client_email": "hush"}'])
def test_P22_what_is_no_key_is_refused_without_repeating_it(given: str) -> None:
    with pytest.raises(UsageError, match="lacks client_email") as told:
        key({"gcs.service-account-key": given}, {})
    assert "hush" not in f"{told.value}{told.value.hint}"


def test_a_file_that_cannot_be_read_is_named() -> None:
    with pytest.raises(UsageError, match="/no/such/key"):
        key({}, {"GOOGLE_APPLICATION_CREDENTIALS": "/no/such/key"})


def test_its_section_and_its_secrets() -> None:
    assert section_properties({"service_account_key": KEY, "endpoint": "http://h"}, "gs://b") == {
        "gcs.service-account-key": KEY,
        "gcs.service.host": "http://h",
    }
    for name in ("gcs.service-account-key", "gcs.oauth2.token"):
        assert is_secret(("catalog", "lake", name))
    assert "hush" not in repr(GcsAccess(service_account_key=KEY))


def test_access_as_obstore_takes_it_and_the_rule_that_a_bucket_should_have() -> None:
    assert obstore_config(GcsAccess(token="t", endpoint="http://h")) == {
        "bearer_token": "t",
        "base_url": "http://h",
    }
    found = GcsObjects("gs://b", Bounds(), {"gcs.oauth2.token": "t"}).upload_cleanup("gs://b/x")
    assert found.automatic is None and "gs://b --lifecycle-file" in found.remedy


def test_a_bucket_without_keys_is_told_what_to_give() -> None:
    met = OSError("Error performing GET http://metadata.google.internal/computeMetadata/v1/… timed out")
    assert "service_account_key_file" in translate(met, "gs://b/x", "gs://b").hint
