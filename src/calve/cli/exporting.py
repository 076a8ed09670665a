"""What `calve export` does once its words are checked; `calve demo` takes the same path."""

from typing import Any

from calve.app.exporting import Asked, request_of
from calve.app.preview import preview_json
from calve.app.view import error_json, process_json
from calve.cli import exits, output, words
from calve.cli.command import Session
from calve.cli.running import no_worker_warning, run_to_the_end, sentence
from calve.clickhouse.parts.partitions import PartitionInfo
from calve.export.keys import Earlier
from calve.export.submit import submit_export, survey_export
from calve.export.survey import Survey
from calve.model.errors import NotFoundError
from calve.model.ids import ProcessId
from calve.model.process import Process
from calve.model.states import ProcessState


def export_table(
    session: Session, table: str, destination: str, asked: Asked, *, dry_run: bool, no_wait: bool
) -> int:
    """Check, queue, run to the end, report; the exit code."""
    app = session.app
    with output.during(f"looking at {table} and {destination} ..."):
        checked = survey_export(app, request_of(app, table, destination, asked), asked.selection)
    if dry_run:
        if checked.unreachable:
            raise checked.unreachable  # half a preview would be taken for a whole one
        document = preview_json(checked)
        session.answer(document, preview_text(document))
        return exits.REFUSED if checked.changed else exits.DONE
    _say_earlier(session, checked)
    processes = list(submit_export(app, app.store, checked).processes)
    if processes and no_wait:
        no_worker_warning(session, processes)
    elif processes:
        processes = run(session, processes)
    return _report(session, checked, processes, ended=not no_wait)


def run(session: Session, processes: list[Process]) -> list[Process]:
    if processes[0].batch and not session.json:
        output.say(f"batch {processes[0].batch}: {len(processes)} processes")
    return run_to_the_end(session, processes)


def _say_earlier(session: Session, checked: Survey[PartitionInfo]) -> None:
    if checked.unreachable:
        output.say(f"{checked.unreachable.message}: queued; it is exported once that answers")
    for one in checked.unchanged:
        output.say(f"{checked.request.source_table}: {one.sentence}; skipped")
    if not checked.unchanged and not checked.changed and not checked.chosen and not session.json:
        output.say("nothing to export: no partition is chosen")


def _report(
    session: Session, checked: Survey[PartitionInfo], processes: list[Process], *, ended: bool
) -> int:
    documents = [process_json(process) for process in processes]
    documents += [_earlier_json(session, checked, one) for one in (*checked.unchanged, *checked.changed)]
    single = len(checked.request.partitions) == 1 and len(documents) == 1
    text = "\n".join(sentence(process) if ended else process.id for process in processes)
    session.answer(documents[0] if single else documents, text)
    for process in processes:
        if process.error and process.state is not ProcessState.COMPLETED and ended:
            output.error(process.error)
    for one in checked.changed:
        output.error(one.refusal(checked.request).info)
    codes = [exits.of_process(process) for process in processes] + [exits.REFUSED for _ in checked.changed]
    return exits.worst(codes)


def _earlier_json(session: Session, checked: Survey[PartitionInfo], one: Earlier) -> dict[str, Any]:
    """The process that exported it before, from the store or, of another store's, from the table."""
    error = None if one.unchanged else error_json(one.refusal(checked.request).info)
    try:
        document = process_json(session.app.store.process(ProcessId(one.export.process_id)))
    except NotFoundError:
        document = {
            "id": one.export.process_id, "batch": None, "kind": "export", "state": "COMPLETED",
            "source": checked.request.source_table, "destination": checked.request.destination,
            "partitions": [one.partition], "tasks": {"total": 0, "done": 0, "failed": 0},
            "rows": one.export.rows, "files": one.export.files, "bytes": 0,
            "snapshot_id": one.export.snapshot_id, "retry_of": None, "error": None,
            "created_at": None, "finished_at": None,
        }  # fmt: skip
    return document | {"error": error, "already_exported": True, "unchanged": one.unchanged}


def preview_text(document: dict[str, Any]) -> str:
    """The plan for people."""
    numbers = frozenset({"ROWS", "BYTES", "PARTS"})
    partitions = [
        (one["id"], one["value"], words.count(one["rows"]), words.size(one["bytes"]), str(one["parts"]))
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
    head = words.facts(
        (
            ("source", document["source"]),
            ("destination", document["destination"] + (" (to be made)" if document["creates_table"] else "")),
            ("export", f"{words.counted(document['rows'], 'row')}, {words.size(document['bytes'])}, "
                       f"{words.counted(document['parts'], 'part')} in {words.counted(len(document['tasks']), 'task')}"),
            ("partitioned by", spec or "nothing"),
            ("sorted by", order or "nothing"),
        )
    )  # fmt: skip
    blocks = [head]
    if partitions:
        blocks.append(
            words.table(("PARTITION", "VALUE", "ROWS", "BYTES", "PARTS"), partitions, right=numbers)
        )
    blocks.append(words.table(("COLUMN", "CLICKHOUSE", "FIELD", "ICEBERG", ""), columns))
    notes = [f"note: {note}" for note in document["notes"]]
    notes += [f"skipped: {line}" for line in document["unchanged"]]
    notes += [f"refused: {line} (--force replaces it)" for line in document["changed"]]
    return "\n\n".join(blocks + (["\n".join(notes)] if notes else []))


def _remark(column: dict[str, Any]) -> str:
    remarks = [
        "required" if column["required"] else "",
        "added to the table" if column["added"] else "",
        f"fails on {column['fails_on']}" if column["fails_on"] else "",
    ]
    return ", ".join(remark for remark in remarks if remark)
