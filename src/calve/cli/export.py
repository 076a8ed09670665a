"""`calve export`.

`calve export --dry-run` for people.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from calve.app.arguments import span
from calve.cli import output
from calve.cli.command import CliSession, command, no_wait_option, timeout_option
from calve.model.errors import UsageError

if TYPE_CHECKING:
    from calve.app.front import ExportAnswer
    from calve.app.values import ExportOptions, Selection
    from calve.model.process import Process


def page(document: dict[str, Any]) -> str:
    """The plan for people."""
    numbers = frozenset({"ROWS", "BYTES", "PARTS"})
    partitions = [
        (one["id"], one["value"], output.count(one["rows"]), output.size(one["bytes"]), str(one["parts"]))
        for one in document["partitions"]
    ]
    columns = [
        (one["source"], one["source_type"], one["name"], one["type"], _remark(one))
        for one in document["columns"]
    ]
    spec = ", ".join(
        f"{one['transform']} of {one['column']} as {one['name']}" for one in document["partition_spec"]
    )
    order = ", ".join(one["column"] for one in document["sort_order"])
    head = output.facts(
        (
            ("source", document["source"]),
            ("destination", document["destination"] + (" (will be created)" if document["creates_table"] else "")),
            ("export", f"{output.counted(document['rows'], 'row')}, {output.size(document['bytes'])}, "
                       f"{output.counted(document['parts'], 'part')} in {output.counted(len(document['tasks']), 'task')}"),
            ("partitioned by", spec or "nothing"),
            ("sorted by", order or "nothing"),
            ("start this", f"--plan {document['plan_hash']}" if document.get("plan_hash") and partitions else ""),
        )
    )  # fmt: skip
    blocks = [head]
    if partitions:
        blocks.append(
            output.table(("PARTITION", "VALUE", "ROWS", "BYTES", "PARTS"), partitions, right=numbers)
        )
    blocks.append(output.table(("COLUMN", "CLICKHOUSE", "FIELD", "ICEBERG", ""), columns))
    notes = [f"note: {note}" for note in document["notes"]]
    notes += [f"skipped: {line}" for line in document["unchanged"]]
    notes += [f"refused: {line}" for line in document["changed"]]
    return "\n\n".join(blocks + (["\n".join(notes)] if notes else []))


def _remark(column: dict[str, Any]) -> str:
    remarks = [
        "required" if column["required"] else "",
        "lossy" if column["lossy"] else "",
        "added to the table" if column["added"] else "",
        f"was {column['was']}" if column["was"] else "",
        f"fails on {column['fails_on']}" if column["fails_on"] else "",
    ]
    return ", ".join(remark for remark in remarks if remark)


@command(
    "export",
    examples=[
        "calve export db.events --partition 202401 --to lake.ns.events",
        "calve export db.events --partition 202401 --partition 202402 --to lake.ns.events --dry-run",
        "calve export db.events --older-than 90d --to lake.ns.events --no-wait",
        "calve export 'main:db.`my table`' --all --to lake.ns.events --force",
        "calve export db.events --all --to lake.ns.events --cast 'id=long' --exclude secret",
    ],
)
@click.argument("table", metavar="TABLE")
@click.option(
    "--to",
    "destination",
    metavar="DEST",
    required=True,
    help="catalog.namespace.table, or a folder or s3://… for plain Parquet.",
)
@click.option(
    "--partition", "partitions", metavar="ID_OR_VALUE", multiple=True, help="A partition. Repeatable."
)
@click.option("--part", "parts", metavar="NAME", multiple=True, help="Only this part. Repeatable.")
@click.option("--all", "every", is_flag=True, help="Every partition.")
@click.option("--older-than", metavar="90d", help="Partitions whose newest row is older: 90d, 12h, 4w.")
@click.option("--where", default="", metavar="SQL", help="Only rows that match a condition.")
@click.option(
    "--final",
    is_flag=True,
    help="Merge rows first, as SELECT … FINAL does (Replacing, Collapsing, Summing …).",
)
@click.option("--force", is_flag=True, help="Replace partitions that have changed since they were exported.")
@click.option(
    "--discard-deletes", is_flag=True, help="With --force: also where rows were deleted in the destination."
)
@click.option(
    "--allow-shrink", is_flag=True, help="With --force: also with fewer rows, which the source has lost."
)
@click.option(
    "--allow-overlap", is_flag=True, help="Export even if an earlier export overlaps the selection."
)
@click.option(
    "--create/--no-create", default=True, show_default=True, help="Create the table if it is missing."
)
@click.option(
    "--evolve",
    is_flag=True,
    help="Add columns that the destination lacks, and widen those that are too narrow.",
)
@click.option(
    "--partition-by",
    default="",
    metavar="SPEC",
    help='Partition spec of a new table: "day(ts), bucket(16, id)".',
)
@click.option(
    "--cast",
    "casts",
    metavar="COLUMN=TYPE",
    multiple=True,
    help="Export a column as another type. Repeatable.",
)
@click.option("--exclude", metavar="COLUMN", multiple=True, help="Omit a column. Repeatable.")
@click.option("--include", metavar="COLUMN", multiple=True, help="Also export this ALIAS column. Repeatable.")
@click.option(
    "--rename",
    "renames",
    metavar="OLD=NEW",
    multiple=True,
    help="Rename a column of the table, as it was renamed at the source. Repeatable.",
)
@click.option("--file-mb", type=click.IntRange(min=1), metavar="N", help="Size of data files, in MB.")
@click.option(
    "--codec",
    type=click.Choice(["zstd", "snappy", "gzip", "lz4", "brotli", "uncompressed"]),
    help="Compression of data files.",
)
@click.option(
    "--mutations",
    type=click.Choice(["refuse", "wait", "ignore"]),
    default="refuse",
    show_default=True,
    help="If an ALTER is unfinished: refuse, wait for it, or export the rows as they were before it.",
)
@click.option(
    "--new-parts",
    is_flag=True,
    help="Of partitions that were exported before, add the parts that are new since; replace nothing.",
)
@click.option("--ignore-row-policies", is_flag=True, help="Also export rows that row policies hide.")
@click.option(
    "--from-backup", default="", metavar="NAME", help="Read the parts of a backup instead of the source."
)
@click.option("--unsigned", is_flag=True, help="Accept a backup that the signing key did not sign.")
@click.option("--dry-run", is_flag=True, help="Print the plan; change nothing.")
@click.option(
    "--plan",
    "plan_hash",
    default="",
    metavar="HASH",
    help="Export only if the plan still is the one that --dry-run printed with this hash.",
)
@no_wait_option
@timeout_option
def export(
    session: CliSession,
    table: str,
    destination: str,
    dry_run: bool,
    no_wait: str | None,
    timeout_seconds: float | None,
    **given: Any,
) -> int:
    """Export partitions of TABLE to DEST, each exactly once.

    Partitions that were exported before and are unchanged are skipped. Those that have changed since
    are listed, and the exit code is 4; --force replaces them. Ctrl-C stops safely and says how to go on.
    """
    from calve.app.values import ExportOptions

    selection = _selection(given)
    given["casts"] = _pairs(given["casts"], "cast", "column=type: --cast id=long")
    given["renames"] = _pairs(given["renames"], "rename", "old=new: --rename user=user_id")
    options = ExportOptions(**{name: value for name, value in given.items() if value is not None})
    if dry_run:
        return _preview(session, table, destination, selection, options)
    return export_table(
        session, table, destination, selection, options, no_wait=no_wait, timeout_seconds=timeout_seconds
    )


def _preview(
    session: CliSession, table: str, destination: str, selection: "Selection", options: "ExportOptions"
) -> int:
    with output.during(f"looking at {table} and {destination} ..."):
        found = session.calve.export_preview(table, destination, selection, options)
    session.answer(found, page(found))
    return output.REFUSED if found["changed"] else output.DONE


def export_table(
    session: CliSession,
    table: str,
    destination: str,
    selection: "Selection",
    options: "ExportOptions",
    *,
    no_wait: str | None = None,
    timeout_seconds: float | None = None,
) -> int:
    """Queue, run to the end, report; the exit code."""
    from calve.cli.report import leave, run_to_the_end, say_batch, say_taken_up

    with output.during(f"looking at {table} and {destination} ..."):
        answer = session.calve.export(table, destination, selection, options)
    _say_known(session, answer)
    processes = list(answer.processes)
    say_taken_up(session, processes, answer.joined)
    if processes and no_wait:
        processes = leave(session, processes, no_wait=no_wait, timeout_seconds=timeout_seconds)
    elif processes:
        say_batch(session, processes)
        processes = run_to_the_end(session, processes, timeout_seconds=timeout_seconds)
    return _report(session, answer, processes, ended=not no_wait)


def _say_known(session: CliSession, answer: "ExportAnswer") -> None:
    if answer.unreachable:
        output.say(f"{answer.unreachable}: queued; it is exported as soon as that answers")
    if answer.unaware_workers:
        output.say(
            f"warning: workers of an old version do not honour --plan: {', '.join(answer.unaware_workers)}"
        )
    for sentence in answer.unchanged:
        output.say(f"{answer.source}: {sentence}; skipped")
    if not answer.known and not answer.processes:
        session.say("nothing to export: no partition matches")


def _report(session: CliSession, answer: "ExportAnswer", processes: "list[Process]", *, ended: bool) -> int:
    from calve.app.view import process_json
    from calve.cli.report import say_errors, say_total, sentence

    documents = [*map(process_json, processes), *answer.known]
    single = len(answer.partitions) == 1 and len(documents) == 1
    text = "\n".join(sentence(process) if ended else process.id for process in processes)
    session.answer(documents[0] if single else documents, text)
    if ended:
        say_total(session, processes)
    say_errors(processes)
    for error in answer.refused:
        output.error(error)
    codes = [output.of_process(one) for one in processes]
    return output.worst([*codes, *(output.REFUSED for _ in answer.refused)])


def _selection(options: dict[str, Any]) -> "Selection":
    """Takes its options out of the others."""
    from calve.app.values import Selection

    ways = {
        "--partition": options.pop("partitions"),
        "--part": options.pop("parts"),
        "--all": options.pop("every"),
        "--older-than": options.pop("older_than"),
    }
    given = [way for way, value in ways.items() if value]
    if len(given) != 1:
        what = "no partitions are chosen" if not given else f"{' and '.join(given)} exclude each other"
        raise UsageError(what, code="selection", hint=f"give one of {', '.join(ways)}")
    return Selection(
        partitions=ways["--partition"],
        parts=ways["--part"],
        all=ways["--all"],
        older_than=span(ways["--older-than"]) if ways["--older-than"] else None,
    )


def _pairs(given: Sequence[str], option: str, form: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in given:
        left, parted, right = text.partition("=")
        if not parted or not left.strip() or not right.strip():
            raise UsageError(
                f"invalid {option} {text!r}", code=f"bad_{option}", hint=f"give it as --{option} {form}"
            )
        pairs[left.strip()] = right.strip()
    return pairs
