"""The last known facts about what lies outside, and who is signed in.

A sighting's body lies in pieces, a row each, and the first row has the summary as well: a page reads what it shows. Who looks is decided by a compare-and-set on `looked_until`, so that several servers look once.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Select, delete, insert, literal_column, or_, select, update

from calve.model.seen import Sighting, WebSession
from calve.store.database import from_us, seconds_to_us, to_us
from calve.store.registry import SqlRegistry
from calve.store.rows import chunks, columns, plain
from calve.store.tables import sessions, sightings

_LIGHT = [column for column in sightings.c if column.name not in ("piece", "body")]


def _of(subject: str, what: str) -> Any:
    return (sightings.c.subject == plain(subject)) & (sightings.c.what == plain(what))


class Sightings(SqlRegistry):
    def claim_look(self, subject: str, what: str, *, again_seconds: float, lease_seconds: float) -> bool:
        clock, c = self._database.clock, sightings.c
        first = _of(subject, what) & (c.piece == 0)
        due = or_(c.tried_at.is_(None), c.tried_at <= clock - seconds_to_us(again_seconds))
        free = or_(c.looked_until.is_(None), c.looked_until <= clock)
        until = {"looked_until": clock + seconds_to_us(lease_seconds)}
        new = columns(Sighting(subject=subject, what=what)) | until | {"piece": 0, "body": ""}
        made = self._inserting(sightings).values(new).on_conflict_do_nothing().returning(c.piece)

        def work(connection: Connection) -> bool:
            if connection.execute(update(sightings).where(first, due, free).values(until)).rowcount:
                return True
            # If there is no row yet, one of several that make it is the one to look.
            return connection.execute(made).first() is not None

        # If we die here, nobody looks until the claim runs out.
        return self._database.write(work)

    def put_sighting(self, sighting: Sighting, body: Sequence[str] = ()) -> None:
        clock = self._database.clock
        seen = columns(sighting) | {
            "seen_at": clock, "tried_at": clock, "looked_until": None, "error": "", "pieces": len(body)
        }  # fmt: skip
        pieces = [seen | {"piece": piece, "body": plain(text)} for piece, text in enumerate(body or ("",))]

        def work(connection: Connection) -> None:
            connection.execute(delete(sightings).where(_of(sighting.subject, sighting.what)))
            for piece in pieces:
                connection.execute(insert(sightings).values(piece))

        # If we die here, the last sighting stays as it was.
        self._database.write(work)

    def fail_look(self, subject: str, what: str, error: str) -> None:
        failed = {"tried_at": self._database.clock, "looked_until": None, "error": plain(error)}
        self._run(update(sightings).where(_of(subject, what)).values(failed))

    def sighting(self, subject: str, what: str) -> Sighting | None:
        statement = select(*_LIGHT).where(_of(subject, what), sightings.c.piece == 0)
        found = self._values(Sighting, statement)
        return found[0] if found else None

    def sightings(self, what: str, *, after: datetime | None = None, limit: int = 1000) -> list[Sighting]:
        statement = sightings_statement(what, after, limit)
        return self._database.read(
            lambda connection: [_sighting(*row) for row in connection.execute(statement)]
        )

    def sightings_of(self, what: str, subjects: Sequence[str]) -> list[Sighting]:
        statements = [sightings_of_statement(what, some) for some in chunks(subjects)]
        return self._database.read(
            lambda connection: [_sighting(*row) for one in statements for row in connection.execute(one)]
        )

    def sighting_body(self, subject: str, what: str, *, first: int = 0, limit: int = 1) -> list[str]:
        c = sightings.c
        statement = (
            select(c.body)
            .where(_of(subject, what), c.piece >= first, c.piece < first + limit, c.pieces > 0)
            .order_by(c.piece)
        )
        return self._database.read(lambda connection: list(connection.execute(statement).scalars()))


def _sighting(
    subject: str, what: str, seen: int | None, tried: int | None, until: int | None, *rest: Any
) -> Sighting:
    """By hand: a page reads a thousand."""
    seen_by, error, pieces, summary = rest
    return Sighting(
        subject=subject,
        what=what,
        seen_at=from_us(seen),
        tried_at=from_us(tried),
        looked_until=from_us(until),
        seen_by=seen_by,
        error=error,
        pieces=pieces,
        summary=summary,
    )


def sightings_of_statement(what: str, subjects: Sequence[str]) -> Select[Any]:
    c = sightings.c
    return select(*_LIGHT).where(
        c.subject.in_([plain(one) for one in subjects]), c.what == plain(what), c.piece == 0
    )


def sightings_statement(what: str, after: datetime | None, limit: int) -> Select[Any]:
    c = sightings.c
    # In the words of the partial index, so that it is used.
    statement = select(*_LIGHT).where(c.piece == literal_column("0"))
    if what:
        statement = statement.where(c.what == what)
    if after is not None:
        statement = statement.where(c.tried_at > to_us(after))
    return statement.order_by(c.tried_at, c.subject).limit(limit)


class SqlSessions(SqlRegistry):
    def put_session(self, session: WebSession, *, seconds: float) -> None:
        clock = self._database.clock
        times = {"made_at": clock, "expires_at": clock + seconds_to_us(seconds)}
        made = insert(sessions).values(columns(session) | times)
        # If we die here, someone signs in again.
        self._database.write(lambda connection: connection.execute(made).rowcount)

    def session(self, hash: str) -> WebSession | None:
        c = sessions.c
        valid = (c.hash == plain(hash)) & (c.expires_at > self._database.clock)
        found = self._values(WebSession, select(sessions).where(valid))
        return found[0] if found else None

    def sessions(self) -> list[WebSession]:
        c = sessions.c
        valid = select(sessions).where(c.expires_at > self._database.clock)
        return self._values(WebSession, valid.order_by(c.made_at.desc(), c.hash))

    def forget_session(self, hash: str) -> None:
        self._run(delete(sessions).where(sessions.c.hash == plain(hash)))
