"""Names as a person types them, completed by the configuration."""

from pathlib import Path

import pytest

from calve.app.config import load_config
from calve.app.wiring import App
from calve.model.errors import UsageError


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("events", "shop.events"),
        ("other:events", "other:default.events"),
        ("other:db.events", "other:db.events"),
        ("db.`a.b`", "db.`a.b`"),
        ("`a.b`", "shop.`a.b`"),
    ],
)
def test_a_table_without_a_database_is_in_its_source_s(tmp_path: Path, text: str, meant: str) -> None:
    (tmp_path / "calve.toml").write_text(
        '[source.main]\nurl = "http://h:8123"\ndatabase = "shop"\n[source.other]\nurl = "http://o:8123"\n'
    )
    app = App(load_config(tmp_path / "calve.toml", environ={}))
    assert str(app.table(text)) == meant
    for wrong in ("", "a.b.c", "nobody:t"):
        with pytest.raises(UsageError, match="invalid table name"):
            app.table(wrong)
