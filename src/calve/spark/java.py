"""The Java runtime that Spark uses, and how to get one.

Jars that some work needs beside Spark's own: pinned by checksum, fetched once, cached.
"""

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from calve.model.errors import PermanentError, UnavailableError, UsageError

OLDEST = 17
INSTALL = {
    "apt-get": "apt-get install openjdk-17-jre-headless",
    "dnf": "dnf install java-17-openjdk-headless",
    "zypper": "zypper install java-17-openjdk-headless",
    "pacman": "pacman -S jre17-openjdk-headless",
    "brew": "brew install openjdk@17",
}


def java_home() -> Path:
    """The first runtime of at least version 17: JAVA_HOME, then PATH, then the usual folders."""
    seen: list[str] = []
    for home in _candidates():
        version = _version(home)
        if version is not None and version >= OLDEST:
            return home
        seen.append(f"{home} ({'unusable' if version is None else version})")
    found = f"; found only {', '.join(seen)}" if seen else ""
    raise UsageError(f"no Java runtime {OLDEST} or newer{found}", code="java_missing", hint=_how_to_install())


def _how_to_install() -> str:
    """One line, for the package manager that there is."""
    manager = next((name for name in INSTALL if shutil.which(name)), "apt-get")
    return f"{INSTALL[manager]}, or set JAVA_HOME to a Java runtime of {OLDEST} or newer"


def java_version() -> int | None:
    """Of the runtime that Spark would use; None if there is none."""
    try:
        return _version(java_home())
    except UsageError:
        return None


def _candidates() -> Iterator[Path]:
    if configured := os.environ.get("JAVA_HOME"):
        yield Path(configured)
    if on_path := shutil.which("java"):
        yield Path(on_path).resolve().parent.parent
    yield from sorted(Path("/usr/lib/jvm").glob("*"))


def _version(home: Path) -> int | None:
    java = home / "bin" / "java"
    if not java.exists():
        return None
    try:
        # Most runtimes say it in a file, which spares starting one.
        if match := re.search(r'^JAVA_VERSION="(\d+)', (home / "release").read_text(), re.MULTILINE):
            return int(match.group(1))
    except (OSError, UnicodeDecodeError):
        pass
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(\d+)', answer.stderr)
    return int(match.group(1)) if match else None


class ClassArchive:
    """Spark's classes as the JVM has them in memory, in the cache folder: a JVM that maps them starts with
    half the CPU. The first JVM of an installation writes them when it ends. The JVM checks that they are of
    its own version and class path, and goes on without them if not."""

    def __init__(self) -> None:
        self._written: Path | None = None
        self._archive = Path()

    def options(self, home: str) -> list[str]:
        """Options for a JVM of that runtime."""
        self._archive = class_archive(home)
        if " " in str(self._archive):
            return []  # Spark would take it for two options
        if self._archive.exists():
            return mapped(self._archive)
        try:
            self._archive.parent.mkdir(parents=True, exist_ok=True)
        except OSError:
            return []
        # If we die here, or the JVM does, a file with our process's number is left in the cache folder.
        self._written = self._archive.with_suffix(f".{os.getpid()}")
        return [f"-XX:ArchiveClassesAtExit={self._written}"]

    def keep(self, *, whole: bool) -> None:
        """The JVM has ended: what it wrote is for the next one, unless it was killed while writing."""
        if self._written is not None and whole and self._written.exists():
            self._written.replace(self._archive)
        elif self._written is not None:
            self._written.unlink(missing_ok=True)
        self._written = None


def mapped(archive: Path) -> list[str]:
    """Options of a JVM that maps an archive. One that does not fit is passed over without a word, which would
    be on stdout."""
    return [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds*=off"]


def class_archive(home: str) -> Path:
    """Where the classes are of that runtime and the PySpark installed: another one has other files."""
    import pyspark

    jars = Path(pyspark.__file__).parent / "jars"
    made = jars.stat().st_mtime_ns if jars.is_dir() else 0
    of = hashlib.sha256(f"{home} {jars} {pyspark.__version__} {made}".encode()).hexdigest()[:12]
    return cache_folder() / f"spark-classes-{of}.jsa"


FETCH_SECONDS = 600


@dataclass(frozen=True, kw_only=True)
class Jar:
    """A Maven coordinate and the SHA-256 of the file it must be."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file_name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"


ICEBERG_RUNTIME = "iceberg-spark-runtime-"
# By Spark's minor version, for the Scala that PySpark of that version comes with.
_ICEBERG_OF = {
    "3.5": ("3.5_2.12", "94b8e36fc329f0293d44ba9e01b784a56e9501affec1842d898144c51f6e486a"),
    "4.0": ("4.0_2.13", "63c3b812549dc232c1920865ff42436df8604a9bbacd693930985c06bd97e6dc"),
    "4.1": ("4.1_2.13", "d6ea6c5d099288daeb7d5a92061bd3d7d8f296492632b42378e5f2f0e3066242"),
}


def _iceberg_of(spark: str) -> Jar:
    built_for, sha256 = _ICEBERG_OF[spark]
    return Jar(
        group="org.apache.iceberg", artifact=f"{ICEBERG_RUNTIME}{built_for}", version="1.11.0", sha256=sha256
    )


def iceberg_spark() -> Jar:
    """Iceberg's runtime for the PySpark that is here."""
    import pyspark

    minor = ".".join(pyspark.__version__.split(".")[:2])
    if minor not in _ICEBERG_OF:
        raise UsageError(
            f"Spark {pyspark.__version__} has no Iceberg runtime that Calve was tried with",
            code="spark_version",
            hint=f"use Spark {', '.join(_ICEBERG_OF)}",
        )
    return _iceberg_of(minor)


ICEBERG_SPARK = _iceberg_of("4.1")  # of the PySpark in our lock
SQLITE_JDBC = Jar(
    group="org.xerial",
    artifact="sqlite-jdbc",
    version="3.50.3.0",
    sha256="a3f53a2aa15ae9425a9e793bbe9c8e5288febeb4b65ef5c1a4e80d4c2045cf08",
)
POSTGRES_JDBC = Jar(
    group="org.postgresql",
    artifact="postgresql",
    version="42.7.8",
    sha256="2a32a9dcbc42d67a50ad3a0de5efd102c8d2be46720045f2cbd6689f160ab7c7",
)
ICEBERG_AWS = Jar(
    group="org.apache.iceberg",
    artifact="iceberg-aws-bundle",
    version="1.11.0",
    sha256="38f01da7e96850cdd05e6616d758b77b43314b712a8808e3f9a824d56976162f",
)
ICEBERG_GCP = Jar(
    group="org.apache.iceberg",
    artifact="iceberg-gcp-bundle",
    version="1.11.0",
    sha256="d9248fc76d94d232e153bf760631229cd3b7c6bc3b20f47d4b2caffe011a8a2f",
)
# Azure's classes and none of Iceberg's own, which are in its runtime: the newest bundle that could be had and was tried with it.
ICEBERG_AZURE = Jar(
    group="org.apache.iceberg",
    artifact="iceberg-azure-bundle",
    version="1.10.0",
    sha256="f143be94b94bb380e76d1c45ee9a63e143f4a7f813c6aa1ed72f5bfd44f52d05",
)


def cache_folder() -> Path:
    """`CALVE_CACHE`, else the user's cache folder."""
    if configured := os.environ.get("CALVE_CACHE"):
        return Path(configured) / "jars"
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "calve" / "jars"


def cached(jar: Jar) -> Path | None:
    """The jar, if it is here already."""
    path = cache_folder() / jar.file_name
    return path if path.is_file() else None


def resolve(jar: Jar) -> Path:
    """The jar's file, fetched if it is not cached. Several programs may do this at once: each
    fetches into a folder of its own and the rename is atomic."""
    return cached(jar) or _fetch(jar)


def _fetch(jar: Jar) -> Path:
    target = cache_folder() / jar.file_name
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetch-") as folder:
        _run_ivy(jar, Path(folder))
        fetched = Path(folder) / jar.file_name
        digest = hashlib.sha256(fetched.read_bytes()).hexdigest()
        if digest != jar.sha256:
            raise PermanentError(
                f"{jar.file_name} has checksum {digest}, not the pinned {jar.sha256}",
                code="jar_checksum",
                hint="the package registry sent another file: check its mirror or proxy",
            )
        fetched.rename(target)
    return target


def _run_ivy(jar: Jar, folder: Path) -> None:
    command = [
        str(java_home() / "bin" / "java"), "-jar", str(_ivy()),
        "-cache", str(folder / "ivy"), "-notransitive", "-confs", "default",
        "-dependency", jar.group, jar.artifact, jar.version,
        "-retrieve", str(folder / "[artifact]-[revision].[ext]"),
    ]  # fmt: skip
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        answer = None
    if answer is None or not (folder / jar.file_name).exists():
        raise UnavailableError(
            f"{jar.group}:{jar.artifact}:{jar.version} cannot be fetched",
            code="jar_unavailable",
            hint=f"put {jar.file_name} into {cache_folder()}, or retry with network access",
            service="maven",
        )


def _ivy() -> Path:
    """Spark's own. Below `spark-submit` the package that is imported is an archive, and SPARK_HOME has the jars."""
    import pyspark

    homes = [Path(home) for home in (os.environ.get("SPARK_HOME"), Path(pyspark.__file__).parent) if home]
    for home in homes:
        for found in (home / "jars").glob("ivy-*.jar"):
            return found
    raise UnavailableError(
        f"there is no Ivy among Spark's jars ({', '.join(str(home / 'jars') for home in homes)}), which fetches others",
        code="jar_unavailable",
        hint=f"put what is missing into {cache_folder()}: `calve doctor` names it",
        service="maven",
    )
