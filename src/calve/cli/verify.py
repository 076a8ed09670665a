"""`calve verify`."""

from typing import TYPE_CHECKING, Any

import click

from calve.cli import output
from calve.cli.command import Session, command
from calve.cli.exits import DONE, FAILED

if TYPE_CHECKING:
    from calve.app.proving import Proven


@command(
    "verify", examples=["calve verify 7k2m", "calve verify 7k2m --deep", "calve verify batch-x4t9 --json"]
)
@click.option("--deep", is_flag=True, help="Read the source again as well, and compare.")
@click.argument("ids", metavar="ID…", nargs=-1, required=True)
def verify(session: Session, ids: tuple[str, ...], deep: bool) -> int:
    """Prove exports after the fact: rows and a checksum of every column.

    What the table has at the recorded snapshot, read by an engine that did not write it, against
    what the tasks computed while they read the source. With --deep also what the source has now,
    as long as the partitions have not changed since.
    """
    from calve.app.proving import prove

    proofs = [(process_id, prove(session.app, process_id, deep=deep)) for process_id in session.app.find(ids)]
    documents = [_document(process_id, proof) for process_id, proof in proofs]
    lines = [_line(process_id, proof) for process_id, proof in proofs]
    session.answer(documents[0] if len(documents) == 1 else documents, "\n".join(lines))
    for process_id, proof in proofs:
        for fault in proof.faults:
            output.say(f"error: process {process_id}: {fault}")
    if all(proof.ok for _, proof in proofs):
        return DONE
    output.hint("show what was exported and when: calve show ID; then export it again with --force")
    return FAILED


def _document(process_id: str, proof: "Proven") -> dict[str, Any]:
    table = proof.table
    document: dict[str, Any] = {
        "id": process_id,
        "ok": proof.ok,
        "snapshot_id": table.snapshot_id,
        "files": table.files,
        "rows": {"exported": table.expected_rows, "found": table.found_rows},
        "columns": {
            column.name: {"exported": column.expected, "found": column.found, "same": column.same}
            for column in table.columns
        },
        "faults": list(proof.faults),
    }
    if proof.source is not None:
        document["source"] = {"rows": proof.source.found_rows, "differing": list(proof.source.differing)}
    return document


def _line(process_id: str, proof: "Proven") -> str:
    table = proof.table
    source = (
        "" if proof.source is None else f", and {proof.source.found_rows:,} rows read again at the source"
    )
    return (
        f"{process_id}  {'proven' if proof.ok else 'DIFFERS'}  {table.found_rows:,} rows,"
        f" {len(table.columns)} columns, {table.files} files at snapshot {table.snapshot_id}{source}"
    )
