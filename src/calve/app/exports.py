"""Exports as a front asks for them: names become one request, which is surveyed and queued as it is.

`--dry-run`: what an export would do, from the very objects that a real one goes on with.
"""

from dataclasses import dataclass
from typing import Any

from calve.app.destination import parse_destination
from calve.app.front import ExportAnswer
from calve.app.view import known_json
from calve.app.wiring import App
from calve.archive.backups import find
from calve.clickhouse.errors import NoPartitionError, NoTableError
from calve.clickhouse.parts.partitions import PartitionInfo, Selection
from calve.clickhouse.sql.tokens import TableName
from calve.control.ports import Store
from calve.destination.plan import Slice
from calve.export.request import Earlier, ExportOptions, ExportRequest
from calve.export.submit import pinned_before, submit_export, survey_export
from calve.export.survey import Survey, plan_hash
from calve.model.errors import ErrorInfo, NotFoundError
from calve.model.process import Process, ProcessId

ExportSurvey = Survey[PartitionInfo]


@dataclass(frozen=True, kw_only=True)
class ExportedBefore:
    """A partition that was exported before: skipped where unchanged, refused where changed since."""

    earlier: Earlier
    process: Process | None  # None where another store has it
    error: ErrorInfo | None  # why it is refused


def export_request(
    app: App, table: str, to: str, selection: Selection, options: ExportOptions | None = None
) -> ExportRequest:
    """Resolve the names. Connects to nothing, unless the backup must say which source it was made of."""
    name, destination, options = (
        app.table(table),
        parse_destination(to, app.config),
        options or ExportOptions(),
    )
    return ExportRequest(
        source=_source(app, name, options.from_backup, unsigned=options.unsigned),
        database=name.database,
        table=name.table,
        catalog=destination.catalog,
        identifier=destination.identifier,
        storage=destination.storage,
        partitions=(),
        parts=selection.parts,
        **vars(options),
    )


def _source(app: App, name: TableName, from_backup: str, *, unsigned: bool) -> str:
    if from_backup:
        # The source that the backup was made of: it need not be configured, nor exist.
        return name.source or find(app.backups(), from_backup, unsigned=unsigned).source
    source = name.source or app.config.default_source
    app.config.source(source)
    return source


def preview(app: App, request: ExportRequest, selection: Selection) -> ExportSurvey:
    """What an export would do. Changes nothing. Raises where the destination does not answer: half a
    preview would be taken for a whole one."""
    survey = survey_export(app, request, selection)
    if survey.unreachable:
        raise survey.unreachable
    return survey


def export(app: App, store: Store, request: ExportRequest, selection: Selection) -> ExportAnswer:
    """Queue what is to be exported; join what the same request has under way."""
    try:
        surveyed = survey_export(app, request, selection)
    except (NoPartitionError, NoTableError) as error:
        # Looked for without who asked: a key that came to nothing must not be answered as one that did.
        found = pinned_before(app.store, request, selection).processes
        if found and (going_on := pinned_before(store, request, selection)).processes:
            return ExportAnswer(
                source=request.source_table,
                destination=request.destination,
                partitions=tuple(one for process in going_on.processes for one in process.partitions),
                processes=going_on.processes,
                joined=going_on.joined,
            )
        if pinned := _under_way(app, request):
            error.hint = (
                f"what was pinned before is exported by a process that is under way: calve wait {pinned}"
            )
        raise
    made = submit_export(app, store, surveyed)
    survey = made.survey
    known = [_known(app, survey, one) for one in (*survey.unchanged, *survey.changed)]
    return ExportAnswer(
        source=survey.request.source_table,
        destination=survey.request.destination,
        partitions=survey.request.partitions,
        processes=made.processes,
        known=tuple(known_json(one, survey.request) for one in known),
        joined=made.joined,
        unchanged=tuple(one.sentence for one in survey.unchanged),
        refused=(*(error.info for error in made.outdated), *(one.error for one in known if one.error)),
        unreachable=survey.unreachable.message if survey.unreachable else "",
        unaware_workers=tuple(one.id for one in app.store.workers() if not one.version)
        if request.plan_hash and made.processes
        else (),
    )


def _under_way(app: App, request: ExportRequest) -> str:
    """Exports under way from the same table to the same destination: `--no-wait`, then DROP, loses nothing."""
    same = (request.source_table, request.destination)
    live = (one for one in app.store.live() if (one.source, one.destination) == same)
    return " ".join(dict.fromkeys(one.batch or one.id for one in live if app.store.plan(one.id) is not None))


def _known(app: App, survey: ExportSurvey, earlier: Earlier) -> ExportedBefore:
    error = earlier.refusal(survey.request).info if earlier in survey.changed else None
    try:
        process = app.store.process(ProcessId(earlier.export.process_id))
    except NotFoundError:
        process = None
    return ExportedBefore(earlier=earlier, process=process, error=error)


def _size(checked: Survey[PartitionInfo], one: PartitionInfo) -> dict[str, int]:
    """Of what is exported of a partition, which --new-parts makes less than all of it."""
    if not checked.request.new_parts:
        return {"bytes": one.bytes, "parts": one.parts}
    parts = [part for part in checked.parts if part.partition_id == one.id]
    return {"bytes": sum(part.bytes for part in parts), "parts": len(parts)}


def preview_json(checked: Survey[PartitionInfo]) -> dict[str, Any]:
    target = checked.target
    types = {field.name: str(field.field_type) for field in target.schema.fields}  # with their field ids
    names = {field.field_id: field.name for field in target.schema.fields}
    return {
        "source": checked.request.source_table,
        "destination": checked.request.destination,
        "creates_table": not checked.exists,
        "partitions": [
            {"id": one.id, "value": one.value, "rows": one.rows} | _size(checked, one)
            for one in checked.chosen
        ],
        "rows": sum(one.rows for one in checked.chosen),
        "bytes": sum(part.bytes for part in checked.parts),
        "parts": len(checked.parts),
        "tasks": [_task(checked, task) for task in checked.tasks],
        "columns": [
            {
                "name": column.name,
                "source": column.source,
                "source_type": column.source_type,
                "type": types.get(column.name, column.type),
                "required": column.required,
                "added": column.added,
                "was": column.was,
                "fails_on": column.check,
                "lossy": column.lossy,
            }
            for column in target.columns
        ],
        "partition_spec": [
            {"name": field.name, "column": names.get(field.source_id, ""), "transform": str(field.transform)}
            for field in target.spec.fields
        ],
        "sort_order": [
            {"column": names.get(field.source_id, ""), "transform": str(field.transform)}
            for field in target.sort_order.fields
        ],
        "unchanged": [one.sentence for one in checked.unchanged],
        "changed": [one.sentence for one in checked.changed],
        "notes": list(checked.notes),
        # Nothing can be agreed to that is to change first.
        "plan_hash": None if checked.request.mutations == "wait" else plan_hash(checked),
    }


def _task(checked: Survey[PartitionInfo], pieces: tuple[Slice, ...]) -> dict[str, Any]:
    """A task: whole parts, or a range of one."""
    parts = [checked.parts[piece.part] for piece in pieces]
    rows = sum(piece.end - piece.start for piece in pieces)
    document: dict[str, Any] = {"partition": parts[0].partition_id, "parts": len(parts), "rows": rows}
    if len(pieces) == 1 and rows < parts[0].rows:
        document |= {"part": parts[0].name, "from_row": pieces[0].start, "to_row": pieces[0].end}
    return document
