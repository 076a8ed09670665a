"""A REST catalog whose certificate an authority of one's own has made."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from calve.app.wiring import App
from calve.iceberg import tables
from calve.iceberg.catalogs.catalog import open_catalog
from calve.iceberg.errors import catalog_call
from calve.model.errors import PermanentError, UsageError
from support.iceberg_rest import SeaweedRest, seaweed_rest
from support.place import Place
from support.tls import Authority, TlsFront

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeaweedRest]:
    with seaweed_rest(tmp_path_factory.mktemp("rest")) as server:
        yield server


@pytest.fixture(scope="module")
def secure(server: SeaweedRest, authority: Authority) -> Iterator[TlsFront]:
    with TlsFront(server.catalog_port, authority) as front:
        yield front


def properties(server: SeaweedRest, secure: TlsFront, **given: str) -> dict[str, str]:
    """The token, too, is fetched over https."""
    found = server.catalog_properties(secure.url)
    return found | {"oauth2-server-uri": f"{secure.url}/v1/oauth/tokens"} | given


def namespaces(found: dict[str, str]) -> int:
    catalog = open_catalog("lake", found)
    with catalog_call("lake", "listing namespaces"):
        return len(catalog.list_namespaces())


def test_an_authority_that_is_named_is_trusted_whatever_the_environment_says(
    server: SeaweedRest, secure: TlsFront, authority: Authority, stranger: Authority,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(stranger.ca_file))
    assert namespaces(properties(server, secure, ca_file=str(authority.ca_file))) == 0


@pytest.mark.parametrize("given", ["none", "another"])
def test_a_catalog_that_nobody_vouches_for_is_refused_at_once_and_is_no_outage(
    given: str, server: SeaweedRest, secure: TlsFront, stranger: Authority
) -> None:
    named = {"ca_file": str(stranger.ca_file)} if given == "another" else {}
    with pytest.raises(PermanentError) as told:
        tables.load(open_catalog("lake", properties(server, secure, **named)), ("ns", "t"))
    assert told.value.code == "catalog_certificate"
    assert "ca_file under [catalog.lake]" in told.value.hint
    assert not told.value.service


def test_the_file_is_found_beside_the_configuration_and_is_no_secret_to_be_read_in(tmp_path: Path) -> None:
    place = Place(tmp_path)
    config = tmp_path / "calve.toml"
    entry = '\n[catalog.far]\ntype = "rest"\nuri = "https://h"\nwarehouse = "name"\nca_file = "ca.pem"\n'
    config.write_text(config.read_text() + entry)
    with place.app() as app:
        given = app.config.catalog("far")
        assert given["ca_file"] == str(tmp_path / "ca.pem")
        assert given["warehouse"] == "name"
        refuse_missing(app)


def refuse_missing(app: App) -> None:
    with pytest.raises(UsageError) as told:
        app.catalog("far")
    assert told.value.code == "storage_ca_file"
    assert "[catalog.far]" in told.value.message
