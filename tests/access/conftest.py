from collections.abc import Iterator

import pytest

from support.child_runner import ChildRunner
from support.outage_place import BUCKET
from support.s3 import S3Server, s3_server
from support.tls import Authority, TlsFront


@pytest.fixture(scope="package")
def runner() -> Iterator[ChildRunner]:
    """Executors that are started before any test changes the environment: they never see it."""
    runner = ChildRunner(slots=2)
    runner.warm()
    yield runner
    runner.close()


@pytest.fixture(scope="package")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        server.create_bucket(BUCKET)
        yield server


@pytest.fixture(scope="package")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="package")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Another authority, which vouches for nobody here."""
    return Authority(tmp_path_factory.mktemp("stranger"), "somebody else")


@pytest.fixture(scope="package")
def front(s3: S3Server, authority: Authority) -> Iterator[TlsFront]:
    """The S3 server over https."""
    with TlsFront(s3.port, authority) as front:
        yield front
