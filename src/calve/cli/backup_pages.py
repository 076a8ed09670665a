"""Backups as pages for people, from their documents (`app.backup_view`)."""

from collections.abc import Sequence
from datetime import UTC, datetime

from calve.app.view import Json
from calve.cli import output

_MOST_FLAWS = 50


def list_page(found: Json, now: datetime) -> str:
    lines, keyless = found["backups"], frozenset(found["without_key"])
    rows = [
        (line["name"], "no key" if line["name"] in keyless else "damaged", "", "", "", "", "", "")
        if line["error"]
        else (
            line["name"],
            output.age(datetime.fromisoformat(line["created_at"]), now),
            line["source"],
            str(line["tables"]),
            output.count(line["rows"]),
            output.size(line["bytes"]),
            output.size(line["own_bytes"]),
            _restored(line, now),
        )
        for line in lines
    ]
    numbers = frozenset({"TABLES", "ROWS", "SIZE", "UNSHARED"})
    head = ("BACKUP", "AGE", "SOURCE", "TABLES", "ROWS", "SIZE", "UNSHARED", "RESTORED")
    table = output.table(head, rows, right=numbers)
    total = f"{output.counted(len(lines), 'backup')}, {output.size(found['stored_bytes'])} stored"
    damaged = [
        ("" if line["name"] in keyless else f"damaged {line['name']}: ")
        + f"{line['error']}\nhint: {line['hint']}"
        for line in lines
        if line["error"]
    ]
    return "\n\n".join([table, *damaged, total])


def _restored(line: Json, now: datetime) -> str:
    """How long ago a restore of it, or of a sample, was proven."""
    at = line.get("restored_at")
    return f"{output.age(datetime.fromisoformat(at), now)} ago" if at else "never"


def show_page(found: Json) -> str:
    made = datetime.fromisoformat(found["created_at"]).astimezone(UTC)
    head = output.facts(
        (
            ("backup", found["name"]),
            ("made", f"{made:%Y-%m-%d %H:%M:%S} UTC"),
            ("source", found["source"]),
            ("process", found["process"]),
            ("size", f"{output.size(found['bytes'])}, of which {output.size(found['own_bytes'])} are not shared"),
            ("rows", output.count(found["rows"])),
            ("functions", ", ".join(found["functions"])),
        )
    )  # fmt: skip
    rows = [
        (one["table"], one["engine"], output.count(one["rows"]), output.size(one["bytes"]), str(len(one["parts"])))
        for one in found["tables"]
    ]  # fmt: skip
    rows += [(one["name"], one["engine"], "", "", "") for one in found["schemas"]]
    blocks = [head]
    if rows:
        numbers = frozenset({"ROWS", "SIZE", "PARTS"})
        blocks.append(output.table(("TABLE", "ENGINE", "ROWS", "SIZE", "PARTS"), rows, right=numbers))
    if found["access"]:
        blocks.append("\n".join(["access:", *(f"  {title}" for title in found["access"])]))
    lacking = (f"  {one['what']}: {one['why']}" for one in found["left_out"])
    blocks.append("\n".join(["not in this backup:", *lacking]))
    return "\n\n".join(blocks)


def verified_page(found: Json) -> str:
    flaws = found["flaws"]
    summary = (
        f"{found['name']}: {output.counted(found['parts'], 'part')} in {output.counted(found['objects'], 'object')}, "
        f"{output.size(found['bytes'])}; {output.size(found['read_bytes'])} read back"
    )
    if found["whole"]:
        return f"{summary}: whole"
    shown = [
        f"{flaw['object']}: {flaw['what']}"
        + (f", part {flaw['part']} of {', '.join(flaw['tables'])}" if flaw["part"] else "")
        for flaw in flaws[:_MOST_FLAWS]
    ]
    left = len(flaws) - _MOST_FLAWS
    shown += [f"… and {left} more: --json lists them all"] if left > 0 else []
    return "\n".join(
        [f"{summary}: {output.counted(len(flaws), 'object')} differ from what was written", *shown]
    )


def deleted_line(one: Json) -> str:
    text = f"deleted {one['name']}: {output.counted(one['parts'], 'part')}, {output.size(one['bytes'])} freed"
    if one["shared"]:
        text += f", {one['shared']} shared parts kept"
    if one["awaited"]:
        text += f", {one['awaited']} kept for a backup under way (the next prune removes them)"
    if one["held"]:
        text += f", {one['held']} kept because {', '.join(one['held_by'])} cannot be read and may need them"
    return text


def say_what_stays(done: Sequence[Json]) -> None:
    """What a person has to know or do about space that a delete did not free."""
    for one in done:
        if one["damaged"]:
            output.warning(
                f"the manifest of {one['name']} was damaged: parts that only it needed and that it no longer "
                "names legibly stay in the location"
            )
    holding = sorted({name for one in done for name in one["held_by"]})
    if holding:
        output.warning(
            f"no space is freed while {', '.join(holding)} cannot be read: put the manifest back, or delete the "
            f"backup with calve backup delete {' '.join(holding)}; then run calve backup prune again"
        )


def pruned_page(found: Json) -> str:
    lines = [f"keep    {name}" for name in found["kept"]]
    lines += [f"delete  {one['name']}" if found["dry_run"] else deleted_line(one) for one in found["deleted"]]
    return "\n".join(lines)


def restore_preview_page(found: Json) -> str:
    """The plan of a restore for people."""
    head = output.facts(
        (
            ("backup", found["backup"]),
            ("to", f"source {found['source']}"),
            ("restore", f"{output.counted(found['rows'], 'row')}, {output.size(found['bytes'])}"),
            ("start this", f"--plan {found['plan_hash']}"),
        )
    )
    rows = [
        (
            one["table"],
            one["target"],
            _fate(one, found["existing"]),
            output.count(one["rows"]),
            output.size(one["bytes"]),
        )
        for one in found["tables"]
    ]
    table = output.table(
        ("TABLE", "RESTORED AS", "", "ROWS", "BYTES"), rows, right=frozenset({"ROWS", "BYTES"})
    )
    notes = [f"not in the backup: {one['what']}: {one['why']}" for one in found["left_out"]]
    refused = [one["refused"] for one in found["tables"] if one["refused"]]
    notes += [f"refused: {one['message']}\nhint: {one['hint']}" for one in refused]
    return "\n\n".join([head, table, *(["\n".join(notes)] if notes else [])])


def _fate(table: Json, existing: str) -> str:
    if table["refused"]:
        return "refused"
    if table["goes_on"]:
        return "goes on"
    if not table["exists"]:
        return "created"
    return "partitions replaced" if existing == "replace" else "appended to"
