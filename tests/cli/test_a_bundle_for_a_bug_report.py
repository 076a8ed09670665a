"""`calve support`: what a bug report needs, and nothing that must stay here."""

import json
import re
import zipfile
from pathlib import Path

from support.calve_command import Run

SECRET = "hunter2-of-the-source"


def parts(file: Path) -> dict[str, str]:
    with zipfile.ZipFile(file) as bundle:
        return {name: bundle.read(name).decode() for name in bundle.namelist()}


def test_it_has_every_part_and_no_secret_or_name(run: Run, tmp_path: Path) -> None:
    run("init")
    token = run("token", "new", "--role", "viewer", "--name", "alice").out.strip()
    answer = run("support", "--output", "report.zip", env={"CALVE_SOURCE__MAIN__PASSWORD": SECRET})
    assert answer.out == "report.zip\n"
    file = tmp_path / "report.zip"
    assert file.stat().st_mode & 0o777 == 0o600
    found = parts(file)
    assert set(found) == {
        f"{name}.json" for name in (
            "versions", "config", "processes", "events", "workers", "servers", "breakers", "halts", "audit", "doctor",
        )
    }  # fmt: skip
    text = "\n".join(found.values())
    assert SECRET not in text
    assert json.loads(found["config.json"])["settings"]["source.main.password"]["value"] == "********"
    assert token.split("_", 2)[2] not in text
    assert "alice" not in text
    assert [(one["who"], one["verb"]) for one in json.loads(found["audit.json"])] == [
        ("caller-1", "token_new")
    ]
    assert json.loads(found["versions.json"])["pyiceberg"]
    assert json.loads(found["doctor.json"])[0]["part"]


def test_names_are_kept_if_asked_for_and_no_file_is_overwritten(run: Run, tmp_path: Path) -> None:
    run("init")
    run("token", "new", "--role", "viewer", "--name", "alice")
    document = run("support", "--with-names", "--json").json
    file = Path(document["file"])
    assert re.fullmatch(r"calve-support-\d{8}T\d{6}Z\.zip", file.name)
    assert json.loads(parts(file)["audit.json"])[0]["subject"] == "alice"
    run("support", "--output", file.name).is_error(2, f"cannot write {file.name}: File exists", "--output")
