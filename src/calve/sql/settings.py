"""Settings of an export, named as Altinity's ClickHouse names them: mapped to ours, or refused by name.

A setting is never ignored silently: one that has no meaning here is accepted only with the value that changes
nothing, and what Calve does in another way is refused with the way.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from calve.model.errors import UsageError
from calve.sql import codes

_PART, _PARTITION = "export_merge_tree_part_", "export_merge_tree_partition_"
PREFER_REMOTE = f"{_PARTITION}system_table_prefer_remote_information"


@dataclass(frozen=True, kw_only=True)
class ExportSettings:
    """What the settings of one ALTER ask for. `options` are those of the verb `export`."""

    options: Mapping[str, Any] = field(default_factory=dict)
    known: str = "skip"  # what is exported already: "skip", "throw_first" (names one), "collect" (names all)


def read(settings: Sequence[tuple[str, str]]) -> ExportSettings:
    """UsageError for a setting that is unknown, refused, or has another value than it may have."""
    options: dict[str, Any] = {}
    known = "skip"
    for name, value in settings:
        if reason := _ELSEWHERE.get(name):
            raise UsageError(f"setting {name} is not supported", code=codes.SETTING, hint=reason)
        if name in _NOTHING:
            if not _flag(name, value) and name != PREFER_REMOTE:
                raise codes.wrong(
                    f"setting {name} cannot be switched off here", code=codes.SETTING, hint="omit it"
                )
            continue
        if name not in _MAPPED:
            raise _unknown(name)
        found = _MAPPED[name](name, value)
        known = found.pop("known", known)
        if conflicting := [key for key in found if key in options and options[key] != found[key]]:
            raise codes.wrong(
                f"setting {name} says {conflicting[0]} = {found[conflicting[0]]}, and one before it says "
                f"{options[conflicting[0]]}",
                code=codes.SETTING,
            )
        options |= found
    return ExportSettings(options=options, known=known)


def _flag(name: str, value: str) -> bool:
    if value.lower() not in ("0", "1", "true", "false"):
        raise _bad(name, value, "0 or 1")
    return value.lower() in ("1", "true")


def _number(name: str, value: str) -> int:
    if not value.isdigit() or len(value) > 18:
        raise _bad(name, value, "a whole number from 0")
    return int(value)


def _choice(name: str, value: str, *choices: str) -> str:
    if value.lower() not in choices:
        raise _bad(name, value, " or ".join(f"'{one}'" for one in choices))
    return value.lower()


def _force(name: str, value: str) -> dict[str, Any]:
    return {"force": True} if _flag(name, value) else {}


def _existing(name: str, value: str) -> dict[str, Any]:
    match _choice(name, value, "skip", "error", "overwrite"):
        case "overwrite":
            return {"force": True}
        case "error":
            return {"known": "throw_first"}
    return {}


def _mutations(name: str, value: str) -> dict[str, Any]:
    return {"mutations": "refuse" if _flag(name, value) else "ignore"}


def _file_bytes(name: str, value: str) -> dict[str, Any]:
    size = _number(name, value)
    return {"file_mb": -(-size // (1 << 20))} if size else {}


def _on_error(name: str, value: str) -> dict[str, Any]:
    mode = _choice(name, value, "throw_first", "collect", "skip_conflicts")
    return {"known": "skip" if mode == "skip_conflicts" else mode}


def _codec(name: str, value: str) -> dict[str, Any]:
    mode = _choice(name, value, "zstd", "snappy", "gzip", "lz4", "brotli", "none")
    return {"codec": "uncompressed" if mode == "none" else mode}


_MAPPED: Mapping[str, Callable[[str, str], dict[str, Any]]] = {
    f"{_PARTITION}force_export": _force,
    f"{_PART}overwrite_file_if_exists": _force,
    f"{_PART}file_already_exists_policy": _existing,
    f"{_PART}throw_on_pending_mutations": _mutations,
    f"{_PART}throw_on_pending_patch_parts": _mutations,
    f"{_PART}max_bytes_per_file": _file_bytes,
    f"{_PARTITION}all_on_error": _on_error,
    "output_format_parquet_compression_method": _codec,
}
# On is how it is here; off cannot be had.
_NOTHING = frozenset(
    {
        "allow_experimental_export_merge_tree_part",
        "allow_experimental_export_merge_tree_partition",
        "allow_experimental_export_merge_tree_partition_feature",
        "enable_experimental_export_merge_tree_partition_feature",
        "allow_insert_into_iceberg",
        "allow_experimental_insert_into_iceberg",
        "write_full_path_in_iceberg_metadata",
        PREFER_REMOTE,
    }
)
_RETRIES = "retries belong to the worker: [limits] task_attempts, backoff_first_seconds, backoff_most_seconds"
_FILES = f"files are cut by size: {_PART}max_bytes_per_file"
_ELSEWHERE: Mapping[str, str] = {
    f"{_PARTITION}max_retries": _RETRIES,
    f"{_PARTITION}retry_initial_backoff_seconds": _RETRIES,
    f"{_PARTITION}retry_max_backoff_seconds": _RETRIES,
    f"{_PARTITION}task_timeout_seconds": "how long an export may take is [limits] process_hours",
    "export_merge_tree_task_timeout_seconds": "how long an export may take is [limits] process_hours",
    f"{_PARTITION}manifest_ttl": "what was exported is known for as long as the destination table lives; "
    f"to export it again: {_PARTITION}force_export = 1",
    f"{_PART}filename_pattern": "names of data files are fixed: they carry the process and the attempt",
    f"{_PART}schema_match_mode": "columns are matched by name; calve export --rename old=new",
    f"{_PART}ignore_extra_source_columns": "name the columns to leave out: calve export --exclude column",
    f"{_PART}allow_lossy_cast": "name the column: calve export --cast 'column=int lossy'",
    f"{_PART}max_rows_per_file": _FILES,
    "iceberg_insert_max_rows_in_data_file": _FILES,
    "iceberg_insert_max_bytes_in_data_file": _FILES,
    "iceberg_insert_max_partitions": "there is no such limit here",
    "output_format_parquet_row_group_size": "set write.parquet.row-group-size-bytes of the Iceberg table",
    "output_format_parquet_row_group_size_bytes": "set write.parquet.row-group-size-bytes of the Iceberg table",
}
KNOWN = frozenset((*_MAPPED, *_NOTHING, *_ELSEWHERE))


def _bad(name: str, value: str, meant: str) -> UsageError:
    return codes.wrong(f"invalid value {value!r} of setting {name}", code=codes.SETTING, hint=f"give {meant}")


def _unknown(name: str) -> UsageError:
    near = get_close_matches(name, KNOWN, n=1)
    return codes.wrong(
        f"unknown setting {name!r}",
        code=codes.SETTING,
        hint=f"did you mean {near[0]}?" if near else "docs/sql.md lists the settings of an export",
    )
