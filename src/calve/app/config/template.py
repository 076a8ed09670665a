"""The `calve.toml` that `calve init` writes: embedded defaults, every key explained.

Made of `sections`, so that it cannot drift from what the program reads. What is commented
out shows the default.
"""

import json
import os
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo

from calve.app.config.sections import (
    BackupSection,
    ExpectSection,
    LimitsSection,
    LogSection,
    MetricsSection,
    NotifySection,
    OptimizeSection,
    PingSection,
    PolicySection,
    ScheduleSection,
    Section,
    ServeSection,
    SourceSection,
    SparkSection,
    StorageSection,
    StoreSection,
    TypesSection,
)
from calve.app.config.values import CONFIG_NAME
from calve.model.errors import UsageError

HEAD = """\
# Calve's configuration. Relative paths are relative to this file. A line that is commented out
# shows its default. Every key has an environment form: store.url is CALVE_STORE__URL,
# source.main.url is CALVE_SOURCE__MAIN__URL. A secret may be given as a file that holds it:
# password_file = "…". `calve config` shows each value and where it came from.
"""

CATALOG = """\
# An Iceberg catalog; add more as [catalog.<name>]. The keys are PyIceberg's own, passed on unchanged.
[catalog.lake]
type = "sql"                             # sql, rest, glue, hive
uri = "sqlite:///lake/catalog.db"        # or postgresql+psycopg://…, or the address of a REST catalog
warehouse = "lake/warehouse"             # where tables are created: a folder, or s3://bucket/prefix
# "s3.endpoint" = "http://127.0.0.1:8333"
# "s3.access-key-id" = "…"
# "s3.secret-access-key_file" = "…"
"""

_EXAMPLES = {"disks": "{ default = '/var/lib/clickhouse' }"}


def render() -> str:
    """The text of the file."""
    return "\n".join(
        (
            HEAD,
            "# A ClickHouse source; add more as [source.<name>]. The first one is the default.",
            _section("source.main", SourceSection, given={"url": "chdb://clickhouse"}),
            CATALOG,
            _section('storage."s3://bucket"', StorageSection, given={}, commented=True),
            _section("store", StoreSection, given={"url": "sqlite:///calve.db"}),
            _section("backup", BackupSection, given={}, leave_out=frozenset({"schedule"})),
            _section(
                "backup.schedule.nightly",
                ScheduleSection,
                given={"tables": ["db.*"], "keep_daily": 14, "verify": "5%", "drill": "7d"},
                commented=True,
            ),
            _section("spark", SparkSection, given={"master": "local[*]"}, leave_out=frozenset({"conf"})),
            "[spark.conf]                             # passed to Spark unchanged\n"
            '# "spark.driver.memory" = "1g"\n'
            '# "spark.pyspark.python" = "/opt/calve/bin/python"   # of the executors, with Calve installed\n',
            _section("types", TypesSection, given={}),
            _section("optimize", OptimizeSection, given={}),
            _section("serve", ServeSection, given={}),
            _section("metrics", MetricsSection, given={}),
            _section("expect.events", ExpectSection, given={"table": "main:db.events"}, commented=True),
            _section(
                "policy.events",
                PolicySection,
                given={"source": "main:db.events", "to": "lake.ns.events"},
                commented=True,
            ),
            _section("log", LogSection, given={}),
            _section("notify.ops", NotifySection, given={"url": "https://example.com/hook"}, commented=True),
            _section(
                "ping.nightly", PingSection, given={"success": "https://example.com/ping"}, commented=True
            ),
            _section("limits", LimitsSection, given={}),
        )
    )


def _section(
    title: str,
    section: type[Section],
    *,
    given: dict[str, Any],
    commented: bool = False,
    leave_out: frozenset[str] = frozenset(),
) -> str:
    words = (section.__doc__ or "").splitlines()[0]
    mark = "# " if commented else ""
    lines = [f"{mark + f'[{title}]':<40} # {words}"]
    for name, info in section.model_fields.items():
        if name in leave_out:
            continue
        value = given.get(name, info.default)
        text = _EXAMPLES.get(name) or toml_value(value)
        shown = f"{name} = {text}" if name in given and not commented else f"# {name} = {text}"
        lines.append(f"{shown:<40} # {_why(info)}")
    return "\n".join(lines) + "\n"


def _why(info: FieldInfo) -> str:
    return info.description or ""


def toml_value(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return "{}" if value == {} else json.dumps(value)


def write_private(file: Path, text: str, *, exclusive: bool = False) -> None:
    """For its owner alone: it may come to hold a password."""
    flags = os.O_WRONLY | os.O_CREAT | (os.O_EXCL if exclusive else os.O_TRUNC)
    with os.fdopen(os.open(file, flags, 0o600), "w", encoding="utf-8") as opened:
        opened.write(text)


def write(folder: Path) -> Path:
    """Write the file into a folder, which is created; an existing file is never overwritten."""
    file = folder / CONFIG_NAME
    try:
        # If we die here, an empty folder is left, or a whole file: it is small enough for one write.
        folder.mkdir(parents=True, exist_ok=True)
        write_private(file, render(), exclusive=True)
    except FileExistsError as error:
        if not folder.is_dir():
            raise UsageError(
                f"{folder} is a file, not a folder",
                code="not_a_folder",
                hint="give a folder: calve init DIR",
            ) from error
        raise UsageError(
            f"{file} already exists",
            code="config_exists",
            hint=f"show it with `calve config --config {file}`, or use another folder: calve init DIR",
        ) from error
    except OSError as error:
        raise UsageError(
            f"cannot write {file}: {error.strerror}",
            code="folder_not_writable",
            hint=f"give a folder that you may write to: calve init DIR (ls -ld {folder})",
        ) from error
    return file
