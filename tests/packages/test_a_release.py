"""What a release is made of: the same bytes from the same sources, nothing else in it, and every part named."""

import ast
import email
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import metadata
from pathlib import Path

import pytest

from support.installed import ROOT, Installed, outside

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NAMES_OF_IMPORTS = {"chdb": "chdb-core", "prometheus_client": "prometheus-client"}
BROUGHT_BY_OTHERS = {
    "botocore": "pyiceberg",
    "hive_metastore": "pyiceberg",
    "thrift": "pyiceberg",
    "py4j": "pyspark",
    "urllib3": "requests",
    "starlette": "fastapi",
    "markupsafe": "jinja2",
}
FOR_TESTS = {"hypothesis", "pytest"}  # of calve.testing: whoever uses that has them
BUILD = """
import os, sys
from hatchling.build import build_sdist, build_wheel
os.umask(int(sys.argv[2], 8))
print(build_sdist(sys.argv[1]), build_wheel(sys.argv[1]))
"""


def declared() -> set[str]:
    """Every package that `pyproject.toml` asks for."""
    asked = [
        *PROJECT["dependencies"],
        *(one for extra in PROJECT["optional-dependencies"].values() for one in extra),
    ]
    return {re.split(r"[\[<>=~ ]", one)[0] for one in asked}


def test_every_import_is_a_dependency_that_is_declared() -> None:
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Import():
                    names = [alias.name for alias in node.names]
                case ast.ImportFrom(level=0, module=str(module)):
                    names = [module]
                case _:
                    continue
            for name in {name.partition(".")[0] for name in names} - sys.stdlib_module_names - {"calve"}:
                if "testing" in path.parts and name in FOR_TESTS:
                    continue
                package = BROUGHT_BY_OTHERS.get(name) or NAMES_OF_IMPORTS.get(name, name)
                assert package in declared(), f"{path} imports {name}"


def test_the_notice_names_every_dependency_with_its_licence() -> None:
    said = dict(
        re.findall(r"^  ([\w-]+) {2,}(\S.*?)(?: {2,}.*)?$", (ROOT / "NOTICE").read_text(), re.MULTILINE)
    )
    assert declared() <= set(said)
    for package in declared():
        found = metadata(package)
        licence = found.get("License-Expression") or (found.get("License") or "").splitlines()[:1]
        classifiers = " ".join(one for one in found.get_all("Classifier") or [] if one.startswith("License"))
        first = re.split(r"[ ,]", said[package])[0]
        assert first in str(licence) or first.partition("-")[0] in classifiers.replace("Software", ""), (
            package
        )


def test_the_notice_names_every_jar_that_is_fetched() -> None:
    said = (ROOT / "NOTICE").read_text().split("Fetched when")[1]
    fetched = re.findall(r'artifact="([\w-]+)"', (ROOT / "src/calve/spark/java.py").read_text())
    assert len(fetched) >= 4
    for artifact in fetched:
        assert re.search(rf"^  {artifact}\b", said, re.MULTILINE), artifact


def test_two_builds_are_the_same_bytes_wherever_and_by_whomever_they_are_made(
    installed: Installed, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "another clone"
    elsewhere.mkdir()
    with tarfile.open(next(installed.distributions.glob("*.tar.gz"))) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    for name in set(names) - {"PKG-INFO"}:
        (elsewhere / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, elsewhere / name)  # with times and modes of its own
    built = subprocess.run(
        [sys.executable, "-c", BUILD, tmp_path, "077"],
        cwd=elsewhere,
        env=outside(),
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    for name in built.stdout.split():
        assert (tmp_path / name).read_bytes() == (installed.distributions / name).read_bytes()


def test_a_wheel_holds_the_package_its_licence_and_nothing_else(installed: Installed) -> None:
    with zipfile.ZipFile(installed.wheel) as wheel:
        names = wheel.namelist()
        [about] = [name for name in names if name.endswith("METADATA")]
        licences = {name.rpartition("/")[2] for name in names if "/licenses/" in name}
        described = email.message_from_bytes(wheel.read(about))
    assert {name.partition("/")[0] for name in names} == {"calve", about.partition("/")[0]}
    assert licences == {"LICENSE", "NOTICE"}
    assert set(described.get_all("Provides-Extra") or ()) == set(PROJECT["optional-dependencies"])


def test_the_list_of_parts_names_each_with_its_version_and_no_machine(installed: Installed) -> None:
    [path] = installed.distributions.glob("*.cdx.json")
    parts = json.loads(path.read_text())
    named = {(re.sub(r"[-_.]+", "-", part["name"]).lower(), part["version"]) for part in parts["components"]}
    listed = installed.run(["python", "-c", LISTED], installed.environment).stdout.split()
    assert {f"{name}=={version}" for name, version in named} | {f"calve=={PROJECT_VERSION}"} == set(listed)
    locked = set(
        re.findall(r"^([\w.-]+==[\w.]+)", (ROOT / "deploy" / "requirements.lock").read_text(), re.MULTILINE)
    )
    assert set(listed) - {f"calve=={PROJECT_VERSION}"} <= locked
    assert str(installed.environment) not in path.read_text()
    assert parts["metadata"]["component"]["name"] == "calve"


def test_its_checksums_are_those_of_its_files(installed: Installed) -> None:
    checked = subprocess.run(
        ["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=installed.distributions, capture_output=True
    )
    assert checked.returncode == 0
    assert len((installed.distributions / "SHA256SUMS").read_text().splitlines()) == 3


def test_what_is_installed_is_not_the_repository(installed: Installed, tmp_path: Path) -> None:
    where = installed.run(["python", "-c", "import calve; print(calve.__file__)"], tmp_path).stdout
    assert Path(where.strip()).is_relative_to(installed.environment)
    assert installed.run(["calve", "--version"], tmp_path).stdout.split()[-1] == PROJECT_VERSION


@pytest.mark.programs
def test_a_client_needs_requests_and_nothing_else(installed: Installed, tmp_path: Path) -> None:
    """`pip install requests` and `pip install --no-deps calve`, as docs/install.md says."""
    for command in (
        ["venv", "--quiet", "--python", sys.executable, tmp_path / "light"],
        [
            "pip",
            "install",
            "--quiet",
            "--python",
            tmp_path / "light",
            "--no-deps",
            "--require-hashes",
            "-r",
            tmp_path / "r",
        ],
        ["pip", "install", "--quiet", "--python", tmp_path / "light", "--no-deps", installed.wheel],
    ):
        (tmp_path / "r").write_text(_locked("requests", "urllib3", "idna", "certifi", "charset-normalizer"))
        subprocess.run([Path(sys.executable).with_name("uv"), *command], check=True)
    asked = subprocess.run(
        [tmp_path / "light" / "bin" / "python", "-c", ASKS], env=outside(), capture_output=True, text=True
    )
    assert asked.stderr == ""
    assert asked.stdout == "server http://127.0.0.1:9 does not answer: Connection refused\n" * 6


ABSENT = [
    ("serve", ["serve"], {}),
    ("postgres", ["ps"], {"CALVE_STORE__URL": "postgresql://h/calve"}),
    ("postgres", ["health", "sql.ns.t"], {}),
    ("glue", ["health", "glue.ns.t"], {}),
    ("hive", ["health", "hive.ns.t"], {}),
]
CATALOGS = """
[source.main]
url = "chdb://clickhouse"
[catalog.sql]
type = "sql"
uri = "postgresql://h/lake"
[catalog.glue]
type = "glue"
[catalog.hive]
type = "hive"
uri = "thrift://h:9083"
"""


@pytest.mark.long
@pytest.mark.spark
def test_T15_without_any_extra_the_demo_works_and_what_is_absent_is_named_with_its_command(
    installed: Installed, tmp_path: Path
) -> None:
    uv, bare = Path(sys.executable).with_name("uv"), tmp_path / "bare"
    locked = ROOT / "deploy" / "requirements.lock"
    for command in (
        ["venv", "--quiet", "--python", sys.executable, bare],
        ["pip", "install", "--quiet", "--python", bare, "--constraint", locked, installed.wheel],
    ):
        subprocess.run([uv, *command], env=outside() | {"UV_SYSTEM_CERTS": "1"}, check=True)
    found = {path.name.partition("-")[0] for path in bare.glob("lib/python*/site-packages/*.dist-info")}
    assert not {"fastapi", "uvicorn", "jinja2", "psycopg", "boto3", "thrift"} & {one.lower() for one in found}
    (tmp_path / "home").mkdir()
    (tmp_path / "calve.toml").write_text(CATALOGS)

    def calve(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [bare / "bin" / "calve", *arguments], cwd=tmp_path, timeout=280, capture_output=True, text=True,
            env=outside() | {"HOME": str(tmp_path / "home")} | settings,
        )  # fmt: skip

    assert "demo" in calve("--help").stdout
    for extra, arguments, settings in ABSENT:
        answer = calve(*arguments, **settings)
        assert answer.returncode == 2, answer.stderr
        assert answer.stderr.endswith(f"hint: pip install 'calve[{extra}]'\n"), answer.stderr
    demo = calve("demo", "--rows", "1000", "--dir", str(tmp_path / "demo"))
    assert demo.returncode == 0, demo.stderr


def _locked(*packages: str) -> str:
    text = (ROOT / "deploy" / "requirements.lock").read_text()
    return "".join(
        found[0]
        for package in packages
        if (found := re.search(rf"^{package}==.*?(?=^\S)", text, re.MULTILINE | re.DOTALL))
    )


PROJECT_VERSION = re.findall(r'__version__ = "(.+)"', (ROOT / "src" / "calve" / "__init__.py").read_text())[0]
LISTED = """
import re
from importlib.metadata import distributions
for one in distributions():
    print(re.sub("[-_.]+", "-", one.name).lower() + "==" + one.version)
"""
ASKS = """
from calve import CalveError, Client
client = Client("http://127.0.0.1:9", "a-token")
for ask in (
    lambda: client.export("db.t", "lake.ns.t", partitions=["1"]),
    lambda: client.wait("x"),
    lambda: client.verify("x"),
    lambda: client.partitions("db.t", "lake.ns.t"),
    lambda: client.backup("nightly", ["db.*"]),
    lambda: client.optimize("lake.ns.t"),
):
    try:
        ask()
    except CalveError as error:
        print(error)
"""
