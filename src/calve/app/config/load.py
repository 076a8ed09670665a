"""Find `calve.toml`, lay the environment over it, check it, and make it absolute."""

import difflib
import os
import re
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from calve.app.arguments import span
from calve.app.config import tree, values
from calve.app.config.sections import (
    NAMED_SECTIONS,
    PLAIN_SECTIONS,
    ExpectSection,
    PolicySection,
    Root,
    ScheduleSection,
    Section,
    policy_of,
    schedule_of,
)
from calve.app.config.tree import Key, Leaf, Leaves, document_of, dotted, leaves_of
from calve.app.config.values import (
    CONFIG_NAME,
    DEFAULT_ORIGIN,
    Config,
    Expectation,
    LogConfig,
    MetricsConfig,
    OptimizeConfig,
    ServeConfig,
    Setting,
    SourceConfig,
    SparkConfig,
)
from calve.export.choices import Choices
from calve.model.errors import UsageError
from calve.model.limits import Limits
from calve.policy.policy import Policy
from calve.policy.schedule import Schedule

# Sections of which there may be many, each with a name like this one.
_NAMED = {
    "source": "main",
    "catalog": "lake",
    "storage": '"s3://bucket"',
    "notify": "ops",
    "ping": "nightly",
    "policy": "events",
}

_BACKUP_TAKES = timedelta(hours=2)  # before one that began in time is missed

_TARGET_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def load_config(
    path: str | Path | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Config:
    """The configuration of this command: `path`, else `CALVE_CONFIG`, else the working folder's.

    With no file at all, settings may come from the environment alone.
    """
    environ = os.environ if environ is None else environ
    cwd = cwd or Path.cwd()
    file = _find(path, environ, cwd)
    folder = file.parent if file else cwd
    in_file = leaves_of(_parse(file), f"file {file.name}") if file else {}
    in_environment = tree.leaves_from(environ, in_file)
    if file is None and not in_environment:
        raise UsageError(
            f"no {CONFIG_NAME} in {cwd}",
            code="no_config",
            hint="`calve init` writes one here; --config or CALVE_CONFIG names one elsewhere",
        )
    leaves = tree.read_files(in_file | in_environment, folder)
    placed = _made_absolute(_as_text(leaves), folder)
    return _config(_check(placed), placed, file, folder)


def _find(path: str | Path | None, environ: Mapping[str, str], cwd: Path) -> Path | None:
    named = str(path or "") or environ.get("CALVE_CONFIG", "")
    if not named:
        here = cwd / CONFIG_NAME
        return here if here.is_file() else None
    file = values.absolute(named, cwd)
    if file.is_dir():
        file = file / CONFIG_NAME
    if not file.is_file():
        raise UsageError(
            f"no configuration file {file}",
            code="no_config",
            hint=f"`calve init {file.parent}` writes a {CONFIG_NAME} there",
        )
    return file


def _parse(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(
            f"{file} is not TOML: {error}",
            code="config_syntax",
            hint="strings need quotes; `calve init` in an empty folder shows an example",
        ) from error
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{file} is not UTF-8: {error.reason}", code="config_syntax", hint="save it as UTF-8"
        ) from error
    except OSError as error:
        raise UsageError(
            f"cannot read {file}: {error.strerror}", code="config_unreadable", hint=f"ls -l {file}"
        ) from error


def _as_text(leaves: Leaves) -> Leaves:
    """PyIceberg and Spark take text."""

    def text(value: Any) -> Any:
        if isinstance(value, bool):
            return "true" if value else "false"
        return str(value) if isinstance(value, (int, float)) else value

    return {
        key: Leaf(value=text(leaf.value), origin=leaf.origin)
        if key[0] == "catalog" or key[:2] == ("spark", "conf")
        else leaf
        for key, leaf in leaves.items()
    }


def _made_absolute(leaves: Leaves, folder: Path) -> Leaves:
    return {
        key: leaf
        if key[::2] == ("catalog", "warehouse") and _names_its_warehouse(key[1:2], leaves)
        else Leaf(value=_place(key, leaf.value, folder), origin=leaf.origin)
        for key, leaf in leaves.items()
    }


def _names_its_warehouse(catalog: Key, leaves: Leaves) -> bool:
    """A REST catalog's `warehouse` is a name that its server knows, not a place."""

    def given(name: str) -> str:
        leaf = leaves.get(("catalog", *catalog, name))
        return str(leaf.value).lower() if leaf else ""

    return given("type") == "rest" or (not given("type") and given("uri").startswith("http"))


def _place(key: Key, value: Any, folder: Path) -> Any:
    if not isinstance(value, str):
        return value
    match key:
        case ("source", _, "url"):
            return values.source_url(value, folder)
        case (
            "source" | "storage" | "catalog" | "notify" | "ping",
            _,
            "ca_file" | "ca-file" | "s3.ca-file",
        ) if value:
            return str(values.absolute(value, folder))
        case ("source", _, "engine_config") if value:
            return str(values.absolute(value, folder))
        case ("source", _, "disks", _) if "://" not in value:
            return str(values.absolute(value, folder))
        case ("store", "url") | ("catalog", _, "uri"):
            return values.database_url(value, folder)
        case ("catalog", _, "warehouse" | "calve.receipts"):
            return values.location(value, folder)
        case ("backup", "url"):
            return values.location(value, folder)
    return value


def _check(leaves: Leaves) -> Root:
    try:
        root = Root.model_validate(document_of(leaves))
    except ValidationError as error:
        # A misspelt key is reported before the one that is missing because of it.
        found = error.errors(include_url=False)
        first = next((item for item in found if item["type"] == "extra_forbidden"), found[0])
        key = tuple(str(name) for name in first["loc"])
        raise _bad(key, first["type"], first["msg"], leaves) from error
    for name in root.storage:
        if "://" not in name:  # no place lies in it, so nobody would ever use its keys
            raise UsageError(
                f"{dotted(('storage', name))} is not a URL",
                code="config_bad_value",
                hint=f'name it by its URL: [storage."s3://{name}"]',
            )
    named: dict[Key, Collection[str]] = {
        ("notify",): root.notify, ("ping",): root.ping, ("policy",): root.policy,
        ("backup", "schedule"): root.backup.schedule,
    }  # fmt: skip
    for section, names in named.items():
        for name in names:
            if not _TARGET_NAME.fullmatch(name):  # it is in the ids of notices and the names of backups
                raise UsageError(
                    f"invalid name {dotted((*section, name))}",
                    code="config_bad_value",
                    hint="use letters, digits, _ and -, at most 64",
                )
    return root


def _bad(key: Key, kind: str, message: str, given: Leaves) -> UsageError:
    origin = next((leaf.origin for at, leaf in given.items() if at[: len(key)] == key), "")
    where = f" ({origin})" if origin else ""
    if kind == "extra_forbidden":
        near = difflib.get_close_matches(key[-1], known_names(key[:-1]), n=1)
        meant = f"did you mean {dotted((*key[:-1], near[0]))}? " if near else ""
        return UsageError(
            f"unknown key {dotted(key)}{where}",
            code="config_unknown_key",
            hint=f"{meant}`calve init` in an empty folder shows every key",
        )
    if len(key) == 2 and key[0] in _NAMED and kind in ("model_type", "dict_type"):
        return UsageError(
            f"{dotted(key)}{where} is outside a section: each {key[0]} has a name",
            code="config_bad_value",
            hint=f"put it below [{key[0]}.{_NAMED[key[0]]}]",
        )
    if kind == "missing":
        return UsageError(
            f"{dotted(key)} is missing", code="config_missing", hint=f"give {key[-1]} in [{dotted(key[:-1])}]"
        )
    message, _, hint = message.removeprefix("Value error, ").partition("\n")
    return UsageError(
        f"{dotted(key)}{where}: {message[:1].lower()}{message[1:]}",
        code="config_bad_value",
        hint=hint or "`calve init` in an empty folder shows each key and its type",
    )


def known_names(above: Key) -> list[str]:
    """The names that may stand there."""
    if not above:
        return list(Root.model_fields)
    known: dict[str, type[Section] | None] = {**NAMED_SECTIONS, **PLAIN_SECTIONS}
    section: type[BaseModel] | None = known.get(".".join(above[:2])) or known.get(above[0])
    return list(section.model_fields) if section else []


def _policy(name: str, section: PolicySection, sources: Collection[str]) -> Policy:
    made = policy_of(name, section)
    _check_source(("policy", name, "source"), made.source, sources)
    return made


def _schedule(name: str, section: ScheduleSection, root: Root, location: str) -> Schedule:
    made = schedule_of(name, section, source=next(iter(root.source), ""), seed=location)
    _check_source(("backup", "schedule", name, "source"), made.source, root.source)
    return made


def _check_source(key: Key, source: str, sources: Collection[str]) -> None:
    if source and source not in sources:
        raise UsageError(
            f"{dotted(key)}: source {source!r} is not configured (configured: {', '.join(sources) or 'none'})",
            code="source_not_configured",
            hint=f"add [source.{source}], or name one that is configured",
        )


def _config(root: Root, leaves: Leaves, file: Path | None, folder: Path) -> Config:
    limits = Limits(**{item.name: getattr(root.limits, item.name) for item in fields(Limits)})
    location = values.location(root.backup.url, folder)
    schedules = tuple(_schedule(name, one, root, location) for name, one in root.backup.schedule.items())
    return Config(
        file=file,
        folder=folder,
        sources={
            name: SourceConfig(name=name, **section.model_dump()) for name, section in root.source.items()
        },
        catalogs=root.catalog,
        storages={
            prefix: {name: str(value) for name, value in section.model_dump().items()}
            for prefix, section in root.storage.items()
        },
        store_url=values.database_url(root.store.url, folder),
        backup_url=location,
        schedules=schedules,
        backup_hard_links=root.backup.hard_links,
        backup_signing_key=root.backup.signing_key,
        backup_encryption_key=root.backup.encryption_key,
        backup_compression=root.backup.compression,
        backup_compression_level=root.backup.compression_level,
        spark=SparkConfig(**root.spark.model_dump()),
        choices=Choices(**root.types.model_dump()),
        limits=limits,
        optimize=OptimizeConfig(**root.optimize.model_dump() | {"tables": tuple(root.optimize.tables)}),
        serve=ServeConfig(**root.serve.model_dump() | {"hosts": tuple(root.serve.hosts)}),
        metrics=MetricsConfig(**root.metrics.model_dump()),
        expect=(
            *(_expectation(name, section) for name, section in root.expect.items()),
            *map(_expected_of, schedules),
        ),
        policies=tuple(_policy(name, section, root.source) for name, section in root.policy.items()),
        log=LogConfig(**root.log.model_dump()),
        secrets=tree.secrets(leaves),
        notify={name: section.model_dump() for name, section in root.notify.items()},
        pings={name: section.model_dump() for name, section in root.ping.items()},
        settings=tuple(_settings(root, leaves, folder)),
    )


def _expectation(name: str, section: ExpectSection) -> Expectation:
    proven = section.proven_within
    return Expectation(
        name=name,
        kind=section.kind,
        table=section.table,
        to=section.to,
        within=span(section.within, units="mhdw"),
        proven_within=span(proven, units="mhdw") if proven else None,
    )


def _expected_of(schedule: Schedule) -> Expectation:
    """A schedule says by itself how often there is a backup."""
    return Expectation(
        name=schedule.subject,
        kind="backup",
        table=f"{schedule.source}:{','.join(schedule.tables)}",
        within=schedule.longest_gap + _BACKUP_TAKES,
    )


def _settings(root: Root, leaves: Leaves, folder: Path) -> list[Setting]:
    found: list[Setting] = []
    for key, value in _values((), root.model_dump()):
        given = leaves.get(key)
        effective = value if given else _place(key, value, folder)
        origin = given.origin if given else DEFAULT_ORIGIN
        found.append(Setting(key=dotted(key), shown=tree.shown(key, effective), origin=origin))
    return found


def _values(above: Key, value: Any) -> list[tuple[Key, Any]]:
    if not isinstance(value, dict) or (len(above) == 3 and above[0] == "catalog"):
        return [(above, value)]
    return [item for name, below in value.items() for item in _values((*above, name), below)]
