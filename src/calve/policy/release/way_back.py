"""How a partition gets back into its table, for a release that must end and for a person who undoes one.

Always in this order: nothing more can leave; what was held is journaled; the rows are back, and looked at; the lake takes
its marks back; the view reads the table again. Each step looks first, so any of them may be repeated. Rows that are nowhere
keep their marks for ever: the lake then has the only copy.

Days may lie between two tries. So mutations that came since the rows left are looked for right before each statement that brings
them back, and not only once: rows that a DELETE has removed meanwhile stay out until a person insists.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from calve.clickhouse.tier.quarantine import QuarantineAttempt, QuarantinePlace, Where, twins
from calve.model.change import ReleaseTo
from calve.model.errors import PermanentError, RefusedError, TemporaryError
from calve.model.process import Process
from calve.model.states import ReleaseState
from calve.model.tier import Release
from calve.policy.release.plan import ReleaseJournal, ReleasePlan
from calve.policy.release.ports import HotSide, ReleasePorts, SeenPartition

_ENDED = (ReleaseState.RETURNED, ReleaseState.LOST)
_BACK = ({Where.TABLE}, {Where.BOTH}, {Where.TABLE, Where.BOTH})
MOVE = "move"


class MutatedSinceError(RefusedError):
    """A mutation came after the move: nothing more leaves by the release, and the rows that are out of the table stay out."""


def refuse_later_mutations(plan: ReleasePlan, release: Release, seen: SeenPartition) -> None:
    """What a mutation changed or deleted since the rows left would come back with them."""
    if after := sorted(set(seen.mutations) - set(ReleaseJournal.from_json(release.parts).mutations)):
        raise MutatedSinceError(
            f"mutation {after[0]} of {plan.request.name} came after partition {release.partition} had left: what it changed or"
            " deleted would come back as it was",
            code="mutated",
            hint=f"calve policy undo '{plan.request.name}' {release.partition} --force brings the rows back anyway",
        )


def misfit(hot: HotSide, attempt: QuarantineAttempt, error: type[TemporaryError | RefusedError]) -> None:
    """Raises where the table has lost or changed columns since: ClickHouse moves parts between tables of the same columns."""
    if columns := hot.misfits(attempt):
        raise error(
            f"partition {attempt.partition} of {attempt.table} cannot come back: since it left, its table has lost or changed"
            f" {', '.join(columns)}",
            code="structure_changed",
            hint=f"ALTER TABLE {attempt.table.sql} ADD COLUMN {columns[0]}, or change it back; once the rows are back, it may go",
        )


@dataclass(frozen=True, kw_only=True)
class WayBack:
    """Of one release, walked by `process`: its own, or one that undoes it."""

    ports: ReleasePorts
    process: Process
    plan: ReleasePlan
    release: Release
    insist: bool = False  # a person wants the rows, whatever came since they left

    def walk(self, why: str) -> None:
        """TemporaryError while rows are on their way, or divided over replicas. MutatedSinceError: the release is QUARANTINED as
        before, or RETURNING until a person insists."""
        if self.release.state in _ENDED:
            return
        content = ""
        if self.release.parts:
            hot = self.ports.hot(self.plan)
            content = self._put_back(hot, *self._closed(hot, why))
        elif self.release.state is not ReleaseState.RETURNING:
            # If we die here, the marks are taken back by the next try.
            self._journal(ReleaseState.RETURNING, error=why)
        # If we die here, or it arrives late: the next try finds the marks gone, and the mark itself can no longer land.
        self.ports.cold(self.plan).unmark(self.release.process_id, content)
        shown = self.ports.shown(self.plan)
        if shown is not None:
            # If we die here, the view reads the lake, which has the same rows, until the next try.
            shown.turn(cold=False)
        # If we die here, all of it is found done.
        self._journal(ReleaseState.RETURNED)

    def _closed(self, hot: HotSide, why: str) -> tuple[QuarantineAttempt, str, ReleaseJournal]:
        """From now on nothing leaves, and nothing of an earlier try comes back; what is held is known by its hashes, and by its
        sums."""
        journal, seen_now = ReleaseJournal.from_json(self.release.parts), hot.look()
        attempt = journal.attempt(seen_now.table, self.release)
        moves = [one.query_id for one in self.ports.intents(self.release.process_id) if one.step == MOVE]
        # If we die here, the place is closed or not; closing it again finds out.
        hot.close(attempt, [*moves, self._query("back")])
        placements = hot.placements(attempt)
        for seen in placements:
            attempt = attempt.noted(seen)
        if all(seen.where is Where.NOWHERE for seen in placements):
            self._lose()
        if self.release.state is not ReleaseState.RETURNING:
            noted = replace(journal, hashes=tuple(sorted(attempt.hashes)), back_top=-1)
            sums = self._whole(hot, attempt, placements)
            # If we die here, nothing has come back yet, and the parts are known.
            self._journal(ReleaseState.RETURNING, parts=noted.to_json(), sums=sums, error=why)
            return attempt, sums, noted
        return attempt, self.release.sums, journal

    def _whole(self, hot: HotSide, attempt: QuarantineAttempt, places: Sequence[QuarantinePlace]) -> str:
        """What has to come back, by value; "" where nobody can tell."""
        if self.release.sums or len(places) > 1 or not places[0].holds_all or self._doubles(places[0]):
            return self.release.sums
        return str(hot.held(attempt))

    def _put_back(
        self, hot: HotSide, attempt: QuarantineAttempt, expected: str, journal: ReleaseJournal
    ) -> str:
        """The content that the partition has then. Parts that are at both places are not moved once more: that would
        double them."""
        places = hot.placements(attempt)
        if {seen.where for seen in places} == {Where.DIVIDED} and len(places) == 1:
            places = self._gathered(hot, attempt, places[0], expected, journal)
        elif {seen.where for seen in places} == {Where.QUARANTINE}:
            self._refuse_strangers(attempt, places)
            self._refuse_doubles(places)
            places = self._moved(hot, attempt, places, journal)
        found = {seen.where for seen in places}
        if found not in _BACK:
            raise self._divided(attempt, places)
        if expected and (sums := str(hot.live(attempt))) != expected:
            raise PermanentError(
                f"partition {attempt.partition} of {attempt.table} came back with other rows ({sums}) than left it"
                f" ({expected}); the lake keeps its marks",
                code="came_back_differs",
                hint="compare it with the lake before you change either",
            )
        return hot.content(attempt)

    def _moved(
        self,
        hot: HotSide,
        attempt: QuarantineAttempt,
        places: Sequence[QuarantinePlace],
        journal: ReleaseJournal,
    ) -> list[QuarantinePlace]:
        if not self.insist:
            self._refuse_mutations(hot, places)
        misfit(hot, attempt, TemporaryError)
        if journal.back_top < 0:
            # If we die here, nothing has come back, and the next try asks about parts that came since for nothing.
            self._journal(ReleaseState.RETURNING, parts=replace(journal, back_top=hot.look().top).to_json())
        # If we die here, the parts are at either place, or at both: the next try looks.
        hot.put_back(attempt, self._query("back"))
        return hot.placements(attempt)

    def _refuse_mutations(self, hot: HotSide, places: Sequence[QuarantinePlace]) -> None:
        whole = {seen.where for seen in places} == {Where.QUARANTINE}
        try:
            refuse_later_mutations(self.plan, self.release, hot.look())
        except MutatedSinceError:
            if whole and self.release.settled_at is not None:
                # If we die here, it is in quarantine as before, and the next try is refused as well.
                self._journal(ReleaseState.QUARANTINED)
            raise

    def _query(self, what: str) -> str:
        return f"calve-{self.process.id}-{what}"

    def _gathered(
        self,
        hot: HotSide,
        attempt: QuarantineAttempt,
        place: QuarantinePlace,
        expected: str,
        journal: ReleaseJournal,
    ) -> list[QuarantinePlace]:
        """A server that dies inside of a MOVE leaves some parts at both places. What quarantine has and the table too, file for
        file, is removed from quarantine. If all that is left adds up to what left the table, each row is there once, and moves."""
        if expected and place.copies:
            # If we die here, some copies are removed; those that are left go with the next try.
            hot.thin(attempt, self._query("thin"))
        [place] = hot.placements(attempt)
        if expected and not place.copies and str(hot.held(attempt) + hot.live(attempt)) == expected:
            return self._moved(hot, attempt, [place], journal)
        return [place]

    def _refuse_strangers(self, attempt: QuarantineAttempt, places: Sequence[QuarantinePlace]) -> None:
        """After a return that may have been cut off: a part that is newer, and large enough to be merged of parts that came back,
        may have rows that are in quarantine, too."""
        known = ReleaseJournal.from_json(self.release.parts).back_top
        if self.release.state is not ReleaseState.RETURNING or known < 0:
            return
        for seen in places:
            least = min(part.rows for part in seen.held)
            for part in seen.late:
                if part.min_block > known and part.rows >= least:
                    raise TemporaryError(
                        f"part {part.name} of {attempt.table} came while partition {attempt.partition} was on its way back, and may"
                        f" have rows of {self.release.place}",
                        code="divided",
                        hint=f"ALTER TABLE {attempt.table.sql} DETACH PART '{part.name}': the return then goes on. Attach it"
                        " afterwards, unless its rows are back",
                    )

    def _doubles(self, seen: QuarantinePlace) -> frozenset[str]:
        had = ReleaseJournal.from_json(self.release.parts).twins
        return twins(part.hash for part in seen.held) - set(had)

    def _refuse_doubles(self, places: Sequence[QuarantinePlace]) -> None:
        """A server that dies inside of a MOVE and is sent it again, as by a proxy, moves what it had moved: quarantine then has
        parts twice that the table had once."""
        for seen in places:
            if more := self._doubles(seen):
                names = [part.name for part in seen.held if part.hash == min(more)]
                raise TemporaryError(
                    f"{self.release.place} has parts twice that partition {self.release.partition} had once: {', '.join(names)}",
                    code="divided",
                    hint=f"of each such pair, ALTER TABLE {self.release.place} DROP PART '{names[-1]}': the return then goes on",
                )

    def _divided(self, attempt: QuarantineAttempt, places: Sequence[QuarantinePlace]) -> TemporaryError:
        where = ", ".join(sorted({seen.where for seen in places}))
        late = {part.name for seen in places for part in seen.late}
        live = sorted({part.name for seen in places for part in seen.live} - late)
        held = sorted({part.name for seen in places for part in seen.held})
        return TemporaryError(
            f"partition {attempt.partition} of {attempt.table} is not at one place at every server: {where}",
            code="divided",
            hint=f"it is looked at again. If it stays so, compare {', '.join(live[:3]) or 'no parts'} of {attempt.table} with"
            f" {', '.join(held[:3]) or 'no parts'} of {self.release.place}, and DROP PART what the table has from quarantine",
        )

    def _lose(self) -> None:
        said = "its parts are neither in the table nor in quarantine; only the lake is known to have the rows"
        # If we die here, it is found again.
        self._journal(ReleaseState.LOST, error=said)
        raise PermanentError(
            f"partition {self.release.partition} of {self.plan.request.name}: {said}",
            code="released_rows_missing",
            hint=f"calve policy explain {self.plan.request.name} {self.release.partition}",
        )

    def _journal(
        self,
        state: ReleaseState,
        *,
        parts: str | None = None,
        sums: str | None = None,
        error: str | None = None,
    ) -> None:
        change = ReleaseTo(state=state, release=self.release.process_id, parts=parts, sums=sums, error=error)
        self.ports.journal(self.process, change)
