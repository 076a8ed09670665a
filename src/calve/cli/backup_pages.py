"""Backups as JSON and as pages for people."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from calve.app.backups import Line, Pruned, stored_bytes
from calve.archive.manifest import Manifest
from calve.backup.deletion import Deleted
from calve.backup.verification import Verified
from calve.cli import output, words

_MOST_FLAWS = 50


def list_json(lines: Sequence[Line]) -> list[dict[str, Any]]:
    return [line_json(line) for line in lines]


def line_json(line: Line) -> dict[str, Any]:
    manifest = line.manifest
    if manifest is None:
        return {"name": line.name, "error": line.error, "hint": line.hint}
    return {
        "name": manifest.name,
        "created_at": manifest.created_at,
        "source": manifest.source,
        "process": manifest.process_id,
        "tables": len(manifest.tables),
        "parts": manifest.parts,
        "rows": manifest.rows,
        "bytes": manifest.bytes,
        "own_bytes": line.own_bytes,
        "moved_bytes": manifest.moved_bytes,
        "skipped": [{"table": table, "reason": why} for table, why in manifest.skipped],
        "error": None,
    }


def list_page(lines: Sequence[Line], now: datetime) -> str:
    rows = [
        (
            line.name,
            words.age(datetime.fromisoformat(line.manifest.created_at), now),
            line.manifest.source,
            str(len(line.manifest.tables)),
            words.count(line.manifest.rows),
            words.size(line.manifest.bytes),
            words.size(line.own_bytes),
        )
        if line.manifest
        else (line.name, "damaged", "", "", "", "", "")
        for line in lines
    ]
    numbers = frozenset({"TABLES", "ROWS", "SIZE", "ITS OWN"})
    head = ("BACKUP", "AGE", "SOURCE", "TABLES", "ROWS", "SIZE", "ITS OWN")
    table = words.table(head, rows, right=numbers)
    total = f"{words.counted(len(lines), 'backup')}, {words.size(stored_bytes(lines))} stored"
    damaged = [f"damaged {line.name}: {line.error}\nhint: {line.hint}" for line in lines if not line.manifest]
    return "\n\n".join([table, *damaged, total])


def show_json(line: Line) -> dict[str, Any]:
    manifest = line.manifest
    assert manifest is not None
    return line_json(line) | {
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
    }


def show_page(line: Line) -> str:
    manifest = line.manifest
    assert manifest is not None
    head = words.facts(
        (
            ("backup", manifest.name),
            ("made", f"{datetime.fromisoformat(manifest.created_at).astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"),
            ("source", manifest.source),
            ("process", manifest.process_id),
            ("size", f"{words.size(manifest.bytes)}, of which {words.size(line.own_bytes)} are its own"),
            ("rows", words.count(manifest.rows)),
            ("functions", ", ".join(manifest.functions)),
        )
    )
    rows = [
        (f"{one.database}.{one.name}", one.engine, *_amounts(one.rows, one.bytes, len(one.parts)))
        for one in manifest.tables
    ]
    rows += [(f"{one.database}.{one.name}", one.engine, "", "", "") for one in manifest.schemas]
    blocks = [head]
    if rows:
        numbers = frozenset({"ROWS", "SIZE", "PARTS"})
        blocks.append(words.table(("TABLE", "ENGINE", "ROWS", "SIZE", "PARTS"), rows, right=numbers))
    if manifest.skipped:
        blocks.append("\n".join(f"note: {table}: {why}" for table, why in manifest.skipped))
    return "\n\n".join(blocks)


def _amounts(rows: int, size: int, parts: int) -> tuple[str, str, str]:
    return words.count(rows), words.size(size), str(parts)


def verified_json(found: Verified) -> dict[str, Any]:
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


def verified_page(found: Verified) -> str:
    summary = (
        f"{found.name}: {words.counted(found.parts, 'part')} in {words.counted(found.objects, 'object')}, "
        f"{words.size(found.bytes)}; {words.size(found.read_bytes)} read back"
    )
    if found.whole:
        return f"{summary}: whole"
    shown = [
        f"{flaw.problem}" + (f", part {flaw.part} of {', '.join(flaw.tables)}" if flaw.part else "")
        for flaw in found.flaws[:_MOST_FLAWS]
    ]
    left = len(found.flaws) - _MOST_FLAWS
    shown += [f"… and {left} more: --json has them all"] if left > 0 else []
    return "\n".join([f"{summary}: {words.counted(len(found.flaws), 'object')} not as written", *shown])


def manifest_of(lines: Sequence[Line], manifest: Manifest) -> Line:
    return next(line for line in lines if line.manifest and line.manifest.process_id == manifest.process_id)


def deleted_line(one: Deleted) -> str:
    text = f"deleted {one.name}: {words.counted(one.parts, 'part')}, {words.size(one.bytes)} freed"
    if one.shared:
        text += f", {one.shared} shared parts kept"
    if one.awaited:
        text += f", {one.awaited} kept for a backup under way (the next prune removes them)"
    if one.held:
        text += f", {one.held} kept because {', '.join(one.held_by)} cannot be read and may need them"
    return text


def say_what_stays(done: Sequence[Deleted]) -> None:
    """What a person has to know or do about space that a delete did not free."""
    for one in done:
        if one.damaged:
            output.warning(
                f"the manifest of {one.name} was damaged: parts that it alone needed and that could not be "
                "made out in it stay in the location"
            )
    holding = sorted({name for one in done for name in one.held_by})
    if holding:
        output.warning(
            f"no space is freed while {', '.join(holding)} cannot be read: put the manifest back, or give it up "
            f"with calve backup delete {' '.join(holding)}; then run calve backup prune again"
        )


def pruned_json(found: Pruned, *, dry_run: bool) -> dict[str, Any]:
    return {
        "kept": list(found.kept),
        "deleted": [vars(one) for one in found.deleted],
        "unreadable": list(found.unreadable),
        "dry_run": dry_run,
    }


def pruned_page(found: Pruned, *, dry_run: bool) -> str:
    lines = [f"keep    {name}" for name in found.kept]
    lines += [f"delete  {one.name}" if dry_run else deleted_line(one) for one in found.deleted]
    return "\n".join(lines)
