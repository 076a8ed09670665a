from pathlib import Path

import pytest

from calve.app.config import load_config
from calve.app.config.tree import MASK, mask_url
from calve.model.errors import UsageError

SECRET = "hush-hush"


def test_a_secret_may_be_a_file_relative_to_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "pw").write_text(SECRET + "\n")
    (tmp_path / "calve.toml").write_text('[source.main]\nurl = "http://h"\npassword_file = "pw"\n')
    config = load_config(environ={}, cwd=tmp_path)
    assert config.source("main").password == SECRET


def test_a_secret_file_may_be_named_for_a_catalog_and_by_the_environment(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(SECRET)
    (tmp_path / "calve.toml").write_text(
        '[catalog.lake]\nuri = "http://h"\n"s3.secret-access-key_file" = "key"\n'
    )
    environ = {"CALVE_STORE__URL_FILE": str(tmp_path / "key")}
    config = load_config(environ=environ, cwd=tmp_path)
    assert config.catalog("lake")["s3.secret-access-key"] == SECRET
    assert config.store_url == SECRET


@pytest.mark.parametrize("given", ["CALVE_SOURCE__MAIN__PASSWORD", "CALVE_SOURCE__MAIN__PASSWORD_FILE"])
def test_a_secret_of_the_environment_wins_over_the_file_s_in_either_form(tmp_path: Path, given: str) -> None:
    (tmp_path / "old").write_text("old")
    (tmp_path / "new").write_text("new")
    environ = {given: "new" if given.endswith("PASSWORD") else str(tmp_path / "new")}
    for text in ('password_file = "old"', 'password = "old"'):
        (tmp_path / "calve.toml").write_text(f'[source.main]\nurl = "http://h"\n{text}\n')
        assert load_config(environ=environ, cwd=tmp_path).source("main").password == "new"


def test_a_secret_given_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "calve.toml").write_text(
        '[source.main]\nurl = "http://h"\npassword = "a"\npassword_file = "b"\n'
    )
    with pytest.raises(UsageError, match=r"both source\.main\.password and source\.main\.password_file"):
        load_config(environ={}, cwd=tmp_path)


def test_P22_no_secret_is_in_what_is_shown_or_printed(tmp_path: Path) -> None:
    (tmp_path / "calve.toml").write_text(f"""
[source.main]
url = "http://user:{SECRET}@host:8123"
password = "{SECRET}"
lake = {{lake = "IcebergS3('https://b.s3.amazonaws.com/{{path}}/', 'AKIA', '{SECRET}', 'Parquet')"}}
[catalog.lake]
uri = "postgresql+psycopg://u:{SECRET}@h/db"
token = "{SECRET}"
credential = "id:{SECRET}"
"s3.secret-access-key" = "{SECRET}"
"adls.account-key" = "{SECRET}"
auth = {{type = "basic", basic = {{password = "{SECRET}"}}}}
[storage."s3://b"]
secret_access_key = "{SECRET}"
session_token = "{SECRET}"
[storage."abfss://c@a.dfs.core.windows.net"]
account_key = "{SECRET}"
sas_token = "{SECRET}"
client_secret = "{SECRET}"
[storage."gs://b"]
service_account_key = "{SECRET}"
[backup]
encryption_key = "{SECRET}"
[notify.ops]
url = "https://hooks.example/{SECRET}"
secret = "{SECRET}"
[ping.nightly]
success = "https://pings.example/{SECRET}"
[store]
url = "postgresql://u:{SECRET}@h/db"
[spark.conf]
"spark.hadoop.fs.s3a.secret.key" = "{SECRET}"
""")
    config = load_config(environ={}, cwd=tmp_path)
    assert SECRET not in repr(config.settings)
    assert SECRET not in repr(config)
    assert repr(config.settings).count(MASK) == 21
    assert config.catalog("lake")["auth"]["basic"]["password"] == SECRET


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("postgresql://u:p@h/d", f"postgresql://u:{MASK}@h/d"),
        ("postgresql://h/d?user=u&password=p&x=1", f"postgresql://h/d?user=u&password={MASK}&x=1"),
        ("sqlite:////a/b.db", "sqlite:////a/b.db"),
        ("http://h:8123/x@y:z", "http://h:8123/x@y:z"),
        ("https://a.blob/c?sv=1&sig=p%3D", f"https://a.blob/c?sv=1&sig={MASK}"),
    ],
)
def test_a_url_keeps_all_but_its_password(url: str, masked: str) -> None:
    assert mask_url(url) == masked
