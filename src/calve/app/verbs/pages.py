"""Verbs that answer with a whole page of the dashboard: one document, read from the store only."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from calve.app import view
from calve.app.front import Json
from calve.app.verbs.opened import Opened
from calve.app.verbs.served import Served, limited


class PageVerbs(Opened):
    def attention(self) -> Json:
        """What a person must do something about now, and the work of the last day."""
        from calve.app.pages.attention import attention

        return attention(self._app, self._app.overview)

    def tables(
        self, *, q: str = "", sort: str = "last", order: str = "", page: int = 1, every: bool = False
    ) -> Json:
        """Pairs of a source table and a destination."""
        from calve.app.pages.tables import tables

        return tables(self._app, self._app.overview, q=q, sort=sort, order=order, page=page, every=every)

    def table(self, source: str, to: str, *, page: int = 1, exported: str = "") -> Json:
        """One source table and its destination: its partitions as they were last seen, and what is known since."""
        from calve.app.pages.table import table

        return table(self._app, source, to, page=page, exported=exported)

    def sheet(
        self, id: str, *, states: Sequence[str] = (), after: int = -1, before: int | None = None
    ) -> Json:
        """One process, whatever its size: a page of its tasks, a page of its events, its attempts as a picture."""
        from calve.app.pages.sheet import sheet

        return sheet(self._app, id, states=states, after=after, before=before)

    def vault(self, *, name: str = "", page: int = 1) -> Json:
        """Backups as they were last seen, what proved them, and restores."""
        from calve.app.pages.backups import vault

        return vault(self._app, name=name, page=page)

    def tiering(self, *, name: str = "") -> Json:
        """Policies and holds as a page shows them; `name`: one policy alone, with what waits, comes and left."""
        from calve.app.policies.page import tiering

        return tiering(self._app, name=name)

    def system(self) -> Json:
        """Workers, servers, outages, halts and errors."""
        from calve.app.pages.system import system

        return system(self._app)

    def search(self, q: str) -> Json:
        """Ids, tables, partitions and error codes."""
        from calve.app.pages.finder import search

        return search(self._app, self._app.overview, q)

    def seen(self, after: datetime | None = None, *, limit: int = 100) -> Json:
        """What was looked at outside since then, oldest first, and in `upto` what to give as `after` next time."""
        found = self.registry.sightings("", after=after, limit=limit) if after else []
        tried = [one.tried_at for one in found if one.tried_at]
        return {
            "sightings": [
                {
                    "subject": one.subject,
                    "what": one.what,
                    "at": view.time_json(one.tried_at),
                    "error": one.error,
                }
                for one in found
            ],
            "upto": max([*tried, after or self._app.store.now()]).isoformat(),
        }


SERVED: Mapping[str, Served] = {
    "attention": Served(answer=lambda calve, _: calve.attention()),
    "tables": Served(
        answer=lambda calve, given: calve.tables(**given),
        options={"q": str, "sort": str, "order": str, "page": int, "every": bool},
    ),
    "table": Served(
        answer=lambda calve, given: calve.table(**given),
        options={"source": str, "to": str, "page": int, "exported": str}, required=("source", "to"),
    ),
    "sheet": Served(
        answer=lambda calve, given: calve.sheet(**given),
        options={"id": str, "states": list, "after": int, "before": int}, required=("id",),
    ),
    "vault": Served(answer=lambda calve, given: calve.vault(**given), options={"name": str, "page": int}),
    "tiering": Served(answer=lambda calve, given: calve.tiering(**given), options={"name": str}),
    "system": Served(answer=lambda calve, _: calve.system()),
    "search": Served(answer=lambda calve, given: calve.search(given["q"]), options={"q": str}, required=("q",)),
    "seen": Served(
        answer=lambda calve, given: calve.seen(given.get("after"), limit=limited(given, 100)),
        options={"after": datetime, "limit": int},
    ),
}  # fmt: skip
