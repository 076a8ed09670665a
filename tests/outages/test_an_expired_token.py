"""A REST catalog whose token expires in mid-export: fetched anew where that can be done, else said at once (P9)."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from rest_place import ROWS, rest_place

from calve.control.client import retry
from calve.model.states import ProcessState
from support.catalog_proxy import CatalogProxy
from support.catalog_tokens import CatalogTokens
from support.iceberg_rest import IcebergRest, apache_rest
from support.outage_place import Executors, OutagePlace, make_table, until
from support.sparks import on_a_cluster_too

pytestmark = pytest.mark.services

FIRST, SECOND = "the-first-token", "the-second-token"


@pytest.fixture(scope="module")
def rest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IcebergRest]:
    with apache_rest(tmp_path_factory.mktemp("rest")) as server:
        yield server


@pytest.fixture
def tokens() -> CatalogTokens:
    return CatalogTokens("calve", "the-secret", fixed=FIRST)


@pytest.fixture
def catalog(rest: IcebergRest, tokens: CatalogTokens) -> Iterator[CatalogProxy]:
    with CatalogProxy(rest.uri, tokens) as proxy:
        yield proxy


def _place(folder: Path, runner: Executors, catalog: CatalogProxy, properties: dict[str, str]) -> OutagePlace:
    place = rest_place(folder, runner, catalog.uri, properties)
    place.place.execute(*make_table("events", rows=ROWS))
    return place


@on_a_cluster_too
def test_a_token_of_a_client_s_secret_is_fetched_anew_and_nobody_notices(
    tmp_path: Path, runner: Executors, catalog: CatalogProxy, tokens: CatalogTokens
) -> None:
    secret = {"credential": tokens.credential, "oauth2-server-uri": f"{catalog.uri}/v1/oauth/tokens"}
    place = _place(tmp_path, runner, catalog, secret)
    try:
        with place.worker():
            with runner.holding():
                ids = place.submit("events", f"rest.renewed_{type(runner).__name__.lower()}.events", "0")
                until(lambda: place.planned(ids), "the plan")
                given = tokens.given
                tokens.expire()
            [process] = place.finish(ids)
        assert process.state is ProcessState.COMPLETED, place.told(process.id)
        assert process.publish_attempts == 1 and process.error is None
        assert tokens.given > given and tokens.refused
        assert len(place.ids_in(f"rest.renewed_{type(runner).__name__.lower()}.events")) == 2 * ROWS
    finally:
        place.close()


def test_P9_a_token_that_was_given_by_hand_fails_at_once_and_a_retry_with_a_new_one_goes_on(
    tmp_path: Path, runner: Executors, catalog: CatalogProxy, tokens: CatalogTokens
) -> None:
    place = _place(tmp_path, runner, catalog, {"token": FIRST})
    try:
        with place.worker():
            with runner.holding():
                ids = place.submit("events", f"rest.expired_{type(runner).__name__.lower()}.events", "0")
                until(lambda: place.planned(ids), "the plan")
                tokens.expire()
            [process] = place.finish(ids)
        assert process.state is ProcessState.FAILED
        assert process.publish_attempts <= 1
        assert all(task.attempt <= 1 for task in place.app.store.tasks(process.id))
        assert process.error is not None
        assert (process.error.code, process.error.retryable) == ("catalog_credentials", False)
        assert "token" in process.error.hint and "[catalog.rest]" in process.error.hint
        assert place.breakers() == []
        tokens.accept(SECOND)
        file = place.place.folder / "calve.toml"
        file.write_text(file.read_text().replace(FIRST, SECOND))
        place.reopen()
        with place.worker():
            [done] = place.finish([retry(place.app.store, process.id).process.id])
        assert done.state is ProcessState.COMPLETED, place.told(done.id)
        assert len(place.ids_in(f"rest.expired_{type(runner).__name__.lower()}.events")) == 2 * ROWS
    finally:
        place.close()
