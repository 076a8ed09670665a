"""Whatever a file or the environment says: a configuration, or one clear error."""

import json
import string
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from calve.app.config import Config, load_config
from calve.app.config.template import render
from calve.app.destination import (
    as_stored,
    backup_properties,
    catalog_properties,
    parse_destination,
    parse_source_table,
)
from calve.model.errors import CalveError, UsageError

QUICK = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
TEXT = st.text(
    st.characters(exclude_categories=("Cs",)) | st.sampled_from("\"'`\\/.:;\n\r\t\0${}[]= -"), max_size=40
)
HOSTILE = st.sampled_from(
    ["", " ", "..", "../../etc/passwd", "/", "\0", "'; DROP TABLE processes; --", "a" * 1000, "ключ", "x\ny", "-1",
     "NaN", "1e999", "0x10", "true", "[]", "{}", "sqlite://", "postgresql://:@/", "s3://", "s3:///x", "file://..",
     "http://[", "http://host:99999", "chdb://", "`", "a.b.c.d.e", "${HOME}", "~"]
)  # fmt: skip
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | TEXT
    | HOSTILE
    | st.dates(date(1, 1, 1))
    | st.datetimes().map(lambda at: at.replace(microsecond=0)),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(string.ascii_lowercase, max_size=8), inner, max_size=3)
    ),
    max_leaves=5,
)


def toml(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str():
            # JSON leaves the one control character as it is that TOML does not take.
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case datetime() | date():
            return value.isoformat()
        case list():
            return f"[{', '.join(map(toml, value))}]"
        case dict():
            return f"{{{', '.join(f'{json.dumps(name)} = {toml(item)}' for name, item in value.items())}}}"
        case _:
            return repr(value)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def keys(home: Path) -> list[str]:
    """Every key that the configuration of `calve init` has, and sections that it could have."""
    (home / "calve.toml").write_text(render())
    found = [setting.key for setting in load_config(environ={}, cwd=home).settings]
    more = ["source.other.url", "source.other.disks", "storage.x.endpoint", "backup.encryption_key", "store.url_file",
            "policy.p.table", "policy.p.after", "notify.x.url", "backup.schedule.nightly.at", "tokens.file", "limits"]  # fmt: skip
    return found + more


def loaded(home: Path, text: str | bytes, environ: dict[str, str] | None = None) -> Config | None:
    """None for one clear error."""
    (home / "calve.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    before = sorted(path.name for path in home.parent.iterdir())
    try:
        return load_config(environ=environ or {}, cwd=home)
    except CalveError as error:
        assert error.message and error.exit_code in (2, 3), error
        assert "Traceback" not in error.message
        return None
    finally:
        assert sorted(path.name for path in home.parent.iterdir()) == before


@QUICK
@given(data=st.data())
def test_any_value_of_any_key_of_a_file(home: Path, keys: list[str], data: st.DataObject) -> None:
    section, _, key = data.draw(st.sampled_from(keys)).rpartition(".")
    text = f"{json.dumps(key)} = {toml(data.draw(VALUES))}\n"
    if section:
        text = f"[{'.'.join(map(json.dumps, section.split('.')))}]\n{text}"
    loaded(home, text)


@QUICK
@given(data=st.data())
def test_any_value_of_any_key_of_the_environment(home: Path, keys: list[str], data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(keys))
    value = data.draw(HOSTILE | TEXT).replace("\0", "")
    loaded(home, "", {f"CALVE_{key.upper().replace('.', '__')}": value})


@QUICK
@given(text=st.binary(max_size=200) | TEXT.map(str.encode))
def test_any_bytes_for_a_file(home: Path, text: bytes) -> None:
    loaded(home, text)


@QUICK
@given(name=TEXT | HOSTILE)
def test_any_name_of_a_table_a_destination_and_a_catalog(home: Path, name: str) -> None:
    config = loaded(home, render())
    assert config is not None
    for read in (parse_source_table, parse_destination, as_stored):
        try:
            read(name, config)
        except CalveError as error:
            assert isinstance(error, UsageError) or error.exit_code in (2, 3), error
            assert error.message
    for ask in (lambda: catalog_properties(config, name), lambda: backup_properties(config)):
        try:
            ask()
        except CalveError as error:
            assert error.message
