"""A source with users, as a server has them: the embedded engine keeps none by SQL.

Everything but access goes to the real engine, and the real engine's parser reads every statement of
access before it is taken. What is kept is text, by what it makes.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from calve.archive import access
from calve.archive.access import AccessEntry, authentication, entry_of
from calve.clickhouse.errors import translate
from calve.clickhouse.sql.tokens import string
from support.kept_source import KeptSource

_ASKED = {"users": "user", "roles": "role", "settings_profiles": "settings profile", "quotas": "quota"}
_SHOWS_SECRETS = "format_display_secrets_in_show_and_select"


class AccessSession:
    def __init__(self, session: Any, kept: "WithAccess") -> None:
        self._session, self._kept = session, kept

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def rows(self, sql: str, settings: Mapping[str, str] | None = None, *given: Any, **named: Any) -> Any:
        known = self._kept
        shown = _SHOWS_SECRETS in (settings or {}) and known.shows_secrets
        if sql == "SHOW ACCESS":
            return [{"ACCESS": _secretless(one, shown)} for one in known.entries]
        if sql.startswith("SHOW CREATE ") and "DATABASE" not in sql:
            return [{"create": _secretless(known.find(sql), shown)}]
        if found := re.match(r"SELECT name FROM system\.(\w+)( WHERE storage IN)?", sql):
            kind = _ASKED.get(found[1], access.POLICY if found[1] == "row_policies" else "")
            if kind:
                names = known.configured if found[2] else known.names(kind)
                return [{"name": name} for name in names if not found[2] or kind == access.USER]
        if "FROM system.row_policies" in sql:
            return [
                {"name": f"{one.name} ON {one.database}.{one.table or '*'}", "short_name": one.name,
                 "database": one.database, "table": one.table, "configured": 0}
                for one in known.entries
                if one.kind == access.POLICY and string(one.database) in sql and string(one.table) in sql
            ]  # fmt: skip
        return self._session.rows(sql, settings or {}, *given, **named)

    def describe(self, database: str, table: str) -> Any:
        from dataclasses import replace

        found = self._session.describe(database, table)
        policies = self._kept.names(access.POLICY)
        return replace(
            found, row_policies=tuple(one for one in policies if one.endswith(f" ON {database}.{table}"))
        )

    def execute(self, sql: str, *given: Any, **named: Any) -> None:
        text = sql.replace(" OR REPLACE", "")
        entry = entry_of(text)
        if sql.startswith("ALTER SETTINGS PROFILE") or (entry and entry.kind != access.COLLECTION):
            self._session.rows(f"SELECT formatQuerySingleLine({string(sql)}) AS parsed")
            self._kept.take(sql, entry)
            return
        self._session.execute(sql, *given, **named)


class WithAccess:
    """`configured` users are those of users.xml."""

    def __init__(self, source: KeptSource, *, shows_secrets: bool = True) -> None:
        self._source = source
        self.name = source.name
        self.need = source.need
        self.immutable = source.immutable
        self.shows_secrets = shows_secrets
        self.configured: tuple[str, ...] = ("default",)
        self.entries: list[AccessEntry] = [
            AccessEntry(kind="user", name="default", create="CREATE USER default")
        ]
        self.statements: list[str] = []
        self.dies_after = 1_000  # statements

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)

    @contextmanager
    def visit(self) -> Iterator[Any]:
        with self._source.visit() as session:
            yield AccessSession(session, self)

    def execute(self, *statements: str) -> None:
        with self.visit() as session:
            for statement in statements:
                session.execute(statement)

    def names(self, kind: str) -> list[str]:
        return [one.title.removeprefix(f"{kind} ") for one in self.entries if one.kind == kind]

    def find(self, shown: str) -> AccessEntry:
        wanted = entry_of(shown.removeprefix("SHOW ") + " AS")
        assert wanted is not None, shown
        return next(one for one in self.entries if one.title == wanted.title)

    def take(self, sql: str, entry: AccessEntry | None) -> None:
        if not self.dies_after:
            raise KeyboardInterrupt
        self.dies_after -= 1
        self.statements.append(sql)
        if entry is None:
            name = sql.split()[3].strip("`")
            old = next(one for one in self.entries if one.kind == access.PROFILE and one.name == name)
            text = f"{old.create} {sql[sql.index(' TO ') + 1 :]}"
            self.entries[self.entries.index(old)] = AccessEntry(kind=old.kind, name=name, create=text)
            return
        there = [one for one in self.entries if one.title == entry.title and entry.kind != access.GRANT]
        if there and "OR REPLACE" not in sql:
            raise translate(
                f"Code: 493. {entry.title} already exists (ACCESS_ENTITY_ALREADY_EXISTS)", "access"
            )
        for word in re.findall(r" TO (\w+)", entry.create):
            if word not in [one.name for one in self.entries if one.kind in (access.USER, access.ROLE)]:
                raise translate(f"Code: 511. There is no role `{word}` (UNKNOWN_ROLE)", "access")
        self.entries = [one for one in self.entries if one not in there]
        if entry not in self.entries:
            self.entries.append(entry)


def _secretless(entry: AccessEntry, shown: bool) -> str:
    found = authentication(entry.create) if entry.kind == access.USER else None
    if found is None or shown:
        return entry.create
    clause = re.sub(r" BY '[^']*'", "", entry.create[found[0] : found[1]]).replace("_hash", "_password")
    return entry.create[: found[0]] + clause + entry.create[found[1] :]
