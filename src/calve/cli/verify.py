"""`calve verify`."""

import click

from calve.cli import output
from calve.cli.command import Session, command
from calve.cli.exits import DONE, FAILED


@command("verify", examples=["calve verify 7k2m", "calve verify batch-x4t9 --json"])
@click.argument("ids", metavar="ID…", nargs=-1, required=True)
def verify(session: Session, ids: tuple[str, ...]) -> int:
    """Prove exports after the fact: rows and a checksum of every column.

    What the table has at the recorded snapshot, read by an engine that did not write it, against
    what the tasks computed while they read the source.
    """
    from calve.app.proving import prove

    proofs = [(process_id, prove(session.app, process_id)) for process_id in session.app.find(ids)]
    documents = [
        {
            "id": process_id,
            "ok": proof.ok,
            "snapshot_id": proof.snapshot_id,
            "files": proof.files,
            "rows": {"exported": proof.expected_rows, "found": proof.found_rows},
            "columns": {
                column.name: {"exported": column.expected, "found": column.found, "same": column.same}
                for column in proof.columns
            },
            "faults": list(proof.faults),
        }
        for process_id, proof in proofs
    ]
    lines = [
        f"{process_id}  {'proven' if proof.ok else 'DIFFERS'}  {proof.found_rows:,} rows, "
        f"{len(proof.columns)} columns, {proof.files} files at snapshot {proof.snapshot_id}"
        for process_id, proof in proofs
    ]
    session.answer(documents[0] if len(documents) == 1 else documents, "\n".join(lines))
    for process_id, proof in proofs:
        for fault in proof.faults:
            output.say(f"error: process {process_id}: {fault}")
    if all(proof.ok for _, proof in proofs):
        return DONE
    output.hint("show what was exported and when: calve show ID; then export it again with --force")
    return FAILED
