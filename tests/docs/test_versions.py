"""The page of versions says what `calve version` says."""

import re
from pathlib import Path

from calve.app.support import versions

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "versions.md").read_text()
OF_THE_MACHINE = {"python", "java"}  # the oldest that are taken
NOT_SAID = {
    "calve",
    "platform",
    "clickhouse-connect",
    "obstore",
    "psycopg",
    "pyarrow",
    "pydantic",
    "sqlalchemy",
}


def test_every_version_that_matters_is_on_the_page_and_is_the_one_that_there_is() -> None:
    said = dict(re.findall(r"^\| (?:[\w ]+ \| )?`([\w-]+)` \| ([\w.]+) \|", PAGE, re.MULTILINE))
    said |= dict(re.findall(r"`([a-z-]+)`:? \(?([\d.][\d., ]*\d)\)", PAGE))
    said |= dict(re.findall(r"\(`([a-z-]+)`: ([\d.]+)\)", PAGE))
    found = {name: one for name, one in versions().items() if name not in NOT_SAID}
    assert {name: one for name, one in said.items() if name not in OF_THE_MACHINE} == {
        name: one for name, one in found.items() if name not in OF_THE_MACHINE
    }
    assert set(said) >= OF_THE_MACHINE
