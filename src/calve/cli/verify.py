"""`calve verify`."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from calve.cli import output, words
from calve.cli.command import Session, command
from calve.cli.exits import DONE, FAILED

if TYPE_CHECKING:
    from calve.app.proving import Proven, ProvenRewrite
    from calve.model.ids import ProcessId


@dataclass(frozen=True, kw_only=True)
class _Shown:
    """What one process's proof says."""

    document: dict[str, Any]
    line: str
    faults: tuple[str, ...]
    remedy: str


@command(
    "verify", examples=["calve verify 7k2m", "calve verify 7k2m --deep", "calve verify batch-x4t9 --json"]
)
@click.option("--deep", is_flag=True, help="Read the source again as well, and compare.")
@click.argument("ids", metavar="ID…", nargs=-1, required=True)
def verify(session: Session, ids: tuple[str, ...], deep: bool) -> int:
    """Prove exports and optimizes after the fact: rows and a checksum of every column.

    What the table has at the recorded snapshot, read by an engine that did not write it, against
    what the tasks computed while they read the source. With --deep also what the source has now,
    as long as the partitions have not changed since. Of an optimize: what each of its snapshots
    took out of the table against what it put in.
    """
    shown = [(process_id, _proven(session, process_id, deep=deep)) for process_id in session.app.find(ids)]
    documents = [one.document for _, one in shown]
    session.answer(
        documents[0] if len(documents) == 1 else documents, "\n".join(one.line for _, one in shown)
    )
    for process_id, one in shown:
        for fault in one.faults:
            output.say(f"error: process {process_id}: {fault}")
    for remedy in dict.fromkeys(one.remedy for _, one in shown if one.faults):
        output.hint(remedy)
    return FAILED if any(one.faults for _, one in shown) else DONE


def _proven(session: Session, process_id: "ProcessId", *, deep: bool) -> _Shown:
    from calve.app.proving import prove, prove_rewrite

    if session.app.store.process(process_id).kind == "optimize":
        return _rewritten(process_id, prove_rewrite(session.app, process_id))
    return _exported(process_id, prove(session.app, process_id, deep=deep))


def _exported(process_id: str, proof: "Proven") -> _Shown:
    return _Shown(
        document=_document(process_id, proof),
        line=_line(process_id, proof),
        faults=proof.faults,
        remedy="show what was exported and when: calve show ID; then export it again with --force",
    )


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
        f"{process_id}  {'proven' if proof.ok else 'DIFFERS'}  {words.counted(table.found_rows, 'row')},"
        f" {words.counted(len(table.columns), 'column')}, {words.counted(table.files, 'file')}"
        f" at snapshot {table.snapshot_id}{source}"
    )


def _rewritten(process_id: str, proof: "ProvenRewrite") -> _Shown:
    made = proof.snapshots
    snapshots = [
        {
            "snapshot_id": one.snapshot_id,
            "files": {"before": one.files_before, "after": one.files_after},
            "rows": {"before": one.rows_before, "after": one.rows_after},
            "columns": {name: {"same": name not in one.differing} for name in one.columns},
        }
        for one in made
    ]
    line = (
        f"{process_id}  {'proven' if proof.ok else 'DIFFERS'}  {sum(one.rows_after for one in made):,} rows"
        f" rewritten from {sum(one.files_before for one in made):,} files to"
        f" {sum(one.files_after for one in made):,}, in {len(made)} snapshots"
    )
    return _Shown(
        document={"id": process_id, "ok": proof.ok, "snapshots": snapshots, "faults": list(proof.faults)},
        line=line,
        faults=proof.faults,
        remedy="roll the table back to the snapshot before, which still has the rows, and please report it",
    )
