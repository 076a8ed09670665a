"""`calve policy` and `[policy.NAME]`: pages for people, JSON for programs, and what is wrong in the file."""

import json
from pathlib import Path

import pytest

from calve.app.config import load_config
from calve.app.config.template import render
from calve.cli.main import run
from calve.clickhouse.embedded.source import EmbeddedSource
from calve.model.errors import UsageError
from calve.policy.partition import PartitionRequest

POLICY = """
[policy.events]
source = "main:db.events"
to = "lake.ns.events"
release = "quarantine"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("policy-commands")
    (made / "calve.toml").write_text(render() + POLICY)
    with EmbeddedSource("main", made / "clickhouse", create=True).visit() as session:
        session.execute("CREATE DATABASE db")
        session.execute(
            "CREATE TABLE db.events (id UInt64, day Date) ENGINE = MergeTree PARTITION BY toYYYYMM(day) ORDER BY id"
        )
        session.execute("INSERT INTO db.events VALUES (1, '2099-01-10')")
    return made


def _calve(folder: Path, capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = run([*words, "--config", str(folder / "calve.toml")])
    said = capfd.readouterr()
    return code, said.out, said.err


def test_a_policy_is_run_listed_shown_explained_paused_and_resumed(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    code, out, err = _calve(folder, capfd, "policy", "run", "events")
    assert (code, out, "nothing is due" in err) == (0, "", True)
    code, out, _ = _calve(folder, capfd, "policy", "list")
    assert code == 0
    assert out.splitlines()[1].split()[:5] == ["events", "main:db.events", "lake.ns.events", "1", "1"]
    code, out, _ = _calve(folder, capfd, "policy", "show", "events")
    assert (code, "main:db.events" in out) == (0, True)
    code, out, _ = _calve(folder, capfd, "policy", "explain", "db.events", "209901")
    assert (code, "209901 of main:db.events is HOT until 2099-02-04T12:00:00Z" in out) == (0, True)
    assert _calve(folder, capfd, "policy", "pause", "events", "--reason", "x")[0] == 0
    code, out, _ = _calve(folder, capfd, "policy", "list", "--json")
    assert [one["paused"] for one in json.loads(out)] == [True]
    assert _calve(folder, capfd, "policy", "run", "events")[0] == 4
    code, out, _ = _calve(folder, capfd, "policy", "resume", "events")
    assert (code, out.strip()) == (0, "policy events is resumed")


def test_a_table_whose_name_needs_backquotes_is_explained_and_held_by_the_name_that_a_release_goes_by(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with EmbeddedSource("main", folder / "clickhouse").visit() as session:
        session.execute("CREATE TABLE db.`my-events` AS db.events")
        session.execute("INSERT INTO db.`my-events` VALUES (1, '2099-01-10')")
    with (folder / "calve.toml").open("a") as file:
        file.write(POLICY.replace("events", "my-events"))
    assert _calve(folder, capfd, "policy", "run", "my-events")[0] == 0
    code, out, _ = _calve(folder, capfd, "policy", "explain", "db.`my-events`", "209901")
    assert (code, "209901 of main:db.my-events is HOT" in out) == (0, True)
    code, out, _ = _calve(
        folder, capfd, "hold", "add", "db.`my-events`", "209912", "--force", "--reason", "x", "--json"
    )
    assert code == 0
    asked = PartitionRequest(
        source="main", database="db", table="my-events", partition="209912", destination="lake.ns.my-events",
        catalog="lake", identifier=("ns", "my-events"),
    )  # fmt: skip
    assert json.loads(out)["name"] == asked.source_table
    assert asked.process("release", needs=(), locks=(), deadline_seconds=1).source == asked.source_table


def test_a_release_is_approved_once_it_was_shown(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    _calve(folder, capfd, "policy", "run", "events")
    code, out, err = _calve(folder, capfd, "policy", "approve", "events", "--dry-run")
    assert (code, out, "would be allowed" in err) == (0, "", True)
    assert not json.loads(_calve(folder, capfd, "policy", "explain", "db.events", "209901", "--json")[1])[0][
        "facts"
    ]["release_approved"]
    code, out, err = _calve(folder, capfd, "policy", "approve", "events", "--json")
    assert (code, len(json.loads(out)["approved"]), err) == (0, 1, "")
    assert "main:db.events to lake.ns.events" in _calve(folder, capfd, "policy", "approve", "events")[2]
    explained = json.loads(_calve(folder, capfd, "policy", "explain", "db.events", "209901", "--json")[1])
    assert explained[0]["facts"]["release_approved"] is True
    assert _calve(folder, capfd, "policy", "approve", "events", "--revoke", "--dry-run")[0] == 2
    code, out, _ = _calve(folder, capfd, "policy", "approve", "events", "--revoke")
    assert (code, "may no longer move" in out) == (0, True)
    explained = json.loads(_calve(folder, capfd, "policy", "explain", "db.events", "209901", "--json")[1])
    assert explained[0]["facts"]["release_approved"] is False
    code, _, err = _calve(folder, capfd, "policy", "approve", "events", "--revoke")
    assert (code, "nothing is approved of policy events" in err) == (3, True)
    code, _, err = _calve(folder, capfd, "policy", "undo", "db.events", "209901")
    assert (code, "was not released by this store" in err) == (3, True)


def test_what_is_not_there_is_said(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, _, err = _calve(folder, capfd, "policy", "show", "nobody")
    assert (code, "configured: events" in err) == (2, True)
    assert _calve(folder, capfd, "policy", "explain", "db.events", "1")[0] == 3


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('export_after = "soon"', "invalid export_after 'soon'"),
        ('window = "night"', "invalid window 'night'"),
        ('window = "01:00-02:00 Mars/Olympus"', "unknown time zone"),
        ('zone = "Mars"', "unknown time zone"),
        ('bytes_per_day = "much"', "invalid bytes_per_day 'much'"),
        ('on_late_rows = "merge"', "'hold', 'append' or 'replace'"),
        ("partitions_per_run = 0", "greater than or equal to 1"),
        ('release = "drop"', "'never' or 'quarantine'"),
        ('release = "quarantine"\nverify = "sample"', "every row is proven"),
        ('release_after = "soon"', "invalid release_after 'soon'"),
        ('source = "main:db.*"', "several tables"),
        ('source = "main:events"', "invalid source"),
        ('source = "other:db.events"', "source 'other' is not configured"),
    ],
)
def test_a_policy_that_does_not_read_is_refused_when_the_file_is(
    tmp_path: Path, line: str, said: str
) -> None:
    given = {"source": 'source = "main:db.events"', "to": 'to = "lake.ns.events"'} | {
        line.split(" =")[0]: line
    }
    text = "\n".join(["[source.main]", 'url = "chdb://x"', "[policy.events]", *given.values()])
    (tmp_path / "calve.toml").write_text(text)
    with pytest.raises(UsageError, match=r"policy\.events") as wrong:
        load_config(tmp_path / "calve.toml", environ={})
    assert said in f"{wrong.value.message} {wrong.value.hint}"


def test_a_policy_has_a_name_of_letters_and_its_keys_have_an_environment_form(tmp_path: Path) -> None:
    (tmp_path / "calve.toml").write_text('[policy."a b"]\nsource = "main:db.e"\nto = "lake.ns.e"\n')
    with pytest.raises(UsageError, match="invalid name"):
        load_config(tmp_path / "calve.toml", environ={})
    (tmp_path / "calve.toml").write_text(f'[source.main]\nurl = "chdb://x"\n{POLICY}')
    environ = {
        "CALVE_POLICY__EVENTS__BYTES_PER_DAY": "2TB",
        "CALVE_POLICY__EVENTS__WINDOW": "22:00-02:00 Asia/Kolkata",
    }
    policy = load_config(tmp_path / "calve.toml", environ=environ).policy("events")
    assert (policy.bytes_per_day, policy.zone) == (2 * 10**12, "Asia/Kolkata")
