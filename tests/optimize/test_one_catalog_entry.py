"""One `[catalog.…]` entry serves PyIceberg and Spark."""

import json
from pathlib import Path

import pytest

from calve.model.errors import UsageError
from calve.model.states import ProcessState
from calve.spark.catalog_conf import AZURE_FILE_IO, GCS_FILE_IO, S3_FILE_IO, jars_for, spark_catalog
from calve.spark.java import (
    ICEBERG_AWS,
    ICEBERG_AZURE,
    ICEBERG_GCP,
    ICEBERG_SPARK,
    POSTGRES_JDBC,
    SQLITE_JDBC,
)
from calve.spark.runner import SparkRunner
from support.azurite import HOST, azurite
from support.fake_gcs import fake_gcs
from support.iceberg_rest import apache_rest
from support.optimizing import OptimizeScene
from support.s3 import s3_server
from support.tls import Authority, TlsFront
from support.vending_proxy import VendingProxy

PREFIX = "spark.sql.catalog.lake"


def of(conf: dict[str, str], key: str) -> str | None:
    return conf.get(f"{PREFIX}.{key}")


def test_a_sqlite_catalog() -> None:
    conf = spark_catalog(
        "lake", {"type": "sql", "uri": "sqlite:////data/c.db", "warehouse": "file:///data/w"}
    )
    assert conf[PREFIX] == "org.apache.iceberg.spark.SparkCatalog"
    assert of(conf, "type") == "jdbc" and of(conf, "warehouse") == "file:///data/w"
    assert (of(conf, "uri") or "").startswith("jdbc:sqlite:/data/c.db?")
    assert jars_for(conf) == (ICEBERG_SPARK, SQLITE_JDBC)


@pytest.mark.parametrize("scheme", ["postgresql", "postgresql+psycopg", "postgres"])
def test_P22_a_postgresql_catalog_keeps_its_password_out_of_the_url(scheme: str) -> None:
    conf = spark_catalog(
        "lake", {"type": "sql", "uri": f"{scheme}://me:s%40cret@host:5433/db", "warehouse": "s3://b/w"}
    )
    assert of(conf, "uri") == "jdbc:postgresql://host:5433/db"
    assert (of(conf, "jdbc.user"), of(conf, "jdbc.password")) == ("me", "s@cret")
    assert jars_for(conf) == (ICEBERG_SPARK, POSTGRES_JDBC, ICEBERG_AWS)


def test_a_rest_catalog_is_handed_on_and_s3_is_told_by_the_tables_location() -> None:
    given = {"type": "rest", "uri": "http://host/api", "warehouse": "prod", "token": "t", "header.X-A": "b"}
    conf = spark_catalog("lake", given, "s3://bucket/t")
    assert (of(conf, "type"), of(conf, "uri"), of(conf, "warehouse")) == ("rest", "http://host/api", "prod")
    assert (of(conf, "token"), of(conf, "header.X-A")) == ("t", "b")
    assert of(conf, "io-impl") == S3_FILE_IO
    assert of(conf, "header.X-Iceberg-Access-Delegation") == "vended-credentials"
    assert ICEBERG_AWS not in jars_for(spark_catalog("lake", given, "file:///t"))


def test_s3_settings_are_translated() -> None:
    given = {
        "type": "sql", "uri": "sqlite:////c.db", "warehouse": "s3://b/w", "s3.endpoint": "http://127.0.0.1:1",
        "s3.access-key-id": "k", "s3.secret-access-key": "s", "s3.region": "eu-west-1",
    }  # fmt: skip
    conf = spark_catalog("lake", given)
    assert (of(conf, "client.region"), of(conf, "s3.path-style-access")) == ("eu-west-1", "true")
    assert (of(conf, "s3.endpoint"), of(conf, "s3.access-key-id")) == ("http://127.0.0.1:1", "k")
    virtual = spark_catalog("lake", given | {"s3.force-virtual-addressing": True})
    assert of(virtual, "s3.path-style-access") == "false"


def test_azure_s_settings_are_translated() -> None:
    host = "shelf.dfs.core.windows.net"
    given = {"type": "sql", "uri": "sqlite:////c.db", "warehouse": f"abfss://box@{host}/w"}
    conf = spark_catalog("lake", given | {"adls.account-key": "k", "adls.client-secret": "s"})
    assert of(conf, "io-impl") == AZURE_FILE_IO
    assert of(conf, "adls.auth.shared-key.account.name") == "shelf"
    assert of(conf, "adls.auth.shared-key.account.key") == "k"
    assert of(conf, f"adls.connection-string.{host}") == "https://shelf.blob.core.windows.net"
    assert ICEBERG_AZURE in jars_for(conf)
    assert of(conf, "adls.account-key") is None and of(conf, "adls.client-secret") is None
    assert of(spark_catalog("lake", given | {"adls.sas-token": "sig"}), f"adls.sas-token.{host}") == "sig"
    with pytest.raises(UsageError, match="names no storage account"):
        spark_catalog("lake", given | {"warehouse": "abfss://box/w"})


def test_google_s_settings_are_translated() -> None:
    given = {"type": "sql", "uri": "sqlite:////c.db", "warehouse": "gs://box/w", "gcs.oauth2.token": "t"}
    conf = spark_catalog("lake", given | {"gcs.service-account-key": "{}"})
    assert (of(conf, "io-impl"), of(conf, "gcs.oauth2.token")) == (GCS_FILE_IO, "t")
    assert of(conf, "gcs.service-account-key") is None and ICEBERG_GCP in jars_for(conf)


def test_a_catalog_that_spark_does_not_have_is_said_to_be_so() -> None:
    with pytest.raises(UsageError, match="dynamodb"):
        spark_catalog("lake", {"type": "dynamodb"})
    with pytest.raises(UsageError, match="mysql"):
        spark_catalog("lake", {"type": "sql", "uri": "mysql://host/db"})


def optimized(scene: OptimizeScene) -> None:
    scene.catalog_.create_namespace("ns")
    scene.make("ns.t", files=13)
    before = scene.rows("ns.t")
    process = scene.optimize("ns.t")
    assert process.state is ProcessState.COMPLETED, process.error
    assert json.loads(process.result)["rewritten_files"] == 26
    assert scene.rows("ns.t") == before
    assert sorted(scene.table("ns.t").scan().to_arrow()["id"].to_pylist()) == list(range(130)), (
        "PyIceberg agrees"
    )


@pytest.mark.spark
@pytest.mark.services
def test_a_table_of_a_postgresql_catalog_is_optimized(
    spark: SparkRunner, postgres_url: str, tmp_path: Path
) -> None:
    properties = {"type": "sql", "uri": postgres_url, "warehouse": f"file://{tmp_path}/warehouse"}
    optimized(OptimizeScene(spark, "lake", properties))


@pytest.mark.spark
@pytest.mark.services
def test_a_table_in_s3_is_optimized_and_cleaned_over_https(spark: SparkRunner, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    with s3_server(tmp_path / "s3") as server, TlsFront(server.port, authority) as front:
        server.create_bucket("lake")
        properties = {
            "type": "sql",
            "uri": f"sqlite:///{tmp_path}/catalog.db",
            "warehouse": "s3://lake/warehouse",
            **server.properties(),
            "s3.endpoint": front.url,
            "s3.ca-file": str(authority.ca_file),
        }
        scene = OptimizeScene(spark, "lake", properties)
        optimized(scene)
        scene.clock.advance(days=30)
        later = scene.optimize("ns.t")
        assert later.state is ProcessState.COMPLETED, later.error
        assert json.loads(later.result)["expired"]["snapshots"] == 1
        assert len(scene.rows("ns.t")) == 130


@pytest.mark.spark
@pytest.mark.services
@pytest.mark.long
def test_a_table_in_azure_s_cloud_is_optimized_and_cleaned(spark: SparkRunner, tmp_path: Path) -> None:
    with azurite(tmp_path) as server:
        server.create_container("lake")
        warehouse = f"abfss://lake@{HOST}/warehouse"
        given = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": warehouse}
        scene = OptimizeScene(spark, "lake", given | server.properties())
        optimized(scene)
        scene.clock.advance(days=30)
        later = scene.optimize("ns.t")
        assert later.state is ProcessState.COMPLETED, later.error
        assert json.loads(later.result)["expired"]["snapshots"] == 1
        assert len(scene.rows("ns.t")) == 130


@pytest.mark.spark
@pytest.mark.services
@pytest.mark.long
def test_a_table_in_google_s_cloud_is_optimized(spark: SparkRunner, tmp_path: Path) -> None:
    with fake_gcs(tmp_path) as server:
        server.create_bucket("lake")
        given = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": "gs://lake/warehouse"}
        optimized(OptimizeScene(spark, "lake", given | server.properties()))


@pytest.mark.spark
@pytest.mark.services
def test_a_table_of_a_rest_catalog_is_optimized_with_the_keys_that_it_lends(
    spark: SparkRunner, tmp_path: Path
) -> None:
    authority = Authority(tmp_path / "authority")
    with (
        s3_server(tmp_path / "s3") as s3,
        apache_rest(tmp_path / "rest", "s3://lake/rest", s3.properties()) as server,
        VendingProxy(server.uri) as catalog,
        TlsFront(catalog.port, authority) as front,
    ):
        s3.create_bucket("lake")
        catalog.lend(s3.properties() | {"client.region": s3.region, "s3.path-style-access": "true"})
        given = server.properties(front.url) | {"warehouse": "s3://lake/rest"}
        given |= {"ca_file": str(authority.ca_file)}
        optimized(OptimizeScene(spark, "lake", given))
