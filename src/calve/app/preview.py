"""`--dry-run`: what an export would do, from the very objects that a real one goes on with."""

from typing import Any

from calve.kinds.export.submit import Checked


def preview_json(checked: Checked) -> dict[str, Any]:
    layout = checked.layout
    return {
        "source": checked.request.source_table,
        "destination": checked.request.destination,
        "creates_table": not checked.exists,
        "partitions": [
            {"id": one.id, "value": one.value, "rows": one.rows, "bytes": one.bytes, "parts": one.parts}
            for one in checked.chosen
        ],
        "rows": sum(one.rows for one in checked.chosen),
        "bytes": sum(one.bytes for one in checked.chosen),
        "parts": sum(one.parts for one in checked.chosen),
        "columns": [
            {
                "name": column.name,
                "source": column.source,
                "source_type": str(column.source_type),
                "type": str(column.type),
                "required": column.required,
            }
            for column in layout.mapping.columns
        ],
        "partition_spec": [
            {"name": field.name, "transform": str(field.transform)} for field in layout.spec.fields
        ],
        "sort_order": [
            {"column": layout.schema.find_column_name(field.source_id), "transform": str(field.transform)}
            for field in layout.sort_order.fields
        ],
        "unchanged": [one.sentence for one in checked.unchanged],
        "changed": [one.sentence for one in checked.changed],
        "notes": list(layout.notes),
    }
