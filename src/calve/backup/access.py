"""What a source says of its users, roles, quotas, settings profiles, row policies and named collections.

Only what was made by SQL: users.xml and LDAP are the server's configuration. A secret that the server
hides is never guessed at: such a user is kept with a password that nobody knows, and that is said.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from calve.archive import access
from calve.archive.access import AccessEntry, entry_of
from calve.archive.manifest import TableEntry
from calve.clickhouse.errors import ACCESS_DENIED, MAY_NOT, UNKNOWN_SETTING, NoTableError, number_of
from calve.clickhouse.source import Session
from calve.clickhouse.sql.tokens import name as quoted
from calve.clickhouse.sql.tokens import string
from calve.clickhouse.tables import UNKNOWN_POLICIES, system_columns
from calve.model.errors import PermanentError, RefusedError

_TABLES = {
    access.USER: "users",
    access.ROLE: "roles",
    access.PROFILE: "settings_profiles",
    access.QUOTA: "quotas",
}
_SHOWN = {"format_display_secrets_in_show_and_select": "1"}
_CONFIGURED = (
    "storage IN (SELECT name FROM system.user_directories WHERE type IN ('users_xml', 'users.xml', 'ldap'))"
)


@dataclass(frozen=True, kw_only=True)
class AccessSurvey:
    """What was found, and what of it is not in the backup."""

    entries: tuple[AccessEntry, ...] = ()
    remarks: tuple[tuple[str, str], ...] = ()


def read_policies(session: Session, tables: Sequence[TableEntry]) -> AccessSurvey:
    """The row policies of tables: a restore makes them again, before the rows are there."""
    entries: dict[str, AccessEntry] = {}
    remarks: dict[str, str] = {}
    for table in tables:
        for policy in _policies(session, table):
            entry = _policy(session, policy)
            if policy["configured"] or entry is None:
                title = f"row policy {policy['name']}"
                remarks[title] = "it is in users.xml" if policy["configured"] else "it could not be read"
            else:
                entries[entry.title] = entry
    return AccessSurvey(entries=tuple(entries.values()), remarks=tuple(remarks.items()))


def _policies(session: Session, table: TableEntry) -> list[dict[str, Any]]:
    if not table.row_policies or UNKNOWN_POLICIES in table.row_policies:
        return []
    return session.rows(
        f"SELECT name, short_name, database, table, {_CONFIGURED} AS configured FROM system.row_policies "
        f"WHERE database = {string(table.database)} AND table IN ({string(table.name)}, '') ORDER BY name"
    )


def _policy(session: Session, row: dict[str, Any]) -> AccessEntry | None:
    table = quoted(row["table"]) if row["table"] else "*"
    where = f"{quoted(row['database'])}.{table}"
    [shown] = session.rows(f"SHOW CREATE ROW POLICY {quoted(row['short_name'])} ON {where}")
    return entry_of(str(next(iter(shown.values()))))


def read_access(session: Session, *, encrypted: bool) -> AccessSurvey:
    """All that was made by SQL. Secrets in clear are kept only if the backup is encrypted."""
    collections = _collections(session, encrypted=encrypted)
    try:
        configured = {kind: _configured(session, table) for kind, table in _TABLES.items()}
        policies = session.rows(f"SELECT name FROM system.row_policies WHERE {_CONFIGURED}")
        shown = _with_secrets(session, "SHOW ACCESS")
    except NoTableError:
        raise RefusedError(
            f"source {session.source} has no users made by SQL: ClickHouse has them from 20.5 on",
            code="access_not_readable",
            hint="omit --rbac",
        ) from None
    except PermanentError as error:
        if number_of(error) != ACCESS_DENIED:
            raise
        if session.embedded:
            return collections  # an embedded engine keeps no users
        raise RefusedError(
            f"source {session.source} does not show its users: {error.message}",
            code="access_not_readable",
            hint="GRANT SHOW ACCESS, displaySecretsInShowAndSelect ON *.* TO the user of [source], or omit --rbac",
        ) from None
    found = [entry for row in shown if (entry := entry_of(str(next(iter(row.values())))))]
    configured[access.POLICY] = frozenset(row["name"] for row in policies)
    grantees = configured[access.USER] | configured[access.ROLE]
    ours = [entry for entry in found if not _is_configured(entry, configured, grantees)]
    users, remarks = _users(ours, encrypted=encrypted)
    names = sorted(configured[access.USER])
    told = [("users of users.xml or LDAP", ", ".join(names))] if names else []
    return AccessSurvey(
        entries=(*collections.entries, *users), remarks=(*collections.remarks, *remarks, *told)
    )


def _configured(session: Session, table: str) -> frozenset[str]:
    return frozenset(
        row["name"] for row in session.rows(f"SELECT name FROM system.{table} WHERE {_CONFIGURED}")
    )


def _is_configured(
    entry: AccessEntry, configured: dict[str, frozenset[str]], grantees: frozenset[str]
) -> bool:
    if entry.kind == access.GRANT:
        return entry.name in grantees
    if entry.kind == access.POLICY:
        return f"{entry.name} ON {entry.database}.{entry.table or '*'}" in configured[access.POLICY]
    return entry.name in configured.get(entry.kind, frozenset())


def _users(
    entries: Iterable[AccessEntry], *, encrypted: bool
) -> tuple[list[AccessEntry], list[tuple[str, str]]]:
    kept, remarks = [], []
    for entry in entries:
        why = ""
        if entry.kind == access.USER and access.lacks_secret(entry.create):
            why = "the server does not show it"
        elif entry.kind == access.USER and access.has_plain_secret(entry.create) and not encrypted:
            why = "the server keeps it in clear, and the backup is not encrypted"
        if why:
            remarks.append(
                (
                    f"password of user {entry.name}",
                    f"{why}: restored, the user cannot log in before ALTER USER {entry.name} IDENTIFIED BY …",
                )
            )
        kept.append(replace(entry, create=access.locked(entry.create)) if why else entry)
    return kept, remarks


def _collections(session: Session, *, encrypted: bool) -> AccessSurvey:
    """Named collections hold passwords and keys of other services."""
    columns = system_columns(session, ("named_collections",))
    if ("named_collections", "create_query") not in columns:
        return AccessSurvey()
    source = "source = 'SQL'" if ("named_collections", "source") in columns else "1"
    rows = _with_secrets(
        session, f"SELECT name, create_query FROM system.named_collections WHERE {source} ORDER BY name"
    )
    entries, remarks = [], []
    for row in rows:
        entry = entry_of(row["create_query"])
        if not encrypted:
            why = "it holds secrets, and the backup is not encrypted: set [backup] encryption_key_file"
        elif entry is None or access.HIDDEN in row["create_query"]:
            why = "the server does not show its values"
        else:
            entries.append(entry)
            continue
        remarks.append((f"named collection {row['name']}", why))
    return AccessSurvey(entries=tuple(entries), remarks=tuple(remarks))


def _with_secrets(session: Session, sql: str) -> list[dict[str, Any]]:
    """Hashes and values too, where the version and the user's rights allow it."""
    try:
        return session.rows(sql, _SHOWN)
    except PermanentError as error:
        if number_of(error) not in {UNKNOWN_SETTING, *MAY_NOT}:
            raise
    return session.rows(sql)
