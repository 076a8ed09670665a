"""Nothing needs root: the quick start, typed by a user who owns nothing but a folder."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from tests.export.conftest import EVENTS

pytestmark = pytest.mark.spark

NOBODY = 65534
# The interpreter may live in root's home: reading through there is allowed, and nothing else.
AS_NOBODY = (
    "setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups",
    "--inh-caps=-all,+dac_read_search", "--ambient-caps=+dac_read_search", "--bounding-set=-all,+dac_read_search",
)  # fmt: skip
MAKE = """
import sys
from pathlib import Path
from calve.clickhouse.embedded.source import EmbeddedSource
with EmbeddedSource("main", Path("clickhouse").absolute(), create=True).visit() as session:
    for statement in sys.stdin.read().split(";;"):
        session.execute(statement)
"""


def test_the_quick_start_works_for_a_user_other_than_root(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("another") / "user"
    folder.mkdir()
    for parent in (folder, *folder.parents):
        if parent == Path(tempfile.gettempdir()):
            break
        parent.chmod(0o755)
    root = os.geteuid() == 0
    if root:
        os.chown(folder, NOBODY, NOBODY)
    prefix = AS_NOBODY if root else ()
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "TMPDIR": str(folder)}

    def run(*command: str, given: str = "") -> str:
        answer = subprocess.run(
            [*prefix, *command], cwd=folder, env=environment, input=given, capture_output=True, text=True
        )
        assert answer.returncode == 0, answer.stderr
        return answer.stdout

    calve = str(Path(sys.executable).with_name("calve"))
    assert run(sys.executable, "-c", "import os; print(os.geteuid())").strip() != "0"
    run(calve, "init")
    run(sys.executable, "-c", MAKE, given=";;".join(EVENTS))
    exported = json.loads(
        run(calve, "export", "db.events", "--partition", "202401", "--to", "lake.ns.events", "--json")
    )
    assert exported["state"] == "COMPLETED" and exported["rows"] == 1000
    assert json.loads(run(calve, "verify", exported["id"], "--json"))["ok"]
