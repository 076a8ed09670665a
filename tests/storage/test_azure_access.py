"""Which account and which keys reach a container: found once, never mixed, and sent to no stranger."""

import pytest

from calve.app.config.tree import is_secret
from calve.model.errors import DeniedError, PermanentError, UsageError
from calve.objects.azure_access import AzureAccess
from calve.objects.credentials import resolve, section_properties
from calve.objects.storage import Storage
from calve.objects.uri import AZURE, comparable, is_below
from support.azurite import Azurite

BUCKET = "calve-objects"
PLACE = "box@shelf.dfs.core.windows.net"
KEYS = {"adls.account-name": "shelf", "adls.account-key": "k1"}
CONNECTION = "DefaultEndpointsProtocol=https;AccountName=shelf;AccountKey=k==;EndpointSuffix=core.windows.net"
PRINCIPAL = {"AZURE_TENANT_ID": "t", "AZURE_CLIENT_ID": "c", "AZURE_CLIENT_SECRET": "s"}


def access(given: dict[str, str], environ: dict[str, str], place: str = PLACE) -> AzureAccess:
    return AzureAccess.of(resolve(given, environ, kind=AZURE), place)


def test_a_location_names_its_account_and_its_address() -> None:
    found = access({}, {})
    assert (found.account, found.endpoint) == ("shelf", "https://shelf.blob.core.windows.net")
    assert found.credential_type == "auto", "the identity of the machine, or of the pod"


@pytest.mark.parametrize(
    ("given", "environ", "kind", "key"),
    [
        (KEYS, {"AZURE_STORAGE_SAS_TOKEN": "x"} | PRINCIPAL, "access_key", "k1"),
        ({"adls.sas-token": "sig"}, {"AZURE_STORAGE_ACCOUNT_KEY": "k2"}, "sas_token", ""),
        ({"adls.connection-string": CONNECTION}, {"AZURE_STORAGE_KEY": "k2"}, "access_key", "k=="),
        ({}, {"AZURE_STORAGE_CONNECTION_STRING": CONNECTION}, "access_key", "k=="),
        ({}, {"AZURE_STORAGE_KEY": "k2"} | PRINCIPAL, "access_key", "k2"),
        ({}, PRINCIPAL, "client_secret", ""),
        ({"adls.client-id": "of-several"}, {}, "auto", ""),
    ],
)
def test_the_configuration_comes_first_and_keys_are_never_mixed(
    given: dict[str, str], environ: dict[str, str], kind: str, key: str
) -> None:
    found = access(given, environ)
    assert (found.credential_type, found.account_key, found.account) == (kind, key, "shelf")


def test_an_emulator_or_another_cloud_has_an_address_of_its_own() -> None:
    authority = {"adls.blob-storage-authority": "127.0.0.1:1", "adls.blob-storage-scheme": "http"}
    assert access(KEYS | authority, {}).endpoint == "http://127.0.0.1:1/shelf"
    domain = {"adls.blob-storage-authority": ".blob.core.chinacloudapi.cn"}
    assert access(KEYS | domain, {}, "box").endpoint == "https://shelf.blob.core.chinacloudapi.cn"
    assert access({"adls.connection-string": CONNECTION}, {}, "box").endpoint.endswith("core.windows.net")


def test_a_signature_that_a_catalog_lends_is_its_account_s() -> None:
    lent = {"adls.sas-token.shelf.dfs.core.windows.net": "sig"}
    assert access(lent, {}).credential_type == "sas_token"
    assert access(lent, {}, "box@other.dfs.core.windows.net").credential_type == "auto"


@pytest.mark.parametrize(
    ("given", "place", "words"),
    [
        (KEYS, "box@other.dfs.core.windows.net", "the keys are of shelf"),
        (KEYS | {"adls.account-name": ""}, "box", "no storage account"),
        (KEYS, "box@shelf.example.org", "not an address of Azure"),
        (KEYS, "box@shelf.core.windows.net.example.org", "not an address of Azure"),
    ],
)
def test_T9_no_key_goes_to_another_account_or_to_a_stranger(
    given: dict[str, str], place: str, words: str
) -> None:
    with pytest.raises(PermanentError, match=words) as told:
        access(given, {}, place)
    assert told.value.code == "storage_account" and told.value.hint


def test_spellings_of_one_place_are_one() -> None:
    by_blob, by_dfs = "wasbs://b@a.blob.core.windows.net/x", "abfss://b@a.dfs.core.windows.net/x"
    assert comparable(by_blob) == comparable(by_dfs)
    assert not is_below(by_dfs, "abfss://b@other.dfs.core.windows.net")


def test_a_key_of_another_cloud_is_refused_by_name() -> None:
    assert section_properties({"account_key": "k", "virtual_addressing": "False"}, "az://b") == {
        "adls.account-key": "k"
    }
    for section, place in (({"account_key": "k"}, "s3://b"), ({"region": "r"}, f"abfss://{PLACE}")):
        with pytest.raises(UsageError, match="has no keys for"):
            section_properties(section, place)


def test_P22_its_secrets_are_known_as_such() -> None:
    for name in ("adls.account-key", "adls.sas-token", "adls.client-secret", "adls.connection-string"):
        assert is_secret(("catalog", "lake", name))
    assert "k1" not in repr(access(KEYS, {}))


@pytest.mark.services
def test_a_wrong_key_is_refused_at_once_in_words_and_not_in_xml(azure: Azurite) -> None:
    wrong = azure.properties() | {"adls.account-key": "d3Jvbmc="}
    with pytest.raises(DeniedError) as told:
        Storage(wrong).put_if_absent(f"az://{BUCKET}/x", b"x")
    assert told.value.message.endswith("403 Forbidden: AuthorizationFailure")
    assert "d3Jvbmc=" not in f"{told.value}{told.value.hint}"
