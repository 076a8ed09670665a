"""Executors of a cluster trust an authority of one's own as the documentation has it, with temporary keys."""

import json
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from calve.model.errors import PermanentError
from calve.model.states import ProcessState
from calve.spark.java import java_home
from calve.spark.runner import SparkRunner
from support.optimizing import OptimizeScene
from support.s3 import S3Server, s3_server
from support.sparks import Sparks, java_options
from support.tls import Authority, TlsFront

pytestmark = [pytest.mark.spark, pytest.mark.services]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def cluster(
    authority: Authority, tmp_path_factory: pytest.TempPathFactory, sparks: Sparks
) -> Iterator[SparkRunner]:
    """Told of the authority by `spark.executor.extraJavaOptions`, and by nothing else."""
    store = tmp_path_factory.mktemp("trust") / "trust.p12"
    told = [
        "-importcert",
        "-file",
        authority.ca_file,
        "-keystore",
        store,
        "-storepass",
        "changeit",
        "-noprompt",
    ]
    subprocess.run([java_home() / "bin" / "keytool", *told], check=True, capture_output=True, timeout=60)
    trust = f"-Djavax.net.ssl.trustStore={store} -Djavax.net.ssl.trustStorePassword=changeit"
    conf = {"spark.executor.extraJavaOptions": f"{java_options()} {trust}"}
    with sparks.own("local-cluster[1,2,1024]", conf, slots=2) as runner:  # one executor is enough to tell
        yield runner


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3"), has_roles=True) as server:
        server.create_bucket("lake")
        yield server


def scene(
    cluster: SparkRunner, s3: S3Server, folder: Path, endpoint: str, trusted: Authority
) -> OptimizeScene:
    keys = s3.assume_role()
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": f"s3://lake/{folder.name}",
        "s3.region": s3.region,
        "s3.access-key-id": keys.access_key_id,
        "s3.secret-access-key": keys.secret_access_key,
        "s3.session-token": keys.session_token,
        "s3.endpoint": endpoint,
        "s3.ca-file": str(trusted.ca_file),
    }
    scene = OptimizeScene(cluster, "lake", properties)
    scene.catalog_.create_namespace("ns")
    scene.make("ns.t", files=13)
    return scene


def test_a_table_in_s3_is_optimized(
    cluster: SparkRunner, s3: S3Server, authority: Authority, tmp_path: Path
) -> None:
    with TlsFront(s3.port, authority) as front:
        lake = scene(cluster, s3, tmp_path, front.url, authority)
        before = lake.rows("ns.t")
        process = lake.optimize("ns.t")
        assert process.state is ProcessState.COMPLETED, process.error
        assert json.loads(process.result)["rewritten_files"] == 26
        assert lake.rows("ns.t") == before
    assert not list(Path(tempfile.gettempdir()).glob("calve-trust-*")), "it would outlive a killed JVM"


def test_executors_that_were_not_told_of_an_authority_fail_and_the_setting_is_named(
    cluster: SparkRunner, s3: S3Server, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path / "authority", "somebody else")
    with TlsFront(s3.port, stranger) as front, pytest.raises(PermanentError) as refused:
        scene(cluster, s3, tmp_path, front.url, stranger)  # whose rows the executors write
    assert refused.value.code == "catalog_certificate"
    assert "spark.executor.extraJavaOptions" in refused.value.hint
