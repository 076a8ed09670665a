"""The JSON of backups. Scripts rely on it: add keys, at the end."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from calve.app.backups.requests import BackupEntry, Pruned
    from calve.backup.deletion import Deleted
    from calve.backup.verification import Verified
    from calve.restore.preview import RestorePreview

Json = dict[str, Any]


CONTENTS = 50  # backups whose partitions are listed
_MOST_PARTITIONS = 5000  # of one backup


def backups_json(location: str, found: Sequence["BackupEntry"], *, contents: bool = False) -> Json:
    """All backups of a location; `calve backup list --json` prints `backups`."""
    places: dict[str, int] = {}
    for one in found:
        if one.manifest:
            places |= {place: part.bytes for place, part in one.manifest.places.items()}
    return {
        "location": location,
        "backups": [
            backup_json(one) | ({"contents": _contents(one) if at < CONTENTS else None} if contents else {})
            for at, one in sorted(enumerate(reversed(found)), reverse=True)
        ],
        "stored_bytes": sum(places.values()),  # shared parts once
        "without_key": [one.name for one in found if one.lacks_key],  # the key is not configured
    }


def backup_json(entry: "BackupEntry") -> Json:
    manifest = entry.manifest
    if manifest is None:
        return {"name": entry.name, "error": entry.error, "hint": entry.hint}
    return {
        "name": manifest.name,
        "created_at": manifest.created_at,
        "source": manifest.source,
        "process": manifest.process_id,
        "tables": len(manifest.tables),
        "parts": manifest.parts,
        "rows": manifest.rows,
        "bytes": manifest.bytes,
        "own_bytes": entry.own_bytes,
        "moved_bytes": manifest.moved_bytes,
        "skipped": [{"table": table, "reason": why} for table, why in manifest.skipped],
        "error": None,
        "rbac": manifest.rbac,
        "left_out": [{"what": one.what, "why": one.why} for one in entry.left_out],
    }


def _contents(entry: "BackupEntry") -> dict[str, list[str]] | None:
    """Partition ids by table; None if they are too many, or not known."""
    if entry.manifest is None:
        return None
    made = {
        f"{table.database}.{table.name}": sorted({part.partition_id for part in table.parts})
        for table in entry.manifest.tables
    }
    return made if sum(map(len, made.values())) <= _MOST_PARTITIONS else None


def backup_detail_json(entry: "BackupEntry") -> Json:
    manifest = entry.manifest
    assert manifest is not None
    return backup_json(entry) | {
        "tables": [
            {
                "table": f"{table.database}.{table.name}",
                "engine": table.engine,
                "rows": table.rows,
                "bytes": table.bytes,
                "partitions": sorted({part.partition_id for part in table.parts}),
                "parts": [
                    {
                        "name": part.name,
                        "partition": part.partition_id,
                        "rows": part.rows_seen,
                        "bytes": part.bytes,
                        "place": part.place,
                    }
                    for part in table.parts
                ],
                "create": table.create,
            }
            for table in manifest.tables
        ],
        "schemas": [
            {"name": f"{one.database}.{one.name}", "engine": one.engine, "create": one.create}
            for one in manifest.schemas
        ],
        "functions": dict(manifest.functions),
        "access": [one.title for one in manifest.access],
    }


def restore_preview_json(found: "RestorePreview") -> Json:
    request = found.request
    return {
        "backup": request.backup,
        "process": request.backup_process,
        "source": request.source,
        "existing": request.existing,
        "schema": request.schema,
        "data": request.data,
        "partitions": list(request.partitions),
        "tables": [
            {
                "table": one.origin,
                "target": one.target,
                "engine": one.engine,
                "exists": one.exists and not one.ours,
                "goes_on": one.ours,
                "rows": one.rows,
                "bytes": one.bytes,
                "parts": one.parts,
                "create": one.create,
                "refused": one.refused.to_json() if one.refused else None,
            }
            for one in found.tables
        ],
        "rows": sum(one.rows for one in found.tables),
        "bytes": sum(one.bytes for one in found.tables),
        "left_out": [{"what": one.what, "why": one.why} for one in found.left_out],
        "plan_hash": found.plan_hash,
    }


def verified_json(found: "Verified") -> Json:
    return {
        "name": found.name,
        "whole": found.whole,
        "parts": found.parts,
        "objects": found.objects,
        "bytes": found.bytes,
        "read_bytes": found.read_bytes,
        "flaws": [
            {
                "object": flaw.problem.object,
                "what": flaw.problem.what,
                "tables": list(flaw.tables),
                "part": flaw.part,
            }
            for flaw in found.flaws
        ],
    }


def deleted_json(one: "Deleted") -> Json:
    return dict(vars(one))


def pruned_json(found: "Pruned", *, dry_run: bool) -> Json:
    return {
        "kept": list(found.kept),
        "deleted": [deleted_json(one) for one in found.deleted],
        "unreadable": list(found.unreadable),
        "dry_run": dry_run,
    }
