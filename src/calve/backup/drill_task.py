"""One attempt at one task of a drill, on an executor. What is restored is a table of this worker's own engine, in its
scratch folder: it is dropped at the end, and swept with the folder by the next engine if this program is killed.
"""

import hashlib
import tempfile
from pathlib import Path

from calve.archive import backups
from calve.archive.create import check_scratch
from calve.archive.location import Location, segment
from calve.archive.manifest import Manifest, PartEntry, TableEntry, damaged
from calve.archive.parts import fetch
from calve.backup.drill_plan import DrillPayload, DrillReceipt, Sample
from calve.backup.verification import verify
from calve.clickhouse.engine.engine import Engine, worker_engine
from calve.clickhouse.engine.scratch import Attached, attached
from calve.clickhouse.parts.content import content_hash
from calve.model.errors import PermanentError, TemporaryError
from calve.objects.errors import full_disk, is_full
from calve.tasks import attempts

_MOST_FLAWS = 20  # that a task tells


def run(payload: str) -> str:
    """JSON in, JSON out; the runner turns errors into data."""
    asked = DrillPayload.from_json(payload)
    receipt = attempt(asked)
    return attempts.answer(receipt, files=receipt.parts)


def attempt(asked: DrillPayload) -> DrillReceipt:
    location = asked.open()
    manifest = backups.same(location, asked.of_backup, asked.backup_process, unsigned=True)
    if digest(manifest) != asked.manifest:
        raise damaged(location.manifest(asked.of_backup), "it changed since this drill was planned")
    if asked.sample is None:
        return _read_back(asked, location, manifest)
    return _restored(asked, location, manifest, asked.sample)


def digest(manifest: Manifest) -> str:
    return hashlib.sha256(manifest.to_json().encode()).hexdigest()


def _read_back(asked: DrillPayload, location: Location, manifest: Manifest) -> DrillReceipt:
    watch = attempts.Stopwatch()
    engine = worker_engine(asked.stall_seconds)
    with watch("read"):
        # If we die here, what was fetched lies in the engine's folder, which the next engine sweeps.
        found = verify(
            location,
            manifest,
            read_share=asked.read_share,
            parts=slice(asked.first, asked.end),
            folder=engine.scratch,
        )
    flaws = tuple(str(one.problem) for one in found.flaws[:_MOST_FLAWS])
    return DrillReceipt(parts=found.parts, bytes=found.read_bytes, flaws=flaws, spent=watch.spent)


def _restored(asked: DrillPayload, location: Location, manifest: Manifest, chosen: Sample) -> DrillReceipt:
    table = manifest.tables[chosen.table]
    parts = [table.parts[at] for at in chosen.parts]
    engine = worker_engine(asked.stall_seconds)
    watch = attempts.Stopwatch()
    try:
        # If we die here or below, the next engine on this machine sweeps the folder, table and all.
        with tempfile.TemporaryDirectory(dir=engine.scratch) as folder:
            with watch("read"):
                paths = [_fetched(location, part, Path(folder) / str(at)) for at, part in enumerate(parts)]
            check_scratch(table.scratch)
            with watch("write"), attached(engine, table.scratch, paths) as relation:
                rows, sums, flaws = _compared(engine, relation, table, parts)
    except OSError as error:
        if is_full(error):
            raise full_disk(engine.scratch, error.strerror or "") from None
        raise TemporaryError(
            f"{engine.scratch}: {error.strerror}",
            code="drill_folder",
            hint="the user that runs the executor needs a temporary folder to restore a sample into",
        ) from None
    except PermanentError as error:  # the backup's own fault, and the answer of the drill
        message = error.message.removeprefix("the backup is damaged: ")
        rows, sums, flaws = 0, "", (f"{_named(table)}: {message}",)
    return DrillReceipt(
        rows=rows,
        parts=len(parts),
        bytes=sum(part.bytes for part in parts),
        flaws=flaws,
        sums=sums,
        table=_named(table),
        spent=watch.spent,
    )


def _named(table: TableEntry) -> str:
    return f"{table.database}.{table.name}"


def _fetched(location: Location, part: PartEntry, folder: Path) -> str:
    """Every byte checked with the index, and the checksums that ClickHouse wrote with the manifest."""
    target = folder / segment(part.name)
    fetch(location, part, target)
    if content_hash(target) != part.content:
        raise damaged(f"part {part.name}", "its checksums.txt is not the one that was backed up")
    return str(target)


def _compared(
    engine: Engine, relation: Attached, table: TableEntry, parts: list[PartEntry]
) -> tuple[int, str, tuple[str, ...]]:
    """By value: what each part decompresses to, with what ClickHouse noted when it wrote the part; the rows that a
    reader sees, with the manifest. Every row is read in all columns."""
    what = f"reading restored parts of {_named(table)}"
    checked = engine.rows(f"CHECK TABLE {relation} SETTINGS check_query_single_value_result = 0", what=what)
    flaws = [
        f"{_named(table)}: part {row['part_path']}: {row['message']}"
        for row in checked
        if not row["is_passed"]
    ]
    [found] = engine.rows(
        f"SELECT count() AS rows, sum(sipHash64(toJSONString(tuple(*)))) AS sums FROM {relation}", what=what
    )
    expected = sum(part.rows_seen for part in parts)
    if found["rows"] != expected:
        flaws.append(f"{_named(table)}: {found['rows']} rows, where {expected} were backed up")
    return found["rows"], f"{found['rows']}:{found['sums']:016x}", tuple(flaws[:_MOST_FLAWS])
