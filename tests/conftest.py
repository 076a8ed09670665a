"""Which tests run beside which, and what the tests of one program share."""

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import hypothesis
import pytest

from calve.clickhouse.embedded.host import spare
from support import stacks, tally
from support.installed import Installed, install
from support.local_runner import LocalRunner
from support.postgres import Postgres, postgres
from support.spark_sql import SparkSql
from support.sparks import QUICK, Sparks

# The shipped contract suites assert too; without this their failures say nothing.
pytest.register_assert_rewrite("calve.testing.contracts")

# Children find `support` as we do: Spark's Python workers, `python -m support.…`, the tasks of a runner.
_PATHS = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
os.environ["PYTHONPATH"] = os.pathsep.join(path for path in _PATHS if path)

os.environ["PYTHONFAULTHANDLER"] = "1"  # see `support.stacks`

# An example may take as long as a busy machine lets it.
hypothesis.settings.register_profile(
    "calve", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("calve")

# JVMs that live for seconds: the quick compiler and one collecting thread cost a third less.
os.environ["SPARK_LAUNCHER_OPTS"] = os.environ["SPARK_SUBMIT_OPTS"] = QUICK

# What takes longest begins first, so that the programs of a run end together (`pytest --durations=0`).
SLOWEST_FIRST = (
    "chaos/",
    "seen/",
    "outages/test_secrets_of_a_whole_run.py",
    "packages/",
    "outages/test_the_storage_answers_5xx.py",
    "formal/",
    "runner/test_the_executors_python.py",
    "whole_exports/test_dying_in_an_export.py",
    "cli/test_T16_killed_and_asked_again.py",
    "crash/",
    "workers/",
    "outages/",
    "backup/test_encrypted_backups.py",
    "optimize/test_killed.py",
    "exactly_once/",
    "whole_exports/",
    "client/test_the_same_over_a_server.py",
    "contract/",
    "backup/",
    "export/",
    "engines/",
    "cli/test_exporting.py",
    "access/",
    "server_exports/",
    "server_source/",
    "web/",
    "policy/",
    "metrics/test_alert_rules.py",
    "services/",
    "http/",
    "cli/test_processes.py",
)

# Each would end the shared Spark. They run beside it, in another program.
SPARKS_OF_THEIR_OWN = ("full_disk", "cluster_over_https", "master_is_away", "tests/clusters/")


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests of a file, or of a class, stay in one program, since they share what is slow to start. So do all
    that use the shared Spark, those of one master side by side, all that ask Spark as an independent reader, and all
    that open the dashboard in the shared browser, and all that use Calve as it is installed."""
    for item in items:
        item.add_marker(
            pytest.mark.xdist_group(
                _jvm(item) or _browser(item) or _installed(item) or item.nodeid.rpartition("::")[0]
            )
        )
    items.sort(key=_rank)


def pytest_collection_finish(session: pytest.Session) -> None:
    """A pytest with which xdist loses its groups is noticed: without them each program starts everything."""
    if getattr(session.config.option, "loadgroup", False):
        assert all("@" in item.nodeid for item in session.items), "xdist has lost its groups"
    gc.freeze()  # thousands of tests and modules stay to the end: no collection need walk through them


def pytest_sessionstart() -> None:
    tally.begin()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" and "PYTEST_XDIST_WORKER" not in os.environ:  # the one that hears of all
        tally.count("tests", report.outcome)


def pytest_sessionfinish() -> None:
    tally.end()


def _jvm(item: pytest.Item) -> str:
    """The JVM that the test shares with others: that of a fixture, or none of those that run by then."""
    asked: list[str] = item.fixturenames  # type: ignore[attr-defined]
    found = next((name for name in ("sparks", "spark_sql") if name in asked and _is_spark(item)), "")
    of_its_own = found == "sparks" and any(words in item.nodeid for words in SPARKS_OF_THEIR_OWN)
    return "sparks of their own" if of_its_own else found


def _browser(item: pytest.Item) -> str:
    return "browser" if "chromium" in item.fixturenames else ""  # type: ignore[attr-defined]


def _is_spark(item: pytest.Item) -> bool:
    return item.get_closest_marker("spark") is not None


def _rank(item: pytest.Item) -> tuple[int, int]:
    match _jvm(item):
        case "sparks":
            return -3, int("cluster" in item.nodeid or "test_on_spark" in item.nodeid)
        case "spark_sql":
            return -2, 0
        case "sparks of their own":
            return -1, 0
    for rank, path in enumerate(SLOWEST_FIRST):
        if f"tests/{path}" in item.nodeid:
            return rank, 0
    return len(SLOWEST_FIRST), 0


def _installed(item: pytest.Item) -> str:
    return "installed" if "installed" in item.fixturenames else ""  # type: ignore[attr-defined]


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(item: pytest.Item) -> Iterator[None]:
    """A test that runs out of time says where the programs that it started hang."""
    answer = yield
    began, theirs = stacks.now(), signal.getsignal(signal.SIGALRM)

    def over(number: int, frame: FrameType | None) -> None:
        print(f"{item.nodeid} is out of time; the programs that it started are at:")
        print(stacks.of_children(began))
        assert callable(theirs)
        theirs(number, frame)

    if callable(theirs):
        signal.signal(signal.SIGALRM, over)
    return answer


_MORE_VISITS_THAN_COME = 1_000_000


@pytest.fixture(scope="session", autouse=True)
def _an_engine_stays_loaded() -> Iterator[None]:
    """Visits to embedded sources find an engine loaded, as they do in a worker: loading it takes ten times as long
    as a visit. Commands that run as programs of their own load theirs."""
    spare.expect(_MORE_VISITS_THAN_COME)
    yield
    spare.expect(-_MORE_VISITS_THAN_COME)


@pytest.fixture(scope="session")
def sparks() -> Iterator[Sparks]:
    """The Spark of this test program. Tests that ask for it are marked `spark`."""
    sparks = Sparks()
    yield sparks
    sparks.close()


@pytest.fixture(autouse=True)
def _room_for_a_spark_of_its_own(request: pytest.FixtureRequest) -> None:
    """A test that starts Spark by itself, in this program, finds none running."""
    if _is_spark(request.node) and not _jvm(request.node):
        request.getfixturevalue("sparks").close()


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel in an environment of its own: nothing of the repository, and only what it says that it needs."""
    return install(tmp_path_factory.mktemp("installed"))


@pytest.fixture(scope="session")
def runner() -> Iterator[LocalRunner]:
    """One child with one engine, in place of Spark: starting one takes seconds."""
    runner = LocalRunner(slots=1)
    yield runner
    runner.close()


@pytest.fixture(scope="session")
def spark_sql() -> Iterator[SparkSql]:
    """Spark as an independent reader and writer, in a child; each test takes a catalog from it."""
    with SparkSql() as spark:
        yield spark


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """One real PostgreSQL for each test program; tests take databases of their own from it."""
    with postgres() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: Postgres) -> str:
    """An empty database."""
    return postgres_server.new_database()
