"""`calve view`: pages for people, JSON for programs, and what is wrong in the words."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from calve.app.config import load_config
from calve.app.policies.lake import lake_engine
from calve.app.policies.tier import view_drop, view_show
from calve.app.wiring import App
from calve.cli.main import run
from calve.clickhouse.embedded.source import EmbeddedSource
from calve.model.errors import NotFoundError, UsageError
from support.local_runner import LocalRunner
from support.place import Place

MAKE = ("view", "db.events", "--to", "lake.ns.events", "--as", "db.events_all")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, runner: LocalRunner) -> Iterator[Place]:
    made = Place(tmp_path_factory.mktemp("view-command"), runner)
    made.execute(
        "CREATE DATABASE db",
        "CREATE TABLE db.events (id UInt64, day Date) ENGINE = MergeTree PARTITION BY toYYYYMM(day) ORDER BY id",
        "INSERT INTO db.events VALUES (1, '2024-01-10'), (2, '2024-02-10')",
    )
    made.export("db.events")
    yield made


def _calve(place: Place, capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = run([*words, "--config", str(place.folder / "calve.toml")])
    said = capfd.readouterr()
    return code, said.out, said.err


def test_a_view_is_made_shown_brought_up_to_date_and_dropped(
    place: Place, capfd: pytest.CaptureFixture[str]
) -> None:
    code, out, err = _calve(place, capfd, *MAKE, "--cold", "202401")
    assert (code, "from lake.ns.events: 202401" in out) == (0, True)
    assert "GRANT SELECT ON `db`.`events_all` TO reader" in err
    code, out, _ = _calve(place, capfd, "view", "db.events")
    assert (code, out.splitlines()[-1].split()) == (0, ["202401", "1", "yes"])
    place.execute("INSERT INTO db.events VALUES (3, '2024-01-11')")
    code, out, err = _calve(place, capfd, *MAKE, "--json")
    assert (code, json.loads(out)["late_rows"]) == (0, {"202401": 2})
    assert "are not in the view" in _calve(place, capfd, *MAKE)[2]
    assert place.select("SELECT id FROM db.events_all ORDER BY id") == [{"id": 1}, {"id": 2}]
    code, _, err = _calve(place, capfd, "view", "db.events", "--drop")
    assert (code, "--force" in err) == (4, True)
    code, out, _ = _calve(place, capfd, "view", "db.events", "--drop", "--force")
    assert (code, out.strip()) == (0, "view db.events_all is dropped")
    assert _calve(place, capfd, "view", "db.events")[0] == 3


def test_a_view_that_is_refused_does_not_hold_its_source(place: Place) -> None:
    with place.app() as app:
        for ask in (view_show, view_drop):
            with pytest.raises(NotFoundError) as refused:  # a server keeps the error for a while
                ask(app, "db.none")
            with EmbeddedSource("main", place.folder / "clickhouse", query_seconds=5).visit() as session:
                session.rows("SELECT 1")
            assert refused.value.code == "no_table"


@pytest.mark.parametrize(
    "words",
    [
        ("--to", "lake.ns.events"),
        ("--as", "db.v"),
        ("--cold", "202401"),
        ("--drop", "--to", "lake.ns.events"),
        ("--force",),
        ("--to", "./folder/", "--as", "db.v"),
    ],
)
def test_words_that_do_not_go_together_are_refused(
    place: Place, capfd: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    assert _calve(place, capfd, "view", "db.events", *words)[0] == 2


def test_the_engine_that_reads_the_lake_is_filled_in_and_stays_within_its_quotes(tmp_path: Path) -> None:
    file = tmp_path / "calve.toml"
    file.write_text(
        '[source.main]\nurl = "http://localhost"\n'
        "lake = { s3 = \"IcebergS3(keys, url = 'http://x/{bucket}', filename = '{path}/')\", bare = \"IcebergS3({path})\" }\n"
    )
    app = App(load_config(file, environ={}, cwd=tmp_path))
    try:
        made = lake_engine(app, "main", "s3", "s3://b/it's/t")
        assert made == "IcebergS3(keys, url = 'http://x/b', filename = 'it\\'s/t/')"
        assert lake_engine(app, "main", "other", "file:///w/ns/t") == "IcebergLocal('/w/ns/t/')"
        for catalog in ("bare", "other"):
            with pytest.raises(UsageError) as refused:
                lake_engine(app, "main", catalog, "s3://b/t")
            assert refused.value.code == "lake_engine"
    finally:
        app.close()
