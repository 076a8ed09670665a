"""The quick start, end to end, typed by a user who owns nothing but a folder: one partition out, proven, never twice."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from support.calve_command import Answer

pytestmark = pytest.mark.spark

STATEMENTS = (
    "CREATE DATABASE db",
    "CREATE TABLE db.events (id UInt64, at Date) ENGINE = ReplacingMergeTree PARTITION BY toYYYYMM(at) ORDER BY id",
    "INSERT INTO db.events SELECT number, toDate('2024-01-01') + number % 31 FROM numbers(1000)",
)
EXPORT = ("export", "db.events", "--partition", "202401", "--to", "lake.ns.events")
NOBODY = 65534
# The interpreter may live in root's home: reading through there is allowed, and nothing else.
AS_NOBODY = (
    "setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups",
    "--inh-caps=-all,+dac_read_search", "--ambient-caps=+dac_read_search", "--bounding-set=-all,+dac_read_search",
)  # fmt: skip
AT_THE_SOURCE = """
import os, sys
from pathlib import Path
from calve.clickhouse.embedded.source import EmbeddedSource
assert os.geteuid() != 0
with EmbeddedSource("main", Path("clickhouse").absolute(), create=True).visit() as session:
    for statement in sys.argv[1:]:
        session.execute(statement)
"""


class Person:
    """Other than root, whoever runs the tests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._prefix: tuple[str, ...] = ()
        if os.geteuid() == 0:
            os.chown(folder, NOBODY, NOBODY)
            self._prefix = AS_NOBODY

    def types(self, *command: str) -> Answer:
        done = subprocess.run(
            [*self._prefix, *command], cwd=self.folder, capture_output=True, text=True, timeout=240,
            env={"PATH": os.environ["PATH"], "HOME": str(self.folder), "TMPDIR": str(self.folder), "PYTHONFAULTHANDLER": "1"},
        )  # fmt: skip
        return Answer(code=done.returncode, out=done.stdout, err=done.stderr)

    def calve(self, *arguments: str) -> Answer:
        return self.types(str(Path(sys.executable).with_name("calve")), *arguments)

    def execute(self, *statements: str) -> None:
        done = self.types(sys.executable, "-c", AT_THE_SOURCE, *statements)
        assert done.code == 0, done.err


@pytest.fixture
def person(tmp_path_factory: pytest.TempPathFactory) -> Person:
    folder = tmp_path_factory.mktemp("another") / "user"
    folder.mkdir()
    for parent in (folder, *folder.parents):
        if parent == Path(tempfile.gettempdir()):
            break
        parent.chmod(0o755)
    return Person(folder)


def test_the_quick_start_needs_no_root(person: Person) -> None:
    assert person.calve("init").code == 0
    person.execute(*STATEMENTS)

    planned = person.calve(*EXPORT, "--dry-run", "--json")
    assert (planned.code, planned.json["rows"], planned.json["creates_table"]) == (0, 1000, True)
    assert person.calve("ps", "--all", "--json").json == [], "a dry run queues nothing"

    first = person.calve(*EXPORT)
    assert first.code == 0, first.err
    (done,) = person.calve("ps", "--all", "--json").json
    assert (done["state"], done["rows"]) == ("COMPLETED", 1000)
    [note] = [line for line in planned.json["notes"] if "ReplacingMergeTree" in line]
    assert f"note: {note}" in first.err
    assert f"note: {note}" in person.calve("show", done["id"]).out

    proof = person.calve("verify", done["id"], "--json")
    assert (proof.code, proof.json["ok"]) == (0, True), proof.err

    again = person.calve(*EXPORT, "--json")
    assert again.code == 0, again.err
    assert (again.json["id"], again.json["already_exported"]) == (done["id"], True)
    assert "already exported" in again.err

    (listed,) = person.calve("partitions", "db.events", "--to", "lake.ns.events", "--json").json
    assert listed["exported"] == "unchanged"

    person.execute("INSERT INTO db.events VALUES (5000, '2024-01-05')")
    person.calve(*EXPORT).is_error(4, "changed since", "--force")
    assert not list(person.folder.glob("clickhouse/shadow/*/*")), "a freeze is left"
