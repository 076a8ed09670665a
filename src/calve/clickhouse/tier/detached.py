"""The quarantine for tables where MOVE PARTITION is impossible: DETACH PARTITION, and ATTACH PART by name.

Weaker than MOVE, and only for a person who asks for it: detached parts cannot be read, the source does not say their rows or
hashes, and there is no name to take away, so a DETACH that wakes up late still works (it is then found by
`placement`, and attached). Never DETACH PART: with one name it takes a part that a merge has just made of others. Never
ATTACH PARTITION: it takes parts that an operator detached, too. Only journaled names are touched, each in the
folder of the table's own uuid.
"""

from collections.abc import Sequence
from dataclasses import replace

from calve.clickhouse.source import Session
from calve.clickhouse.sql.tokens import string
from calve.clickhouse.tier.quarantine import HeldPart, QuarantineAttempt, QuarantinePlace, end, parts
from calve.model.errors import PermanentError, RefusedError, TemporaryError


class DetachingQuarantine:
    """See `quarantine.Quarantine`. `attempt.parts` are the names that `journaled` gave."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def journaled(self, attempt: QuarantineAttempt) -> QuarantineAttempt:
        """With the parts that the partition has, once merges stand still. Before `prepare`, and kept."""
        session, table = self._session, attempt.table
        # If we die here, merges of the table stand still until they are started or the server is.
        session.execute(f"SYSTEM STOP MERGES {table.sql}", what=f"table {table}")
        merging = session.rows(
            f"SELECT result_part_name AS name FROM system.merges WHERE database = {string(table.database)} "
            f"AND table = {string(table.name)} AND partition_id = {string(attempt.partition)}",
            what=f"merges of {table}",
        )
        if merging:
            raise TemporaryError(
                f"partition {attempt.partition} of {table} is being merged into {merging[0]['name']}",
                code="merging",
            )
        live = parts(session, table.full_name, attempt.partition)
        names = tuple(part.name for part in live)
        taken = sorted(set(names) & set(self._detached(attempt)))
        if taken:
            raise RefusedError(
                f"detached parts of {table} have the name {taken[0]}, which is in the table, too",
                code="detached_taken",
                hint="attach or remove them first: they could not be told apart",
            )
        return replace(attempt, parts=names, hashes=attempt.hashes | {part.hash for part in live})

    def prepare(self, attempt: QuarantineAttempt) -> None:
        if not attempt.parts:
            raise PermanentError("the names of the parts were not journaled", code="not_journaled")

    def take_out(self, attempt: QuarantineAttempt, query_id: str) -> None:
        self.prepare(attempt)
        live = {part.name for part in parts(self._session, attempt.table.full_name, attempt.partition)}
        if live != set(attempt.parts):
            raise RefusedError(
                f"partition {attempt.partition} of {attempt.table} has other parts than were journaled",
                code="content_changed",
            )
        # If we die here, the parts are in the table or in its `detached` folder, under their names.
        self._session.execute(
            f"ALTER TABLE {attempt.table.sql} DETACH PARTITION ID {string(attempt.partition)}",
            {"alter_sync": "2"} if attempt.table.clause.replicated else {},
            what=f"detaching partition {attempt.partition} of {attempt.table}",
            query_id=query_id,
        )

    def close(self, attempt: QuarantineAttempt, query_ids: Sequence[str]) -> None:
        """Ends what is under way. There is no name to take away."""
        for query_id in query_ids:
            end(self._session, query_id)

    def put_back(self, attempt: QuarantineAttempt, query_id: str) -> None:
        detached = self._detached(attempt)
        for part in attempt.parts:
            if part not in detached:
                continue
            # If we die here, the next try goes on with the parts that are still detached.
            self._session.execute(
                f"ALTER TABLE {attempt.table.sql} ATTACH PART {string(part)}",
                what=f"attaching {part} to {attempt.table}",
                query_id=query_id,
            )

    def placement(self, attempt: QuarantineAttempt) -> QuarantinePlace:
        """Detached parts have neither rows nor hashes here, so that both places look like one divided."""
        live = parts(self._session, attempt.table.full_name, attempt.partition)
        held = tuple(
            HeldPart(name=part, rows=0, bytes=size, hash="", min_block=0)
            for part, size in self._detached(attempt).items()
            if part in attempt.parts
        )
        return QuarantinePlace(live=live, held=held, closed=True, top=attempt.top, known=attempt.hashes)

    def _detached(self, attempt: QuarantineAttempt) -> dict[str, int]:
        """Names and bytes of what is detached of the partition, in the table's own folder, for no reason of the server's."""
        table = attempt.table
        found = self._session.rows(
            "SELECT name, bytes_on_disk AS bytes, path FROM system.detached_parts WHERE reason = '' "
            f"AND database = {string(table.database)} AND table = {string(table.name)} "
            f"AND partition_id = {string(attempt.partition)} ORDER BY name",
            what=f"detached parts of {table}",
        )
        return {
            row["name"]: int(row["bytes"])
            for row in found
            if not table.uuid or f"/{table.uuid}/detached/" in f"/{row['path']}"
        }
