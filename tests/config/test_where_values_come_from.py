import sys
from pathlib import Path

import pytest

from calve.app.config import Config, load_config
from calve.app.config.template import render, write
from calve.app.destination import catalog_properties
from calve.iceberg.catalogs.catalog import open_catalog
from calve.model.errors import CalveError, UsageError
from calve.model.limits import Limits

FILE = """
[source.main]
url = "chdb://clickhouse"

[catalog.lake]
type = "sql"
uri = "sqlite:///lake/catalog.db"
warehouse = "lake/warehouse"
"""


def load(folder: Path, text: str = FILE, environ: dict[str, str] | None = None) -> Config:
    (folder / "calve.toml").write_text(text)
    return load_config(environ=environ or {}, cwd=folder)


def origin(config: Config, key: str) -> str:
    return next(setting.origin for setting in config.settings if setting.key == key)


def shown(config: Config, key: str) -> object:
    return next(setting.shown for setting in config.settings if setting.key == key)


def test_the_working_folder_s_file_is_found(tmp_path: Path) -> None:
    config = load(tmp_path)
    assert config.file == tmp_path / "calve.toml"
    assert origin(config, "source.main.url") == "file calve.toml"
    assert origin(config, "store.url") == "default"


def test_an_option_wins_over_CALVE_CONFIG_which_wins_over_the_working_folder(tmp_path: Path) -> None:
    for name in ("here", "variable", "option"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "calve.toml").write_text(FILE)
    environ = {"CALVE_CONFIG": str(tmp_path / "variable" / "calve.toml")}
    here = tmp_path / "here"
    assert load_config(environ={}, cwd=here).folder == here
    assert load_config(environ=environ, cwd=here).folder == tmp_path / "variable"
    assert load_config("../option", environ=environ, cwd=here).folder == tmp_path / "option"


def test_no_file_and_no_settings_in_the_environment_names_calve_init(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as raised:
        load_config(environ={}, cwd=tmp_path)
    assert raised.value.code == "no_config"
    assert "calve init" in raised.value.hint


def test_a_named_file_that_is_missing_is_an_error_even_if_the_folder_has_one(tmp_path: Path) -> None:
    (tmp_path / "calve.toml").write_text(FILE)
    with pytest.raises(UsageError, match=r"other\.toml"):
        load_config("other.toml", environ={}, cwd=tmp_path)


def test_the_environment_alone_is_enough(tmp_path: Path) -> None:
    config = load_config(environ={"CALVE_SOURCE__MAIN__URL": "chdb://data"}, cwd=tmp_path)
    assert config.source("main").folder == tmp_path / "data"
    assert config.file is None


@pytest.mark.parametrize(
    ("variable", "value", "key", "expected"),
    [
        ("CALVE_STORE__URL", "postgresql://db/calve", "store.url", "postgresql://db/calve"),
        ("CALVE_LIMITS__TASK_ATTEMPTS", "9", "limits.task_attempts", 9),
        ("CALVE_LIMITS__LEASE_SECONDS", "2.5", "limits.lease_seconds", 2.5),
        ("CALVE_SOURCE__MAIN__USER", "reader", "source.main.user", "reader"),
        ("CALVE_SOURCE__MAIN__DISKS__FAST", "/fast", "source.main.disks.fast", "/fast"),
        ("CALVE_CATALOG__LAKE__S3__ENDPOINT", "http://h:1", 'catalog.lake."s3.endpoint"', "http://h:1"),
        ("CALVE_CATALOG__LAKE__S3__REGION", "eu", 'catalog.lake."s3.region"', "eu"),
        ("CALVE_CATALOG__OTHER__URI", "http://rest", "catalog.other.uri", "http://rest"),
        ("CALVE_SPARK__CONF__SPARK__UI__ENABLED", "true", 'spark.conf."spark.ui.enabled"', "true"),
        ("CALVE_SPARK__CONF__spark__executor__memoryOverhead", "1g", 'spark.conf."spark.executor.memoryOverhead"', "1g"),
        ("CALVE_STORAGE__S3_BUCKET__REGION", "eu-1", 'storage."s3://bucket".region', "eu-1"),
    ],
)  # fmt: skip
def test_every_key_has_an_environment_form_that_wins(
    tmp_path: Path, variable: str, value: str, key: str, expected: object
) -> None:
    text = FILE + '"s3.endpoint" = "http://file"\n[storage."s3://bucket"]\nregion = "us"\n'
    config = load(tmp_path, text, {variable: value})
    assert shown(config, key) == expected
    assert origin(config, key) == f"environment {variable}"


def test_relative_paths_are_relative_to_the_file_and_local_warehouses_are_full_uris(tmp_path: Path) -> None:
    folder = tmp_path / "with space"
    folder.mkdir()
    (folder / "calve.toml").write_text(FILE)
    config = load_config(folder / "calve.toml", environ={}, cwd=tmp_path)
    assert config.source("main").url == f"chdb://{folder}/clickhouse"
    assert config.store_url == f"sqlite:///{folder}/calve.db"
    assert config.backup_url == f"file://{folder}/backups"
    assert config.catalog("lake")["uri"] == f"sqlite:///{folder}/lake/catalog.db"
    assert config.catalog("lake")["warehouse"] == f"file://{folder}/lake/warehouse"


@pytest.mark.parametrize("warehouse", ["s3://bucket/prefix", "file:///somewhere/else", "gs://b/p"])
def test_a_warehouse_that_is_a_uri_stays_as_it_is(tmp_path: Path, warehouse: str) -> None:
    config = load(tmp_path, FILE.replace("lake/warehouse", warehouse))
    assert config.catalog("lake")["warehouse"] == warehouse


@pytest.mark.parametrize("warehouse", ["main", "team/lake", "arn:aws:s3tables:eu-west-1:1:bucket/lake"])
def test_the_warehouse_of_a_REST_catalog_is_a_name_of_its_server(tmp_path: Path, warehouse: str) -> None:
    config = load(tmp_path, f'[catalog.r]\nuri = "http://h:1"\nwarehouse = "{warehouse}"\n')
    assert config.catalog("r")["warehouse"] == warehouse
    assert open_catalog("r", catalog_properties(config, "r")).properties["warehouse"] == warehouse


@pytest.mark.parametrize("kind", ["glue", "hive"])
def test_T15_a_catalog_whose_libraries_are_not_installed_says_how_to_install_them(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for library in (
        "boto3",
        "mypy_boto3_glue",
        "hive_metastore",
        "thrift",
        "pyiceberg.catalog.hive",
        "pyiceberg.catalog.glue",
    ):
        monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(UsageError, match=f"type {kind} are not installed") as caught:
        open_catalog("lake", {"type": kind, "uri": "thrift://h:1"})
    assert caught.value.code == "catalog_not_installed" and f"calve[{kind}]" in caught.value.hint


def test_dotted_keys_without_quotes_reach_catalogs_and_spark_whole(tmp_path: Path) -> None:
    text = (
        FILE
        + 's3.endpoint = "http://h"\ns3.path-style = true\nauth = {type = "noop"}\n[spark.conf]\nspark.ui.enabled = false\n'
    )
    config = load(tmp_path, text)
    assert config.catalog("lake")["s3.endpoint"] == "http://h"
    assert config.catalog("lake")["s3.path-style"] == "true"
    assert config.catalog("lake")["auth"] == {"type": "noop"}
    assert config.spark.conf == {"spark.ui.enabled": "false"}


def test_the_first_source_is_the_default(tmp_path: Path) -> None:
    config = load(tmp_path, '[source.zebra]\nurl = "chdb://z"\n[source.ape]\nurl = "chdb://a"\n')
    assert config.default_source == "zebra"
    assert config.reach == {"source:zebra", "source:ape", f"backup:file://{tmp_path}/backups"}


def test_limits_are_those_of_the_model(tmp_path: Path) -> None:
    assert load(tmp_path).limits == Limits()
    assert load(tmp_path, FILE + "[limits]\nslots = 3\n").limits == Limits(slots=3)


def test_the_file_that_init_writes_says_every_key_and_changes_no_default(tmp_path: Path) -> None:
    file = write(tmp_path)
    config = load_config(file, environ={})
    assert config.limits == Limits()
    for key in (*Limits.__dataclass_fields__, "password", "ca_file", "disks", "endpoint", "master"):
        assert f"{key} = " in render(), key


def test_uncommenting_every_line_that_init_writes_still_reads(tmp_path: Path) -> None:
    lines = [
        line.removeprefix("# ") if " = " in line or line.startswith("# [") else line
        for line in render().splitlines()
        if "…" not in line.split("  #")[0]
    ]
    assert load(tmp_path, "\n".join(lines)).storages["s3://bucket"]["virtual_addressing"] == "False"


def test_init_never_overwrites(tmp_path: Path) -> None:
    (tmp_path / "calve.toml").write_text("mine")
    with pytest.raises(UsageError) as raised:
        write(tmp_path)
    assert raised.value.code == "config_exists"
    assert (tmp_path / "calve.toml").read_text() == "mine"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("[stor]\nurl = 'x'", "unknown key stor", "did you mean store?"),
        ("[source.main]\nurll = 'x'", "unknown key source.main.urll", "did you mean source.main.url?"),
        ("[limits]\ntask_atempts = 3", "unknown key limits.task_atempts", "did you mean limits.task_attempts?"),
        ("[limits]\ntask_attempts = 'many'", "limits.task_attempts (file calve.toml): input should be a valid integer", ""),
        ("[limits]\ntask_attempts = 0", "limits.task_attempts (file calve.toml): input should be greater than 0", ""),
        ("[source.main]", "source.main.url is missing", "give url in [source.main]"),
        ("[source.main]\npassword_file = 'gone'\nurl = 'http://h'", "cannot read", "must contain the secret"),
        ("[source]\nurl = 'chdb://x'", "source.url (file calve.toml) is outside a section", "below [source.main]"),
        ("[catalog]\nuri = 'x'", "catalog.uri (file calve.toml) is outside a section", "below [catalog.lake]"),
        ("[storage.bucket]\nregion = 'x'", "storage.bucket is not a URL", '[storage."s3://bucket"]'),
        ("source = 3", "source (file calve.toml): input should be a valid dictionary", ""),
        ("url = ", "is not TOML", "quotes"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_the_file_is_said_in_one_line(
    tmp_path: Path, text: str, message: str, hint: str
) -> None:
    with pytest.raises(UsageError) as raised:
        load(tmp_path, text)
    assert message in raised.value.message
    assert "\n" not in raised.value.message
    assert hint in raised.value.hint


@pytest.mark.parametrize(
    "variable", ["CALVE_STOR__URL", "CALVE_LIMITS__TASK_ATEMPTS", "CALVE_STORAGE__S3_X__REGION"]
)
def test_a_variable_that_is_no_setting_is_an_error(tmp_path: Path, variable: str) -> None:
    with pytest.raises(UsageError, match=variable):
        load(tmp_path, FILE, {variable: "1"})


def test_a_catalog_or_source_that_is_not_configured_is_named_with_those_that_are(tmp_path: Path) -> None:
    config = load(tmp_path)
    with pytest.raises(CalveError, match=r"catalog 'lak' is not configured \(configured: lake\)"):
        config.catalog("lak")
    with pytest.raises(CalveError, match=r"source 'x' is not configured \(configured: main\)"):
        config.source("x")
