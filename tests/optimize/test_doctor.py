"""`calve doctor` says whether Spark and PyIceberg see the same tables."""

from pathlib import Path

import pytest

from calve.app.config import load_config
from calve.app.doctor.parts import seen_by_spark
from calve.app.wiring import App
from calve.spark.runner import SparkRunner
from support.lake import arrow, make_table


def app_in(folder: Path) -> App:
    (folder / "calve.toml").write_text(
        '[catalog.lake]\ntype = "sql"\nuri = "sqlite:///c.db"\nwarehouse = "warehouse"\n'
    )
    return App(load_config(folder / "calve.toml"))


def test_jars_that_are_not_here_are_said_and_not_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CALVE_CACHE", str(tmp_path / "empty"))
    [finding] = seen_by_spark(app_in(tmp_path), name="lake")
    assert finding.ok and "iceberg-spark-runtime" in finding.words
    assert not (tmp_path / "empty").exists()


@pytest.mark.spark
def test_one_table_is_looked_at_by_both(spark: SparkRunner, tmp_path: Path) -> None:
    app = app_in(tmp_path)
    app.__dict__["runner"] = spark
    spark.warm()
    [empty] = seen_by_spark(app, name="lake")
    assert empty.ok
    make_table(app.catalog("lake")).append(arrow(range(3), 1))
    [finding] = seen_by_spark(app, name="lake")
    assert finding.ok and "see the same ns.events" in finding.words, finding
