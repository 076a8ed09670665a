"""`--dry-run`: what an export would do, from the very objects that a real one goes on with."""

from typing import Any

from calve.clickhouse.parts.partitions import PartitionInfo
from calve.destination.plan import Slice
from calve.export.survey import Survey


def preview_json(checked: Survey[PartitionInfo]) -> dict[str, Any]:
    target = checked.target
    types = {field.name: str(field.field_type) for field in target.schema.fields}  # with their field ids
    names = {field.field_id: field.name for field in target.schema.fields}
    return {
        "source": checked.request.source_table,
        "destination": checked.request.destination,
        "creates_table": not checked.exists,
        "partitions": [
            {"id": one.id, "value": one.value, "rows": one.rows, "bytes": one.bytes, "parts": one.parts}
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
    }


def _task(checked: Survey[PartitionInfo], pieces: tuple[Slice, ...]) -> dict[str, Any]:
    """A task: whole parts, or a range of one."""
    parts = [checked.parts[piece.part] for piece in pieces]
    rows = sum(piece.end - piece.start for piece in pieces)
    document: dict[str, Any] = {"partition": parts[0].partition_id, "parts": len(parts), "rows": rows}
    if len(pieces) == 1 and rows < parts[0].rows:
        document |= {"part": parts[0].name, "from_row": pieces[0].start, "to_row": pieces[0].end}
    return document
