"""Verbs of tables, at the source and in the lake: what they hold, how healthy they are, views over both."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from calve.app import view
from calve.app.front import Json, Submitted
from calve.app.verbs.opened import Opened
from calve.app.verbs.served import Given, Served, limited_whole

if TYPE_CHECKING:
    from calve.app.values import OptimizeOptions

SOURCE_TABLES = 5000


class TableVerbs(Opened):
    def partitions(self, table: str, to: str = "", *, gone: bool = False) -> list[Json]:
        """`gone`: also those that the destination has and the source no longer."""
        from calve.app.partitions import compare

        found, left = compare(self._app, table, to)
        return [view.partition_json(one) for one in found] + [view.gone_json(one) for one in left if gone]

    def source_tables(self, source: str = "") -> Json:
        """Tables of a source that could be exported, and the catalogs that they could go to."""
        from calve.app.partitions import list_tables

        name = source or self.config.default_source
        found = list_tables(self._app, name)
        return {
            "source": name,
            "seen_at": view.time_json(self._app.store.now()),
            "tables": found[:SOURCE_TABLES],
            "total": len(found),
            "catalogs": sorted(self.config.catalogs),
        }

    def parts(self, table: str) -> list[Json]:
        from calve.app.partitions import list_parts

        return [view.part_json(one) for one in list_parts(self._app, table)]

    def health(self, table: str, *, orphans: bool = False) -> Json:
        from calve.app.health import table_health

        return table_health(self._app, table, orphans=orphans).to_json()

    def history(self, table: str = "", *, limit: int = 50, after: str = "") -> list[Json]:
        """Newest first; those before the process `after`."""
        from calve.app.optimize_history import optimize_history

        found = optimize_history(self._app, table, limit=limit, after=after)
        return [view.optimized_json(one) for one in found]

    def optimize_preview(self, table: str, options: "OptimizeOptions | None" = None) -> Json:
        from calve.app.health import optimize_request, preview

        return view.optimize_preview_json(preview(self._app, optimize_request(self._app, table, options)))

    def optimize(self, table: str, options: "OptimizeOptions | None" = None) -> Submitted:
        from calve.app.health import optimize_request, submit_optimize

        request = optimize_request(self._app, table, options)
        return submit_optimize(self._app, self._store("optimize", request.name), request)

    def view_show(self, table: str) -> Json:
        from calve.app.policies import tier

        return tier.view_show(self._app, table)

    def view_create(
        self,
        table: str,
        to: str,
        into: str,
        *,
        cold: Sequence[str] = (),
        hot: Sequence[str] = (),
        exclude: Sequence[str] = (),
    ) -> Json:
        from calve.app.policies import tier

        with self._audited("view_create", table):
            return tier.view_create(self._app, table, to, into, cold=cold, hot=hot, exclude=exclude)

    def view_drop(self, table: str, *, force: bool = False) -> Json:
        from calve.app.policies import tier

        with self._audited("view_drop", table):
            return tier.view_drop(self._app, table, force=force)


_OPTIMIZE = {"table": str, "full": bool, "sort": str, "expire": bool, "orphans": bool}


def _optimize_options(given: Given) -> Any:
    from calve.app.values import OptimizeOptions, SortBy, parse_sort

    order = parse_sort(given["sort"]) if given.get("sort") else SortBy()
    named = {name: given.get(name) for name in ("expire", "orphans")}
    return OptimizeOptions(full=given.get("full", False), sort=order, **named)


SERVED: Mapping[str, Served] = {
    "partitions": Served(
        answer=lambda calve, given: calve.partitions(
            given["table"], given.get("to", ""), gone=given.get("gone", False)
        ),
        options={"table": str, "to": str, "gone": bool, "keep": bool}, required=("table",),
    ),
    "source_tables": Served(
        answer=lambda calve, given: calve.source_tables(given.get("source", "")), options={"source": str}
    ),
    "parts": Served(
        answer=lambda calve, given: calve.parts(given["table"]), options={"table": str}, required=("table",)
    ),
    "health": Served(
        answer=lambda calve, given: calve.health(given["table"], orphans=given.get("orphans", False)),
        options={"table": str, "orphans": bool}, required=("table",),
    ),
    "history": Served(
        answer=lambda calve, given: calve.history(
            given.get("table", ""), limit=limited_whole(given, 50), after=given.get("after", "")
        ),
        options={"table": str, "limit": int, "after": str},
    ),
    "optimize_preview": Served(
        answer=lambda calve, given: calve.optimize_preview(given["table"], _optimize_options(given)),
        options=_OPTIMIZE, required=("table",),
    ),
    "optimize": Served(
        answer=lambda calve, given: view.submitted_json(calve.optimize(given["table"], _optimize_options(given))),
        options=_OPTIMIZE, required=("table",),
    ),
    "view_show": Served(
        answer=lambda calve, given: calve.view_show(given["table"]), options={"table": str}, required=("table",)
    ),
    "view_create": Served(
        answer=lambda calve, given: calve.view_create(
            given["table"], given["to"], given["into"],
            cold=given.get("cold", ()), hot=given.get("hot", ()), exclude=given.get("exclude", ()),
        ),
        options={"table": str, "to": str, "into": str, "cold": list, "hot": list, "exclude": list},
        required=("table", "to", "into"),
    ),
    "view_drop": Served(
        answer=lambda calve, given: calve.view_drop(given["table"], force=given.get("force", False)),
        options={"table": str, "force": bool}, required=("table",),
    ),
}  # fmt: skip
