"""The child process that opens an embedded source: brief, bounded, and never in our own process."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from calve.clickhouse.embedded.host import HostProcess
from calve.clickhouse.embedded.source import EmbeddedSource, folder_of
from calve.clickhouse.errors import SourceBusyError
from calve.model.errors import CalveError, NotFoundError, PermanentError, TemporaryError, UsageError

pytestmark = pytest.mark.programs

_HOLDER = """
import sys
from pathlib import Path
from calve.clickhouse.embedded.source import EmbeddedSource
with EmbeddedSource("main", Path(sys.argv[1]), create=True).visit() as session:
    session.execute("CREATE DATABASE IF NOT EXISTS db")
    receive = session.host.receive
    def tell(deadline):  # called once the statement has been sent
        print(session.host.pid, flush=True)
        return receive(deadline)
    if sys.argv[2] == "idle":
        print(session.host.pid, flush=True)
        sys.stdin.read()
    else:
        session.host.receive = tell
        session.execute("SELECT sleepEachRow(1) FROM numbers(1000) SETTINGS max_block_size = 1, "
            "function_sleep_max_microseconds_per_block = 0")
"""


def _holder(folder: Path, doing: str) -> "tuple[subprocess.Popen[str], int]":
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(folder), doing],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    return holder, int(holder.stdout.readline())


def _end(holder: "subprocess.Popen[str]") -> None:
    holder.kill()
    holder.communicate()


def test_a_visit_answers_statements_and_leaves_the_folder_free(source: EmbeddedSource) -> None:
    for _ in range(2):
        with source.visit() as session:
            assert session.rows("SELECT 1 AS a, 'x' AS b") == [{"a": 1, "b": "x"}]


def test_W10_no_module_of_the_source_imports_the_engine_and_a_visit_does_not_either(
    source: EmbeddedSource,
) -> None:
    with source.visit() as session:
        session.rows("SELECT 1")
    assert "chdb" not in sys.modules
    loaded = subprocess.run(
        [
            sys.executable,
            "-c",
            "import pkgutil, sys, calve.clickhouse as s\n"
            "for m in pkgutil.walk_packages(s.__path__, 'calve.clickhouse.'): __import__(m.name)\n"
            "print(sorted(m for m in sys.modules if m.split('.')[0] in ('chdb', 'pyarrow', 'pandas')))",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    assert loaded.stdout.strip() == "[]"


def test_a_source_that_another_process_holds_is_busy_and_the_holder_is_named(source: EmbeddedSource) -> None:
    holder, child = _holder(source.folder, "idle")
    try:
        patient = EmbeddedSource("main", source.folder, busy_seconds=0.3)
        with pytest.raises(SourceBusyError, match=f"process {child}") as caught, patient.visit():
            pass
        assert "\n" not in caught.value.message
        assert caught.value.exit_code == 4 and caught.value.retryable and caught.value.hint
    finally:
        _end(holder)


def test_a_busy_source_is_waited_for(source: EmbeddedSource) -> None:
    holder, _ = _holder(source.folder, "idle")
    assert holder.stdin is not None
    timer = threading.Timer(0.3, holder.stdin.close)
    timer.start()
    with EmbeddedSource("main", source.folder, busy_seconds=60).visit() as session:
        assert session.rows("SELECT 1 AS a") == [{"a": 1}]
    timer.join()
    holder.wait()
    assert holder.stdout is not None
    holder.stdout.close()


@pytest.mark.parametrize("doing", ["idle", "busy"])
def test_L30_the_child_of_a_killed_worker_ends_with_it_also_in_the_middle_of_a_statement(
    source: EmbeddedSource, doing: str
) -> None:
    holder, _ = _holder(source.folder, doing)
    _end(holder)
    with EmbeddedSource("main", source.folder, busy_seconds=60).visit() as session:
        assert session.rows("SELECT 1 AS a") == [{"a": 1}]


def test_a_statement_that_takes_too_long_is_ended_and_the_folder_is_free(source: EmbeddedSource) -> None:
    slow = "SELECT sleepEachRow(1) FROM numbers(1000) SETTINGS max_block_size = 1, function_sleep_max_microseconds_per_block = 0"
    with source.visit() as session:
        with pytest.raises(TemporaryError, match=r"more than 0\.2 s") as caught:
            session.execute(slow, what="table x", seconds=0.2)
        assert caught.value.code == "source_timeout"
        with pytest.raises(TemporaryError, match="the visit has ended"):
            session.rows("SELECT 1")
    with EmbeddedSource("main", source.folder, busy_seconds=0).visit() as session:
        assert session.rows("SELECT 1 AS a") == [{"a": 1}]


def test_an_engine_that_dies_is_an_error_that_may_go_away(source: EmbeddedSource) -> None:
    with source.visit() as session:
        assert session.host is not None
        os.kill(session.host.pid, signal.SIGKILL)
        with pytest.raises(TemporaryError) as caught:
            session.rows("SELECT 1")
        assert caught.value.code == "source_died"
    with source.visit() as session:
        assert session.rows("SELECT 1 AS a") == [{"a": 1}]


def test_an_engine_that_is_killed_while_it_opens_a_folder_says_nothing_of_the_folder(
    source: EmbeddedSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = HostProcess.open

    def killed(self: HostProcess, *given: Any) -> Any:
        os.kill(self.pid, signal.SIGKILL)
        return real(self, *given)

    with monkeypatch.context() as patched:
        patched.setattr(HostProcess, "open", killed)
        with pytest.raises(TemporaryError, match="was killed while opening"), source.visit():
            pass
    with source.visit() as session:
        assert session.rows("SELECT 1 AS a") == [{"a": 1}]


def test_threads_of_one_program_take_turns_and_share_the_open_folder(source: EmbeddedSource) -> None:
    with source.visit() as session:
        session.execute("CREATE DATABASE db")
        session.execute("CREATE TABLE db.t (id UInt64) ENGINE = MergeTree ORDER BY id")
    impatient = EmbeddedSource("main", source.folder, busy_seconds=0)
    failures: list[CalveError] = []

    def insert(number: int) -> None:
        try:
            with impatient.visit() as session:
                session.execute(f"INSERT INTO db.t VALUES ({number})")
        except CalveError as error:
            failures.append(error)

    threads = [threading.Thread(target=insert, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    with impatient.visit() as session:
        assert session.rows("SELECT count() AS n, sum(id) AS total FROM db.t") == [{"n": 12, "total": 66}]


def test_an_error_inside_a_visit_frees_the_folder(source: EmbeddedSource) -> None:
    with pytest.raises(ZeroDivisionError), source.visit() as session:
        session.execute("CREATE DATABASE db")
        _ = 1 / 0
    with EmbeddedSource("main", source.folder, busy_seconds=0).visit() as session:
        assert session.rows("SELECT 1 AS a")


def test_errors_of_the_engine_keep_its_code_and_name_what_was_asked(source: EmbeddedSource) -> None:
    with source.visit() as session:
        with pytest.raises(
            NotFoundError, match=r"source main, table a\.b: .*\(ClickHouse error 81 UNKNOWN_DATABASE\)"
        ):
            session.rows("SELECT * FROM a.b", what="table a.b")
        with pytest.raises(PermanentError, match="62 SYNTAX_ERROR"):
            session.rows("SELECT (")
        assert session.rows("SELECT 1 AS a") == [{"a": 1}]


def test_a_visit_stops_merges_so_that_a_look_changes_nothing(source: EmbeddedSource) -> None:
    with source.visit() as session:
        session.execute("CREATE DATABASE db")
        session.execute("CREATE TABLE db.t (id UInt64) ENGINE = MergeTree ORDER BY id")
        for number in range(3):
            session.execute(f"INSERT INTO db.t VALUES ({number})")
    with source.visit() as session, pytest.raises(TemporaryError, match="ancelled"):
        session.execute("OPTIMIZE TABLE db.t FINAL")


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda path: None, "source_missing"),
        (lambda path: path.write_text("x"), "source_not_folder"),
        (lambda path: path.mkdir(), "source_not_clickhouse"),
    ],
    ids=["missing", "a file", "another folder"],
)
def test_a_folder_that_is_none_is_a_mistake_of_the_configuration_and_nothing_is_made(
    tmp_path: Path, make: object, code: str
) -> None:
    assert callable(make)
    folder = tmp_path / "clickhouse"
    make(folder)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError, match=str(folder)) as caught, EmbeddedSource("main", folder).visit():
        pass
    assert (caught.value.code, caught.value.exit_code) == (code, 2)
    assert caught.value.hint and "\n" not in caught.value.message
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_without_write_access_is_said_so_before_anything_is_opened(
    source: EmbeddedSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    with source.visit():
        pass
    before = sorted(source.folder.rglob("*"))
    # The superuser may write everywhere, so the answer of the system is played.
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(UsageError, match="cannot be written") as caught:
        EmbeddedSource("main", source.folder).visit().__enter__()
    assert caught.value.code == "source_not_writable"
    assert sorted(source.folder.rglob("*")) == before


@pytest.mark.parametrize("name", ["with space", "ünï", "100%25", "#x", "a&b=c"])
def test_folders_of_any_name_are_opened(tmp_path: Path, name: str) -> None:
    with EmbeddedSource("main", tmp_path / name, create=True).visit() as session:
        session.execute("CREATE DATABASE db")
        assert session.disks()[0].path == tmp_path / name
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_question_mark_in_the_path_is_refused_because_the_engine_would_cut_it(tmp_path: Path) -> None:
    folder = tmp_path / "a?b"
    (folder / "metadata").mkdir(parents=True)
    with pytest.raises(UsageError, match=r"has a \? in its path"), EmbeddedSource("main", folder).visit():
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["a?b"]


def test_the_url_of_an_embedded_source_names_a_folder() -> None:
    assert folder_of("chdb:///data/clickhouse") == Path("/data/clickhouse")
    for url in ("http://x", "chdb://", "/data"):
        with pytest.raises(UsageError):
            folder_of(url)
