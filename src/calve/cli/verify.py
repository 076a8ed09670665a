"""`calve verify`."""

from typing import TYPE_CHECKING

import click

from calve.cli import output, words
from calve.cli.command import CliSession, command
from calve.cli.exits import DONE, FAILED
from calve.cli.options import ids_argument

if TYPE_CHECKING:
    from calve.app.proof import ExportProof, OptimizeProof

_EXPORT_REMEDY = "see what was exported and when with calve show ID, then export it again with --force"
_OPTIMIZE_REMEDY = "roll the table back to the snapshot before, which still has the rows, and report this"


@command(
    "verify", examples=["calve verify 7k2m", "calve verify 7k2m --deep", "calve verify batch-x4t9 --json"]
)
@click.option("--deep", is_flag=True, help="Also read the source again and compare.")
@ids_argument
def verify(session: CliSession, ids: tuple[str, ...], deep: bool) -> int:
    """Prove exports and optimizes after the fact, by row counts and a checksum of every column.

    Compares what the table has at the recorded snapshot, read by an engine that did not write it, with
    what the tasks computed while they read the source. With --deep also with what the source has now,
    as long as the partitions have not changed since. For an optimize: what each of its snapshots
    removed from the table with what it added.
    """
    from calve.app.proof import ExportProof
    from calve.app.view import export_proof_json, optimize_proof_json

    documents, lines = [], []
    remedies: list[str] = []
    for proof in session.calve.verify(ids, deep=deep):
        if isinstance(proof, ExportProof):
            documents.append(export_proof_json(proof))
            lines.append(_export_line(proof))
            remedy = _EXPORT_REMEDY
        else:
            documents.append(optimize_proof_json(proof))
            lines.append(_optimize_line(proof))
            remedy = _OPTIMIZE_REMEDY
        for fault in proof.faults:
            output.say(f"error: process {proof.process_id}: {fault}")
            remedies.append(remedy)
    session.answer_each(documents, "\n".join(lines))
    for remedy in dict.fromkeys(remedies):
        output.hint(remedy)
    return FAILED if remedies else DONE


def _export_line(proof: "ExportProof") -> str:
    table = proof.table
    source = "" if proof.source is None else f"; {proof.source.found_rows:,} rows read again at the source"
    return (
        f"{proof.process_id}  {_verdict(proof.ok)}  {words.counted(table.found_rows, 'row')},"
        f" {words.counted(len(table.columns), 'column')}, {words.counted(table.files, 'file')}"
        f" at snapshot {table.snapshot_id}{source}"
    )


def _optimize_line(proof: "OptimizeProof") -> str:
    made = proof.snapshots
    return (
        f"{proof.process_id}  {_verdict(proof.ok)}  {sum(one.rows_after for one in made):,} rows"
        f" rewritten from {sum(one.files_before for one in made):,} files to"
        f" {sum(one.files_after for one in made):,}, in {words.counted(len(made), 'snapshot')}"
    )


def _verdict(ok: bool) -> str:
    return "proven" if ok else "DIFFERS"
