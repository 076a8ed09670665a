"""https with an authority of one's own, for the control plane and for executors."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from executor_child import ExecutorChild
from servers import WITH_UUID, Place

from calve.clickhouse.server.source import ServerOptions, ServerSource
from calve.model.errors import UsageError
from support.clickhouse_front import ClickHouseFront, FrontOptions, clickhouse_front

pytestmark = pytest.mark.services


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    return certificate, key


@pytest.fixture(scope="module")
def secure(
    tmp_path_factory: pytest.TempPathFactory, certificate: tuple[Path, Path]
) -> Iterator[ClickHouseFront]:
    options = FrontOptions(certificate=certificate[0], key=certificate[1], stand_ins=WITH_UUID)
    with clickhouse_front(tmp_path_factory.mktemp("secure"), options) as front:
        yield front


@pytest.fixture
def own_executor() -> Iterator[ExecutorChild]:
    """The engine of a process takes its certificates once."""
    child = ExecutorChild()
    yield child
    child.close()


def table_of(source: ServerSource) -> str:
    with source.visit() as session:
        session.execute("CREATE DATABASE IF NOT EXISTS db")
        session.execute("DROP TABLE IF EXISTS db.t SYNC")
        session.execute("CREATE TABLE db.t (a UInt64) ENGINE = MergeTree ORDER BY a")
        session.execute("INSERT INTO db.t SELECT number FROM numbers(1000)")
    return "db.t"


def test_an_authority_of_one_s_own_is_trusted_when_it_is_named(
    secure: ClickHouseFront, certificate: tuple[Path, Path], own_executor: ExecutorChild
) -> None:
    source = ServerSource("main", ServerOptions(url=secure.url, ca_file=str(certificate[0])))
    pinned = Place(url="", data=Path(), modern=True).pin(table_of(source), source=source, partitions=("all",))
    assert own_executor.read(source, pinned, "sum(a) AS s")["rows"] == [{"s": 499500}]


def test_a_certificate_that_nobody_vouches_for_is_refused(
    secure: ClickHouseFront, certificate: tuple[Path, Path], own_executor: ExecutorChild
) -> None:
    with pytest.raises(UsageError) as refused:
        ServerSource("main", ServerOptions(url=secure.url)).visit().__enter__()
    assert refused.value.code == "source_certificate"
    assert "ca_file under [source.main]" in refused.value.hint
    trusted = ServerSource("main", ServerOptions(url=secure.url, ca_file=str(certificate[0])))
    pinned = Place(url="", data=Path(), modern=True).pin(
        table_of(trusted), source=trusted, partitions=("all",)
    )
    untrusting = ServerSource("main", ServerOptions(url=secure.url))
    assert "certificate verify failed" in own_executor.read(untrusting, pinned, "1")["error"]["message"]


def test_a_missing_ca_file_is_the_user_s_to_mend() -> None:
    with pytest.raises(UsageError) as refused:
        ServerSource("main", ServerOptions(url="https://h", ca_file="/no/such.pem")).visit().__enter__()
    assert refused.value.code == "source_ca_file"
