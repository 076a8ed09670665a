"""Verbs of the installation: its programs, its health, who may use it, and who did what."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from calve.app import processes as _processes
from calve.app import view
from calve.app.front import Json
from calve.app.verbs.opened import Opened
from calve.app.verbs.served import Served, limited
from calve.model.access import Role

if TYPE_CHECKING:
    from calve.app.front import WorkerStatus
    from calve.app.work import WorkerProgram

_BESIDE = timedelta(seconds=2)  # the audit's time and the process's are read one after the other


class InstallationVerbs(Opened):
    def now(self) -> datetime:
        """The store's clock, by which the ages of processes are measured."""
        return self._app.store.now()

    def settings(self) -> Json:
        """Secrets are masked."""
        return view.config_json(self.config)

    def workers(self) -> "list[WorkerStatus]":
        return _processes.workers(self._app)

    def servers(self) -> list[Json]:
        return [view.plain_json(one) for one in self.registry.servers()]

    def breakers(self) -> list[Json]:
        """Services that are down."""
        return [view.breaker_json(one) for one in self._app.store.breakers()]

    def totals(self) -> Json:
        """How much there is of everything, and when each table last succeeded."""
        return view.plain_json(self.registry.totals())

    def audit(self, *, before: int | None = None, limit: int = 100, process: str = "") -> Json:
        """Changes and who asked for them, newest first; of one process, those of its life, oldest first."""
        if process:
            [one] = self._app.processes([process])
            ended = (one.finished_at or self.now()) + _BESIDE
            about = self.registry.audited_about(one.id, one.created_at - _BESIDE, ended, limit)
            return {"entries": [view.plain_json(one) for one in about], "next": None}
        found = [view.plain_json(one) for one in self.registry.audited(before, limit)]
        return {"entries": found, "next": found[-1]["number"] if len(found) == limit else None}

    def feed(self, after: str = "", *, limit: int = 100) -> Json:
        """Events of all processes after a cursor, in one order; see `app.feed`."""
        from calve.app.feed import feed_page

        return feed_page(self.registry, after, limit=limit).to_json()

    def doctor(self, *, spark: bool = True) -> Iterator[Json]:
        """Findings as they are made. Puts a small object into each warehouse and removes it."""
        from calve.app.doctor import examine

        return (view.finding_json(one) for one in examine(self._app, spark=spark))

    def versions(self) -> Json:
        """Of all parts of this program."""
        from calve.app.support import versions

        return versions()

    def token_new(self, role: str, *, name: str = "", expires: timedelta | None = None) -> Json:
        """The answer has the token's text, which nobody can see again."""
        from calve.app import access

        asked = self._asking("token_new")
        return access.token_new(self.registry, Role(role), asked, now=self.now(), name=name, expires=expires)

    def token_list(self) -> list[Json]:
        from calve.app import access

        return access.token_list(self.registry, self.now())

    def token_revoke(self, names: Sequence[str]) -> list[Json]:
        """By name or id."""
        from calve.app import access

        return access.token_revoke(self.registry, tuple(names), self._asking("token_revoke"), self.now())

    def notify_test(self, name: str) -> Json:
        """Send one message to a target of the configuration, now."""
        from calve.app import notices

        target = notices.find_target(self.config, name)
        with self._audited("notify_test", target.key):
            return notices.notify_test(target)

    def worker(self) -> "WorkerProgram":
        from calve.app.work import WorkerProgram

        return WorkerProgram(self._app)


SERVED: Mapping[str, Served] = {
    "now": Served(answer=lambda calve, _: {"now": view.time_json(calve.now())}),
    "settings": Served(answer=lambda calve, _: calve.settings()),
    "workers": Served(answer=lambda calve, _: [view.worker_json(one) for one in calve.workers()]),
    "servers": Served(answer=lambda calve, _: calve.servers()),
    "breakers": Served(answer=lambda calve, _: calve.breakers()),
    "totals": Served(answer=lambda calve, _: calve.totals()),
    "audit": Served(
        answer=lambda calve, given: calve.audit(
            before=given.get("before"), limit=limited(given, 100), process=given.get("process", "")
        ),
        options={"before": int, "limit": int, "process": str},
    ),
    "feed": Served(
        answer=lambda calve, given: calve.feed(given.get("after", ""), limit=limited(given, 100)),
        options={"after": str, "limit": int},
    ),
    "doctor": Served(
        answer=lambda calve, given: list(calve.doctor(spark=given.get("spark", False))), options={"spark": bool}
    ),
    "versions": Served(answer=lambda calve, _: calve.versions()),
    "support": Served(
        answer=lambda calve, given: calve.support(with_names=given.get("with_names", False)),
        options={"with_names": bool},
    ),
    "token_new": Served(
        answer=lambda calve, given: calve.token_new(
            given["role"], name=given.get("name", ""), expires=given.get("expires")
        ),
        options={"role": str, "name": str, "expires": timedelta}, required=("role",),
        choices={"role": tuple(role.value for role in Role)},
    ),
    "token_list": Served(answer=lambda calve, _: calve.token_list()),
    "token_revoke": Served(
        answer=lambda calve, given: calve.token_revoke(given["names"]), options={"names": list}, required=("names",)
    ),
    "notify_test": Served(
        answer=lambda calve, given: calve.notify_test(given["name"]), options={"name": str}, required=("name",)
    ),
}  # fmt: skip
