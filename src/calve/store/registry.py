"""What is kept for servers and their callers: requests, tokens, halts, the audit, proofs, servers.

A change and the audit row that says who asked for it are one transaction.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Select, delete, insert, null, select, update

from calve.model.access import (
    AccessToken,
    Asked,
    AuditEntry,
    AuditOutcome,
    Halt,
    KeyedRequest,
    Proof,
    Server,
    Totals,
)
from calve.model.process import ProcessId
from calve.model.refusals import no_such_token, token_exists
from calve.store import rows
from calve.store.database import time_from_us, to_us
from calve.store.leases import Workers
from calve.store.rows import chunks, columns, note
from calve.store.submissions import load_request
from calve.store.tables import (
    audit,
    halts,
    processes,
    proofs,
    requests,
    servers,
    tokens,
)
from calve.store.totals import EndedWork, ended_work, load_totals

_ANSWER_BYTES = 256 * 1024
_SUBMIT_LASTS = timedelta(minutes=1)  # at most


class SqlRegistry(Workers):
    ended_work: EndedWork | None = None

    def request(self, who: str, key: str) -> KeyedRequest | None:
        return self._database.read(lambda connection: load_request(connection, who, key))

    def answer_request(self, who: str, key: str, answer: str) -> None:
        if len(answer.encode("utf-8", "replace")) > _ANSWER_BYTES:
            return
        c = requests.c
        unanswered = (c.who == rows.plain(who)) & (c.key == rows.plain(key)) & c.answer.is_(None)
        # If we die here, the answer is made again from the processes; nobody saw this one.
        self._run(update(requests).where(unanswered).values(answer=rows.plain(answer)))

    def keys(self, ids: Sequence[ProcessId]) -> dict[ProcessId, str]:
        return self._database.read(
            lambda connection: {
                process: key for some in chunks(ids) for process, key in _keys(connection, some)
            }
        )

    # -- tokens -------------------------------------------------------------------------------------

    def put_token(self, token: AccessToken, asked: Asked) -> None:
        def work(connection: Connection) -> None:
            taken = (tokens.c.id == token.id) | (tokens.c.name == rows.plain(token.name))
            if connection.execute(select(tokens.c.id).where(taken)).first():
                raise token_exists(token.name)
            connection.execute(insert(tokens).values(columns(token) | {"created_at": self._database.clock}))
            note(connection, self._database.clock, asked)

        self._database.write(work)

    def token(self, id: str) -> AccessToken | None:
        found = self._values(AccessToken, select(tokens).where(tokens.c.id == rows.plain(id)))
        return found[0] if found else None

    def tokens(self) -> list[AccessToken]:
        return self._values(AccessToken, select(tokens).order_by(tokens.c.created_at, tokens.c.name))

    def revoke_token(self, id: str, asked: Asked) -> AccessToken:
        def work(connection: Connection) -> AccessToken:
            this = tokens.c.id == rows.plain(id)
            revoke = update(tokens).where(this, tokens.c.revoked_at.is_(None))
            if connection.execute(revoke.values(revoked_at=self._database.clock)).rowcount == 1:
                note(connection, self._database.clock, asked)
            row = connection.execute(select(tokens).where(this)).mappings().one_or_none()
            if row is None:
                raise no_such_token(id)
            return rows.value(AccessToken, row)

        return self._database.write(work)

    # -- halts --------------------------------------------------------------------------------------

    def put_halt(self, halt: Halt, asked: Asked) -> Halt:
        def work(connection: Connection) -> Halt:
            this = _halt(halt.kind, halt.source)
            row = connection.execute(select(halts).where(this)).mappings().one_or_none()
            if row is None:
                connection.execute(insert(halts).values(columns(halt) | {"made_at": self._database.clock}))
                note(connection, self._database.clock, asked)
                row = connection.execute(select(halts).where(this)).mappings().one()
            return rows.value(Halt, row)

        return self._database.write(work)

    def lift_halt(self, kind: str, source: str, asked: Asked) -> bool:
        def work(connection: Connection) -> bool:
            lifted = connection.execute(delete(halts).where(_halt(kind, source))).rowcount == 1
            if lifted:
                note(connection, self._database.clock, asked)
            return lifted

        return self._database.write(work)

    # -- the audit, proofs, servers -----------------------------------------------------------------

    def audit(self, asked: Asked, outcome: AuditOutcome, detail: str = "") -> None:
        clock = self._database.clock
        self._database.write(
            lambda connection: note(connection, clock, asked, outcome=outcome, detail=detail)
        )

    def audited(self, before: int | None, limit: int) -> list[AuditEntry]:
        statement = select(audit).order_by(audit.c.number.desc()).limit(limit)
        return self._values(
            AuditEntry, statement if before is None else statement.where(audit.c.number < before)
        )

    def audited_about(
        self, process_id: ProcessId, since: datetime, until: datetime, limit: int
    ) -> list[AuditEntry]:
        return self._values(AuditEntry, audited_about_statement(process_id, since, until, limit))

    def record_proof(self, proof: Proof) -> None:
        values = columns(proof) | {"made_at": self._database.clock}
        self._database.write(lambda connection: connection.execute(insert(proofs).values(values)).rowcount)

    def proofs(self, ids: Sequence[ProcessId]) -> list[Proof]:
        c = proofs.c
        found = [
            proof
            for some in chunks(ids)
            for proof in self._values(
                Proof, select(proofs).where(c.process_id.in_(some)).order_by(c.seq.desc())
            )
        ]
        return sorted(found, key=lambda proof: proof.made_at or time_from_us(0), reverse=True)

    def beat_server(self, server: Server) -> None:
        clock = self._database.clock
        values = columns(server, "started_at") | {"heartbeat_at": clock}
        self._upsert(servers, "id", values, {"started_at": clock})

    def servers(self) -> list[Server]:
        return self._values(Server, select(servers).order_by(servers.c.id))

    def forget_server(self, id: str) -> None:
        self._run(delete(servers).where(servers.c.id == rows.plain(id)))

    def totals(self) -> Totals:
        def work(connection: Connection) -> Totals:
            now_us = self._database.now_us(connection)
            self.ended_work = ended_work(connection, now_us, self.ended_work)
            return load_totals(connection, now_us, self.ended_work)

        return self._database.read(work)

    def _values(self, kind: type[rows.T], statement: Select[Any]) -> list[rows.T]:
        return self._database.read(
            lambda connection: [rows.value(kind, row) for row in connection.execute(statement).mappings()]
        )


def _halt(kind: str, source: str) -> Any:
    return (halts.c.kind == rows.plain(kind)) & (halts.c.source == rows.plain(source))


def _keys(connection: Connection, ids: Sequence[ProcessId]) -> Iterator[tuple[ProcessId, str]]:
    """A request is written just before its processes, in their transaction; who joins one comes later. Found by
    time, for which there is an index."""
    made = select(processes.c.id, processes.c.created_at).where(processes.c.id.in_(ids))
    created = {ProcessId(id): time_from_us(at) for id, at in connection.execute(made)}
    if not created:
        return
    begin, end = (pick(created.values()) for pick in (min, max))
    near = requests.c.made_at.between(to_us(begin - _SUBMIT_LASTS), to_us(end))
    shown = [null().label("answer") if one is requests.c.answer else one for one in requests.c]
    for row in connection.execute(select(*shown).where(near).order_by(requests.c.made_at)).mappings():
        request = rows.value(KeyedRequest, row)
        for process in request.processes:
            if process in created and request.made_at <= created[process] <= request.made_at + _SUBMIT_LASTS:
                yield process, request.key
                del created[process]


def audited_about_statement(
    process_id: ProcessId, since: datetime, until: datetime, limit: int
) -> Select[Any]:
    """A range of `ix_audit_at`: rows name their processes as JSON, which nothing finds faster."""
    c = audit.c
    about = c.processes.contains(f'"{process_id}"', autoescape=True)
    span = c.at.between(to_us(since), to_us(until))
    return select(audit).where(span, about).order_by(c.number).limit(limit)
