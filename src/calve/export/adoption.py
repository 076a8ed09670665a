"""Receipts of a failed process that its retry may rely on: the same rows, read the same way, for
the same table. Whatever differs is exported again."""

from dataclasses import replace

from calve.control.kind import AdoptedWork
from calve.destination.plan import ExportPlan
from calve.destination.receipt import Receipt

_PieceIdentity = tuple[str, str, int, int]


def standing_receipts(plan: ExportPlan, adopted: AdoptedWork | None) -> dict[int, Receipt]:
    """By the number of the task in the new plan. The receipt names files of the old process; they
    are published as they are."""
    if adopted is None:
        return {}
    old = ExportPlan.from_json(adopted.plan)
    if _writing(old) != _writing(plan):
        return {}
    by_slices = {_slices(old, number): number for number in range(len(old.tasks))}
    receipts = {receipt.task: receipt for receipt in map(Receipt.from_json, adopted.receipts)}
    standing = {}
    for number in range(len(plan.tasks)):
        before = by_slices.get(_slices(plan, number))
        if before in receipts:
            standing[number] = replace(receipts[before], task=number)
    return standing


def _writing(plan: ExportPlan) -> tuple[object, ...]:
    """Everything but the rows that decides what a data file looks like."""
    destination = plan.destination
    return (
        plan.source_identity,
        plan.relation.create,
        plan.relation.where,
        plan.relation.final,
        plan.columns,
        destination.uuid,
        destination.schema_id,
        destination.spec_id,
        destination.spec,
        destination.sort_order_id,
    )


def _slices(plan: ExportPlan, number: int) -> tuple[_PieceIdentity, ...]:
    """A part is the same if its name and the hash of its files are (P17)."""
    return tuple(
        (plan.parts[piece.part].name, plan.parts[piece.part].content, piece.start, piece.end)
        for piece in plan.tasks[number]
    )
