"""Each key that docs/spark-clusters.md gives is in Spark's own list of configuration, and Calve reads each block."""

import re
import tomllib
from pathlib import Path

import pytest
from cluster_place import ClusterPlace

from calve.app.config import load_config

pytestmark = [pytest.mark.spark, pytest.mark.services]

PAGE = Path(__file__).parents[2] / "docs" / "spark-clusters.md"
BLOCKS = re.findall(r"^```toml\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
# Objects that put their keys into the list when they are loaded.
LISTS = (
    "internal.config.package", "internal.config.Python", "internal.config.Network", "internal.config.UI",
    "deploy.k8s.Config", "deploy.yarn.config.package",
)  # fmt: skip
ANY_NAME = ("spark.executorEnv.",)  # a prefix: what follows is the user's


def keys() -> set[str]:
    return {key for block in BLOCKS for key in tomllib.loads(block).get("spark", {}).get("conf", {})}


def test_every_key_is_one_that_spark_knows(place: ClusterPlace) -> None:
    jvm = place.spark.started()._jvm
    for name in LISTS:
        jvm.java.lang.Class.forName(f"org.apache.spark.{name}$")
    known = jvm.org.apache.spark.internal.config.ConfigEntry
    named = {key for key in keys() if not key.startswith(ANY_NAME)}
    assert len(named) > 20
    assert known.findEntry("spark.no.such.key") is None
    assert [key for key in sorted(named) if known.findEntry(key) is None] == []


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_every_block_is_a_configuration(number: int, tmp_path: Path) -> None:
    (tmp_path / "calve.toml").write_text(BLOCKS[number])
    read = load_config(tmp_path / "calve.toml", environ={}, cwd=tmp_path)
    assert read.spark.master.startswith(("spark://", "k8s://", "yarn")) or "disks_at" in BLOCKS[number]
