"""What must hold for a partition to come back from the lake: the table can take its rows as they were, nothing would change
or remove them on the way, and the lake has exactly the rows of one export. Every refusal has a code of its own."""

from collections.abc import Iterator, Sequence

from pyiceberg.schema import Schema

from calve.clickhouse.source import LiveSource, Session
from calve.clickhouse.sql.create_table import columns_with_ttl
from calve.clickhouse.sql.tokens import split_arguments
from calve.clickhouse.tables import TableInfo
from calve.clickhouse.tier.obstacles import Obstacle, removes_rows
from calve.clickhouse.tier.quarantine import parts
from calve.destination.content import increment_of, input_of
from calve.destination.outcome import EarlierExport
from calve.destination.plan import ExportPlan
from calve.destination.port import Destination
from calve.model.errors import RefusedError
from calve.model.states import ReleaseState
from calve.model.tier import RELEASE_OPEN, Release
from calve.policy.proof.kind import ProofKind
from calve.policy.proof.plan import Depth, ProofPlan, SourceRows, grouped
from calve.policy.proof.source import COMPARED, boxes_of, comparable_columns
from calve.policy.untier.plan import UntierPlan, UntierRequest

_HELD_AT_SOURCE = RELEASE_OPEN | {ReleaseState.QUARANTINED, ReleaseState.DROPPING}


def survey(
    proofs: ProofKind,
    source: LiveSource,
    destination: Destination,
    releases: Sequence[Release],
    request: UntierRequest,
    value: str,
    process_id: str,
) -> UntierPlan:
    """RefusedError with everything that is in the way. `value` is the partition's, as its id says it."""
    visits = source.visits()
    with visits[0] as session:
        table = session.describe(request.database, request.table)
        found = [*of_table(session, table, request.partition, len(visits)), *of_releases(releases, request)]
    lake = destination.find()
    exports = [] if lake is None else list(lake.exports())
    mine = [one for one in exports if one.input[:2] == (table.identity, request.partition)]
    found += _of_lake(exports, mine, table)
    refuse(found, request)
    assert lake is not None
    [exported] = mine
    plan, receipts, snapshot_id = proofs.exported(request.proof_of(exported.process_id))
    made = comparable_columns(table.columns, plan.columns, lake.schema)
    columns, notes = ((), (made,)) if isinstance(made, str) else made
    boxes = boxes_of(table, [value], plan.columns, lake.schema)
    scan = destination.scan(exported.process_id, plan, receipts, snapshot_id, boxes)
    refuse([*_of_export(plan, notes), *_of_scan(scan.current)], request)
    ids = {column.field_id for column in columns}
    fields = [one for one in scan.table.schema().fields if one.field_id in ids]
    proof = ProofPlan(
        process_id=process_id,
        export=exported.process_id,
        depth=Depth.ROWS if boxes else Depth.FILES,
        scan=scan,
        tasks=grouped(scan.files),
        schema=Schema(*fields).model_dump_json(),
        columns=columns,
        rows=SourceRows(identity=table.identity, contents={}, settings={**plan.settings, **COMPARED}),
    )
    return UntierPlan(
        process_id=process_id,
        request=request,
        uuid=table.uuid,
        identity=table.identity,
        create_query=table.create_query,
        lake_uuid=lake.uuid,
        key_hash=exported.key_hash,
        content=exported.content,
        rows=exported.rows,
        value=value,
        proof=proof,
    )


def refuse(found: Sequence[Obstacle], request: UntierRequest) -> None:
    """RefusedError with all of them, under the code of the first."""
    if found:
        lines = "".join(f"\n  {one.code}: {one.words}" for one in found)
        raise RefusedError(
            f"partition {request.partition} of {request.name} cannot come back from {request.destination}:{lines}",
            code=found[0].code,
        )


def of_table(session: Session, table: TableInfo, partition: str, servers: int) -> Iterator[Obstacle]:
    if not table.partition_key or not table.uuid:
        yield Obstacle(code="unpartitioned", words="the table has no partitions, or no uuid")
    if table.engine != "MergeTree" or servers > 1:
        yield Obstacle(
            code="engine",
            words=f"{table.engine} at {servers} servers: only a plain MergeTree at one server takes rows back;"
            " others combine rows in merges, or are untested",
        )
    if table.row_policies or table.policies_hidden:
        yield Obstacle(code="row_policies", words="row policies would hide rows from the comparison")
    if why := session.cannot_recompute():
        yield Obstacle(code="server_version", words=why)
    ttls = [rule for rule in split_arguments(table.clause.ttl) if removes_rows(rule)]
    if ttls or columns_with_ttl(table.create_query):
        yield Obstacle(code="ttl", words="a TTL of the table would remove or change the rows again")
    if pending := session.unfinished_mutations(table.full_name):
        yield Obstacle(code="mutation", words=f"mutation {pending[0].id} has not reached every part")
    if rows := sum(part.rows for part in parts(session, table.full_name, partition)):
        yield Obstacle(code="not_empty", words=f"the table has {rows} rows of the partition")


def of_releases(releases: Sequence[Release], request: UntierRequest) -> Iterator[Obstacle]:
    for one in releases:
        if one.partition == request.partition and one.state in _HELD_AT_SOURCE:
            yield Obstacle(
                code="quarantined",
                words=f"its parts are still at the source ({one.state}): calve policy undo brings them back",
            )


def _of_lake(
    exports: Sequence[EarlierExport], mine: Sequence[EarlierExport], table: TableInfo
) -> Iterator[Obstacle]:
    if {one.input[0] for one in exports} - {table.identity, ""}:
        yield Obstacle(
            code="other_identity",
            words="the lake table has rows of other tables, or of this one under another id",
        )
    if not mine:
        yield Obstacle(code="not_exported", words="the lake has no export of it")
    elif len(mine) > 1 or mine[0].input[2]:
        said = "in pieces" if any(increment_of(one.input[2]) for one in mine) else "with a selection"
        yield Obstacle(
            code="several_exports", words=f"it was exported {said}, whose rows cannot be told apart"
        )
    elif mine[0].missing:
        yield Obstacle(code="no_longer_there", words=mine[0].missing)
    elif mine[0].shared or sum(one.process_id == mine[0].process_id for one in exports) > 1:
        yield Obstacle(code="shared_export", words="one process exported it together with other partitions")


def _of_export(plan: ExportPlan, notes: Sequence[str]) -> Iterator[Obstacle]:
    if plan.relation.where or plan.relation.final:
        yield Obstacle(code="several_exports", words="not all of its rows were exported")
    if any(column.lossy for column in plan.columns):
        yield Obstacle(code="lossy", words="columns were exported with a lossy cast")
    if notes:
        yield Obstacle(
            code="not_by_value",
            words=f"its rows cannot be restored exactly as the table stored them: {'; '.join(notes)}",
        )
    if len(plan.keys) > 1 or any(input_of(key)[2] for key in plan.keys):
        yield Obstacle(code="shared_export", words="one process exported it together with other partitions")


def _of_scan(current: bool) -> Iterator[Obstacle]:
    if not current:
        yield Obstacle(
            code="rewritten",
            words="its files were rewritten, and without a time key its rows in the new ones cannot be found",
        )
