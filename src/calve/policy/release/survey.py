"""What must hold before a partition may leave its table, beside what its source says (`clickhouse.tier.obstacles`): who has
its rows, and that they are proven by value. Every refusal has a code of its own."""

from collections.abc import Iterator, Sequence

from calve.clickhouse.tier import obstacles
from calve.clickhouse.tier.obstacles import Obstacle
from calve.destination.content import increments_by_input, unchanged
from calve.destination.outcome import EarlierExport
from calve.destination.port import Destination
from calve.policy.proof.kind import OUTSIDE, ProofKind
from calve.policy.proof.plan import Depth, ProofPlan
from calve.policy.release.plan import ReleasePlan, ReleaseRequest
from calve.policy.release.ports import SeenPartition


def survey(
    proofs: ProofKind,
    destination: Destination,
    seen: SeenPartition,
    request: ReleaseRequest,
    process_id: str,
    view: str,
) -> ReleasePlan:
    """RefusedError with everything that is in the way."""
    found, exported = list(seen.obstacles), None
    lake = destination.find()
    if lake is None:
        found.append(Obstacle(code="not_exported", words=f"{destination.address} is gone"))
    else:
        exports = list(lake.exports())
        found += _of_lake(exports, request, seen)
        exported = next((one for one in exports if _is_it(one, request)), None)
    obstacles.refuse(found, seen.table, request.partition)
    assert lake is not None
    assert exported is not None
    proof = proofs.full(request.proof)
    obstacles.refuse(list(_of_proof(proof)), seen.table, request.partition)
    return ReleasePlan(
        process_id=process_id,
        request=request,
        uuid=seen.table.uuid,
        lake_uuid=lake.uuid,
        key_hash=exported.key_hash,
        input=exported.input,
        content=exported.content,
        view=view,
        proof=proof,
    )


def _is_it(one: EarlierExport, request: ReleaseRequest) -> bool:
    """The export of the whole partition."""
    return one.input == (request.identity, request.partition, "")


def _of_lake(
    exports: Sequence[EarlierExport], request: ReleaseRequest, seen: SeenPartition
) -> Iterator[Obstacle]:
    strangers = {one.input[0] for one in exports} - {request.identity, ""}
    if strangers:
        yield Obstacle(
            code="other_identity",
            words="the destination has rows of other tables, or of this one under another id",
        )
    mine = [one for one in exports if one.input[:2] == (request.identity, request.partition)]
    whole = next((one for one in mine if _is_it(one, request)), None)
    if seen.table.identity != request.identity:
        yield Obstacle(code="source_changed", words="the table is not the one that was exported")
    if whole is None or whole.process_id != request.export:
        yield Obstacle(code="not_exported", words="the destination no longer has this export of it")
        return
    if whole.released:
        yield Obstacle(code="released", words=f"process {whole.released} released it")
    if not unchanged(whole.content, seen.content):
        yield Obstacle(code="source_changed", words="it has changed since it was exported")
    if whole.shared or sum(one.process_id == whole.process_id for one in exports) > 1:
        yield Obstacle(
            code="shared_export", words="it was exported together with others: export it again, alone"
        )
    if len(mine) > 1 or increments_by_input(mine):
        yield Obstacle(
            code="several_exports", words="it was exported in pieces: export it again, with --force"
        )


def _of_proof(proof: ProofPlan) -> Iterator[Obstacle]:
    if OUTSIDE in proof.notes:
        yield Obstacle(code="rows_outside_bounds", words=OUTSIDE)
    others = [one for one in proof.notes if one != OUTSIDE]
    if others or proof.depth not in (Depth.ROWS, Depth.PARTIAL):
        words = "; ".join(others) or "its rows in the lake cannot be found by their time"
        yield Obstacle(code="not_by_value", words=f"its rows cannot be compared as they are stored: {words}")
