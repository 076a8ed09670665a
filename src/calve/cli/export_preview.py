"""`calve export --dry-run` for people."""

from typing import Any

from calve.cli import words


def page(document: dict[str, Any]) -> str:
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
            ("destination", document["destination"] + (" (will be created)" if document["creates_table"] else "")),
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
    notes += [f"refused: {line}" for line in document["changed"]]
    return "\n\n".join(blocks + (["\n".join(notes)] if notes else []))


def _remark(column: dict[str, Any]) -> str:
    remarks = [
        "required" if column["required"] else "",
        "lossy" if column["lossy"] else "",
        "added to the table" if column["added"] else "",
        f"fails on {column['fails_on']}" if column["fails_on"] else "",
    ]
    return ", ".join(remark for remark in remarks if remark)
