"""What a restore would make, from the very look that a real one goes on with. Changes nothing.

Its hash is of everything that decides what is restored: the backup, the statements, and what stands at the target.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from calve.archive import backups
from calve.archive.left_out import LeftOut, left_out
from calve.archive.location import Key
from calve.archive.ports import BackupPorts
from calve.control.ports import Store
from calve.model.errors import CalveError, ErrorInfo, RefusedError
from calve.restore.plan import RestoreRequest
from calve.restore.schema import Creation, There, look, refuse_existing
from calve.restore.submit import seed_of

_PLAN = "r1-"


@dataclass(frozen=True, kw_only=True)
class PreviewedTable:
    """One object. `exists`: the target has one of its name. `refused`: why it would not be restored."""

    origin: str
    target: str
    engine: str
    create: str
    exists: bool
    ours: bool  # an earlier try of this restore made it
    rows: int = 0
    bytes: int = 0
    parts: int = 0
    refused: ErrorInfo | None = None


@dataclass(frozen=True, kw_only=True)
class RestorePreview:
    request: RestoreRequest
    tables: tuple[PreviewedTable, ...]
    left_out: tuple[LeftOut, ...]
    plan_hash: str


def preview(ports: BackupPorts, store: Store, request: RestoreRequest) -> RestorePreview:
    """Refusals of single tables are in the answer; what stops all of it is raised."""
    location = ports.location()
    key = Key(name=request.backup, number=request.number)
    manifest = backups.same(location, key, request.backup_process, unsigned=request.unsigned)
    request = replace(request, seed=seed_of(store, request))
    with ports.source(request.source).visit() as session:
        wanted, found = look(session, manifest, request)
    entries = {one.full_name: one for one in manifest.tables}
    tables = []
    for one in wanted:
        parts = [
            part
            for part in (entries[one.item.origin].parts if one.item.origin in entries else ())
            if not request.partitions or part.partition_id in request.partitions
        ]
        existing = found.get(one.item.target)
        tables.append(
            PreviewedTable(
                origin=".".join(one.item.origin),
                target=".".join(one.item.target),
                engine=one.engine,
                create=_shown(one),
                exists=existing is not None,
                ours=existing is not None and existing.uuid == one.uuid,
                rows=sum(part.rows_seen for part in parts) if request.data else 0,
                bytes=sum(part.bytes for part in parts) if request.data else 0,
                parts=len(parts) if request.data else 0,
                refused=_refusal(request, one, found),
            )
        )
    names = {".".join(item.origin) for item in request.items}
    return RestorePreview(
        request=request,
        tables=tuple(tables),
        left_out=tuple(left_out(manifest, names)),
        plan_hash=_hash(request, tables),
    )


def check_agreed(made: RestorePreview, agreed: str) -> None:
    """RefusedError (code `plan_changed`) if it is not the plan that was shown."""
    if agreed != made.plan_hash:
        raise RefusedError(
            f"backup {made.request.backup}: this is not the plan that was approved; the backup, the options, or the data"
            f" at source {made.request.source} is different now",
            code="plan_changed",
            hint="look at the plan as it is now (--dry-run), and start that one; nothing was written",
        )


def _shown(one: Creation) -> str:
    """The statement without the uuid, which each restore makes anew."""
    return one.rewritten.replace(f" UUID '{one.uuid}'", "", 1)


def _refusal(request: RestoreRequest, one: Creation, found: dict[tuple[str, str], There]) -> ErrorInfo | None:
    try:
        refuse_existing(request, one, found)
    except CalveError as error:
        return error.info
    return None


def _hash(request: RestoreRequest, tables: Sequence[PreviewedTable]) -> str:
    options = replace(request, seed="", asked="").to_json()
    said = [options, [(one.target, one.create, one.exists and not one.ours, one.parts) for one in tables]]
    return _PLAN + hashlib.sha256(json.dumps(said, ensure_ascii=False).encode()).hexdigest()[:40]
