"""The demo of somebody who has no Java runtime: one line says how to get one, and nothing is left behind."""

from pathlib import Path

import pytest

from calve.spark import java
from support.calve_command import Run


@pytest.mark.parametrize(
    ("manager", "line"),
    [
        ("apt-get", "apt-get install openjdk-17-jre-headless"),
        ("dnf", "dnf install java-17-openjdk-headless"),
        (None, "apt-get install openjdk-17-jre-headless"),
    ],
)
def test_it_says_how_to_get_one_and_makes_nothing(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, manager: str | None, line: str
) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    if manager:
        (programs / manager).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setattr(java, "_candidates", lambda: iter(()))
    answer = run("demo", "--dir", "there")
    assert answer.code == 2
    assert answer.err.splitlines() == [
        "error: no Java runtime 17 or newer",
        f"hint: {line}, or set JAVA_HOME to a Java runtime of 17 or newer",
    ]
    assert not (tmp_path / "there").exists()
