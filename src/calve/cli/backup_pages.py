"""Backups as pages for people."""

from collections.abc import Sequence
from datetime import UTC, datetime

from calve.app.backups import BackupEntry, Pruned, stored_bytes
from calve.app.values import Deleted, Verified
from calve.cli import output

_MOST_FLAWS = 50


def list_page(lines: Sequence[BackupEntry], now: datetime) -> str:
    rows = [
        (
            line.name,
            output.age(datetime.fromisoformat(line.manifest.created_at), now),
            line.manifest.source,
            str(len(line.manifest.tables)),
            output.count(line.manifest.rows),
            output.size(line.manifest.bytes),
            output.size(line.own_bytes),
        )
        if line.manifest
        else (line.name, "no key" if line.lacks_key else "damaged", "", "", "", "", "")
        for line in lines
    ]
    numbers = frozenset({"TABLES", "ROWS", "SIZE", "UNSHARED"})
    head = ("BACKUP", "AGE", "SOURCE", "TABLES", "ROWS", "SIZE", "UNSHARED")
    table = output.table(head, rows, right=numbers)
    total = f"{output.counted(len(lines), 'backup')}, {output.size(stored_bytes(lines))} stored"
    damaged = [
        f"{'' if line.lacks_key else f'damaged {line.name}: '}{line.error}\nhint: {line.hint}"
        for line in lines
        if not line.manifest
    ]
    return "\n\n".join([table, *damaged, total])


def show_page(line: BackupEntry) -> str:
    manifest = line.manifest
    assert manifest is not None
    head = output.facts(
        (
            ("backup", manifest.name),
            ("made", f"{datetime.fromisoformat(manifest.created_at).astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"),
            ("source", manifest.source),
            ("process", manifest.process_id),
            ("size", f"{output.size(manifest.bytes)}, of which {output.size(line.own_bytes)} are not shared"),
            ("rows", output.count(manifest.rows)),
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
        blocks.append(output.table(("TABLE", "ENGINE", "ROWS", "SIZE", "PARTS"), rows, right=numbers))
    if manifest.access:
        blocks.append("\n".join(["access:", *(f"  {one.title}" for one in manifest.access)]))
    blocks.append("\n".join(["not in this backup:", *(f"  {one}" for one in line.left_out)]))
    return "\n\n".join(blocks)


def _amounts(rows: int, size: int, parts: int) -> tuple[str, str, str]:
    return output.count(rows), output.size(size), str(parts)


def verified_page(found: Verified) -> str:
    summary = (
        f"{found.name}: {output.counted(found.parts, 'part')} in {output.counted(found.objects, 'object')}, "
        f"{output.size(found.bytes)}; {output.size(found.read_bytes)} read back"
    )
    if found.whole:
        return f"{summary}: whole"
    shown = [
        f"{flaw.problem}" + (f", part {flaw.part} of {', '.join(flaw.tables)}" if flaw.part else "")
        for flaw in found.flaws[:_MOST_FLAWS]
    ]
    left = len(found.flaws) - _MOST_FLAWS
    shown += [f"… and {left} more: --json lists them all"] if left > 0 else []
    return "\n".join(
        [f"{summary}: {output.counted(len(found.flaws), 'object')} differ from what was written", *shown]
    )


def deleted_line(one: Deleted) -> str:
    text = f"deleted {one.name}: {output.counted(one.parts, 'part')}, {output.size(one.bytes)} freed"
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
                f"the manifest of {one.name} was damaged: parts that only it needed and that it no longer "
                "names legibly stay in the location"
            )
    holding = sorted({name for one in done for name in one.held_by})
    if holding:
        output.warning(
            f"no space is freed while {', '.join(holding)} cannot be read: put the manifest back, or delete the "
            f"backup with calve backup delete {' '.join(holding)}; then run calve backup prune again"
        )


def pruned_page(found: Pruned, *, dry_run: bool) -> str:
    lines = [f"keep    {name}" for name in found.kept]
    lines += [f"delete  {one.name}" if dry_run else deleted_line(one) for one in found.deleted]
    return "\n".join(lines)
