"""Keys, region, endpoint and certificates: one search, on the driver, in the order of AWS's own tools."""

from pathlib import Path

import pytest

from calve.model.errors import UsageError
from calve.objects.credentials import resolve
from support.place import Place

KEYS = {"s3.access-key-id": "ours", "s3.secret-access-key": "our-secret"}
VARIABLES = {"AWS_ACCESS_KEY_ID": "of-env", "AWS_SECRET_ACCESS_KEY": "s1", "AWS_SESSION_TOKEN": "t1"}
CREDENTIALS = """
[default]
aws_access_key_id = of-default
aws_secret_access_key = s2

[work]
aws_access_key_id=of-work
aws_secret_access_key=s3
aws_session_token=t3
"""
CONFIG = """
[default]
region = eu-west-1
[profile work]
region = eu-central-1
endpoint_url = https://work.example
s3 =
    addressing_style = path
[profile by-login]
sso_session = us
[profile sealed]
credential_process = /bin/keys
"""


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(CREDENTIALS)
    (tmp_path / ".aws" / "config").write_text(CONFIG)
    return {"HOME": str(tmp_path)}


def key(found: dict[str, object]) -> object:
    return found.get("s3.access-key-id")


def test_keys_of_the_configuration_come_first_and_take_no_token_from_elsewhere(home: dict[str, str]) -> None:
    found = resolve(KEYS, home | VARIABLES | {"AWS_PROFILE": "work"})
    assert key(found) == "ours"
    assert "s3.session-token" not in found


def test_a_profile_that_the_configuration_names_comes_before_the_environment(home: dict[str, str]) -> None:
    found = resolve({"s3.profile-name": "work"}, home | VARIABLES)
    assert (key(found), found["s3.secret-access-key"], found["s3.session-token"]) == ("of-work", "s3", "t3")
    assert (found["s3.region"], found["s3.endpoint"]) == ("eu-central-1", "https://work.example")


def test_the_environment_comes_before_profiles_that_the_configuration_does_not_name(
    home: dict[str, str],
) -> None:
    found = resolve({}, home | VARIABLES | {"AWS_PROFILE": "work"})
    assert (key(found), found["s3.secret-access-key"], found["s3.session-token"]) == ("of-env", "s1", "t1")


def test_the_profile_of_the_environment_comes_before_the_default_one(home: dict[str, str]) -> None:
    assert key(resolve({}, home | {"AWS_PROFILE": "work"})) == "of-work"
    found = resolve({}, home)
    assert (key(found), found["s3.region"]) == ("of-default", "eu-west-1")


def test_files_of_profiles_may_be_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(CREDENTIALS)
    assert key(resolve({}, {"AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "keys"), "HOME": "/none"})) == (
        "of-default"
    )


def test_what_is_found_nowhere_stays_open_for_the_machine_s_own_role(tmp_path: Path) -> None:
    assert resolve({"warehouse": "s3://b/w"}, {"HOME": str(tmp_path)}) == {"warehouse": "s3://b/w"}


def test_a_bucket_for_everybody_takes_no_keys(home: dict[str, str]) -> None:
    assert key(resolve({"s3.anonymous": "true"}, home | VARIABLES)) is None


@pytest.mark.parametrize(
    ("given", "environ", "region"),
    [
        ({"s3.region": "a"}, {"AWS_REGION": "b"}, "a"),
        ({"client.region": "a"}, {"AWS_REGION": "b"}, "a"),
        ({}, {"AWS_REGION": "b", "AWS_DEFAULT_REGION": "c"}, "b"),
        ({}, {"AWS_DEFAULT_REGION": "c"}, "c"),
        ({"s3.endpoint": "http://h"}, {}, "us-east-1"),
        ({}, {"AWS_ENDPOINT_URL_S3": "http://h"}, "us-east-1"),
        ({}, {}, None),
    ],
)
def test_regions(given: dict[str, str], environ: dict[str, str], region: str | None) -> None:
    assert resolve(given | KEYS, environ).get("s3.region") == region


def test_certificates_come_from_the_configuration_or_as_aws_s_tools_take_them(tmp_path: Path) -> None:
    names = {}
    for name in ("storage", "catalog", "variable"):
        names[name] = str(tmp_path / name)
        Path(names[name]).write_text("-----BEGIN CERTIFICATE-----\n")
    variable = {"AWS_CA_BUNDLE": names["variable"]}
    both = {"s3.ca-file": names["storage"], "ca_file": names["catalog"]}
    assert resolve(KEYS | both, variable)["s3.ca-file"] == names["storage"]
    assert resolve(KEYS | {"ca_file": names["catalog"]}, variable)["s3.ca-file"] == names["catalog"]
    assert resolve(KEYS, variable)["s3.ca-file"] == names["variable"]


@pytest.mark.parametrize("content", [None, "", "-----BEGIN PRIVATE KEY-----"])
def test_a_file_without_certificates_is_the_user_s_to_mend(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content)
    with pytest.raises(UsageError) as told:
        resolve(KEYS | {"s3.ca-file": str(file)}, {})
    assert told.value.code == "storage_ca_file"
    assert str(file) in told.value.message


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("absent", "no AWS profile 'absent'"),
        ("by-login", "gets its keys by sso_session"),
        ("sealed", "gets its keys by credential_process"),
    ],
)
def test_a_profile_that_gives_no_keys_says_why(home: dict[str, str], name: str, words: str) -> None:
    for given, environ in (({"s3.profile-name": name}, {}), ({}, {"AWS_PROFILE": name})):
        with pytest.raises(UsageError) as told:
            resolve(given, home | environ)
        assert told.value.code == "storage_profile"
        assert words in told.value.message


def test_a_profile_of_the_environment_without_keys_is_no_obstacle_where_a_catalog_may_lend_them(
    home: dict[str, str],
) -> None:
    found = resolve({"type": "rest"}, home | {"AWS_PROFILE": "by-login"}, keys_may_be_lent=True)
    assert key(found) is None
    with pytest.raises(UsageError):
        resolve({"s3.profile-name": "by-login"}, home, keys_may_be_lent=True)


def test_a_worker_follows_keys_that_are_replaced_in_their_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    place = Place(tmp_path)
    config = tmp_path / "calve.toml"
    entry = '\n[catalog.far]\ntype = "sql"\nuri = "sqlite:///far.db"\nwarehouse = "s3://b/w"\n'
    config.write_text(f'{config.read_text()}{entry}"s3.profile-name" = "work"\n')
    with place.app() as app:
        seen = []
        for name in ("first", "first", "second"):
            file.write_text(f"[work]\naws_access_key_id = {name}\naws_secret_access_key = s\n")
            seen.append((app.storage("far").properties["s3.access-key-id"], app.catalog("far")))
        assert [name for name, _ in seen] == ["first", "first", "second"]
        opened = [catalog for _, catalog in seen]
        assert opened[0] is opened[1] and opened[1] is not opened[2]
        assert opened[2].properties["s3.access-key-id"] == "second"


def test_P22_a_broken_file_of_profiles_is_named_and_not_quoted(tmp_path: Path) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text("aws_secret_access_key = canary-secret\n")
    with pytest.raises(UsageError) as told:
        resolve({}, {"HOME": str(tmp_path)})
    assert told.value.code == "storage_profile"
    assert "canary" not in str(told.value) + told.value.hint
    assert told.value.__cause__ is None and told.value.__suppress_context__
