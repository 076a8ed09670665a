"""How a partition gets back into its table, whoever began: a release that must end, or a person who undoes one.

Always in this order: nothing more can leave; what was held is journaled; the rows are back, and looked at; the lake takes
its marks back; the view reads the table again. Each step looks first, so any of them may be repeated. Rows that are nowhere
keep their marks for ever: the lake then has the only copy.
"""

from dataclasses import dataclass

from calve.clickhouse.tier.quarantine import QuarantineAttempt, Where
from calve.model.change import ReleaseTo
from calve.model.errors import PermanentError, TemporaryError
from calve.model.process import Process
from calve.model.states import ReleaseState
from calve.model.tier import Release
from calve.policy.release_plan import ReleaseJournal, ReleasePlan
from calve.policy.release_ports import HotSide, ReleasePorts

_ENDED = (ReleaseState.RETURNED, ReleaseState.LOST)
_BACK = ({Where.TABLE}, {Where.BOTH}, {Where.TABLE, Where.BOTH})
MOVE = "move"


@dataclass(frozen=True, kw_only=True)
class WayBack:
    """Of one release, walked by `process`: its own, or one that undoes it."""

    ports: ReleasePorts
    process: Process
    plan: ReleasePlan
    release: Release

    def walk(self, why: str) -> None:
        """TemporaryError while rows are on their way, or divided over replicas."""
        if self.release.state in _ENDED:
            return
        content = ""
        if self.release.parts:
            hot = self.ports.hot(self.plan)
            content = self._put_back(hot, self._closed(hot, why))
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

    def _closed(self, hot: HotSide, why: str) -> QuarantineAttempt:
        """From now on nothing leaves, and what is held is known by its hashes."""
        journal = ReleaseJournal.from_json(self.release.parts)
        attempt = journal.attempt(hot.look().table, self.release)
        moves = [one for one in self.ports.intents(self.release.process_id) if one.step == MOVE]
        # If we die here, the place is closed or not; closing it again finds out.
        hot.close(attempt, [one.query_id for one in moves])
        placements = hot.placements(attempt)
        for seen in placements:
            attempt = attempt.noted(seen)
        if all(seen.where is Where.NOWHERE for seen in placements):
            self._lose()
        if self.release.state is not ReleaseState.RETURNING:
            noted = ReleaseJournal(
                top=journal.top, hashes=tuple(sorted(attempt.hashes)), mutations=journal.mutations
            )
            # If we die here, nothing has come back yet, and the parts are known.
            self._journal(ReleaseState.RETURNING, parts=noted.to_json(), error=why)
        return attempt

    def _put_back(self, hot: HotSide, attempt: QuarantineAttempt) -> str:
        """The content that the partition has then. Parts that are at both places are not moved once more: that would
        double them."""
        found = {seen.where for seen in hot.placements(attempt)}
        if found == {Where.QUARANTINE}:
            # If we die here, the parts are at either place: the next try looks.
            hot.put_back(attempt, f"calve-{self.process.id}-back")
            found = {seen.where for seen in hot.placements(attempt)}
        if found not in _BACK:
            raise TemporaryError(
                f"partition {attempt.partition} of {attempt.table} is not in the same place on every server:"
                f" {', '.join(sorted(found))}",
                code="divided",
                hint="it is checked again; compare system.parts of the table and of calve_released",
            )
        if self.release.sums and (sums := str(hot.live(attempt))) != self.release.sums:
            raise PermanentError(
                f"partition {attempt.partition} of {attempt.table} came back with other rows ({sums}) than left it"
                f" ({self.release.sums}); the lake keeps its marks",
                code="came_back_differs",
                hint="compare it with the lake before you change either",
            )
        return hot.content(attempt)

    def _lose(self) -> None:
        said = "its parts are neither in the table nor in quarantine; only the lake is known to have the rows"
        # If we die here, it is found again.
        self._journal(ReleaseState.LOST, error=said)
        raise PermanentError(
            f"partition {self.release.partition} of {self.plan.request.name}: {said}",
            code="released_rows_missing",
            hint=f"calve policy explain {self.plan.request.name} {self.release.partition}",
        )

    def _journal(self, state: ReleaseState, *, parts: str | None = None, error: str | None = None) -> None:
        change = ReleaseTo(state=state, release=self.release.process_id, parts=parts, error=error)
        self.ports.journal(self.process, change)
