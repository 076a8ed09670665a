"""Making users, roles, quotas, settings profiles, named collections and row policies again.

Row policies go with their tables and are there before the first row is; the rest is made if it was
asked for. Twice is harmless: what is there already and says the same is left as it is.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from calve.archive import access
from calve.archive.access import AccessEntry, check_access, entry_of, retargeted_policy, shape
from calve.archive.manifest import Manifest, TableEntry
from calve.clickhouse.errors import ACCESS_DENIED, number_of
from calve.clickhouse.source import Session
from calve.clickhouse.sql.tokens import name as quoted
from calve.clickhouse.tables import system_columns
from calve.model.errors import CalveError, RefusedError
from calve.restore.plan import APPEND, REFUSE, REPLACE, RestoreRequest

Name = tuple[str, str]
_TABLES = {
    access.USER: "users",
    access.ROLE: "roles",
    access.PROFILE: "settings_profiles",
    access.QUOTA: "quotas",
    access.POLICY: "row_policies",
}
_KEYWORDS = {
    access.USER: "USER",
    access.ROLE: "ROLE",
    access.PROFILE: "SETTINGS PROFILE",
    access.QUOTA: "QUOTA",
    access.POLICY: "ROW POLICY",
    access.COLLECTION: "NAMED COLLECTION",
}
_NO_STORAGE = 514  # nowhere to keep users
_UNKNOWN = frozenset({192, 511})  # a user, a role


@dataclass(frozen=True, kw_only=True)
class _Step:
    entry: AccessEntry
    statements: tuple[str, ...]


def make_access(
    session: Session, manifest: Manifest, request: RestoreRequest, existing: frozenset[Name]
) -> None:
    """`existing` are tables that were there before: policies are not put on them, they must have them."""
    wanted = [*_policies(manifest, request), *_asked(manifest, request)]
    for entry in wanted:
        check_access(entry)
    wanted.sort(key=lambda entry: access.ORDER.index(entry.kind))
    there = _there(session, wanted)
    if request.existing == APPEND:  # an entity that is left as it is gets no rights either
        left = {one.name for one in wanted if (found := there.get(one.title)) and shape(found) != shape(one)}
        wanted = [one for one in wanted if one.kind != access.GRANT or one.name not in left]
    steps = [step for entry in wanted for step in _steps(request, entry, there, existing)]
    _make(session, request, steps)


def _policies(manifest: Manifest, request: RestoreRequest) -> Iterator[AccessEntry]:
    """Those of the tables that are restored, on the names they get."""
    tables = {table.full_name: table for table in manifest.tables}
    for item in request.items:
        table = tables.get(item.origin)
        if table is None or not table.row_policies or not request.row_policies:
            continue
        kept = [
            entry
            for entry in manifest.access
            if entry.kind == access.POLICY and entry.on in (table.full_name, (table.database, ""))
        ]
        _refuse_lacking(table, kept)
        for entry in kept:
            yield entry if item.target == item.origin else retargeted_policy(entry, item.target)


def _refuse_lacking(table: TableEntry, kept: Sequence[AccessEntry]) -> None:
    known = {f"{entry.name} ON {entry.database}.{entry.table or '*'}" for entry in kept}
    if lacking := [policy for policy in table.row_policies if policy not in known]:
        raise _without_policies(
            f"table {table.database}.{table.name} had row policies that are not in the backup: "
            f"{', '.join(lacking)}"
        )


def _asked(manifest: Manifest, request: RestoreRequest) -> list[AccessEntry]:
    if not request.rbac:
        return []
    if not manifest.rbac:
        raise RefusedError(
            f"backup {manifest.name} holds no users: it was made without --rbac",
            code="no_access",
            hint="omit --rbac; see: calve backup show",
        )
    tables = {table.full_name for table in manifest.tables}
    return [
        entry
        for entry in manifest.access
        if entry.kind != access.POLICY or (entry.on not in tables and entry.table)
    ]


def _there(session: Session, wanted: Sequence[AccessEntry]) -> dict[str, AccessEntry]:
    """What the target has of these, by title."""
    there: dict[str, AccessEntry] = {}
    for kind in {entry.kind for entry in wanted} & _TABLES.keys():
        names = _names(session, kind)
        for entry in wanted:
            if entry.kind == kind and _full(entry) in names:
                there[entry.title] = _shown(session, entry)
    if any(entry.kind == access.COLLECTION for entry in wanted):
        for row in _collections(session):
            found = entry_of(row["create_query"])
            if found is not None:
                there[found.title] = found
    return there


def _names(session: Session, kind: str) -> frozenset[str]:
    try:
        rows = session.rows(f"SELECT name FROM system.{_TABLES[kind]}")
    except CalveError as error:
        if number_of(error) != ACCESS_DENIED:
            raise
        raise _cannot(session, kind, error) from None
    return frozenset(row["name"] for row in rows)


def _collections(session: Session) -> list[dict[str, Any]]:
    if ("named_collections", "create_query") not in system_columns(session, ("named_collections",)):
        return []
    return session.rows("SELECT name, create_query FROM system.named_collections")


def _full(entry: AccessEntry) -> str:
    return entry.title.removeprefix(f"{entry.kind} ")


def _shown(session: Session, entry: AccessEntry) -> AccessEntry:
    where = ""
    if entry.kind == access.POLICY:
        where = f" ON {quoted(entry.database)}.{quoted(entry.table) if entry.table else '*'}"
    [row] = session.rows(f"SHOW CREATE {_KEYWORDS[entry.kind]} {quoted(entry.name)}{where}")
    found = entry_of(str(next(iter(row.values()))))
    return found if found is not None else entry


def _steps(
    request: RestoreRequest, entry: AccessEntry, there: Mapping[str, AccessEntry], existing: frozenset[Name]
) -> Iterator[_Step]:
    found = there.get(entry.title)
    if found is not None and shape(found) == shape(entry):
        return
    if entry.kind == access.POLICY and entry.on in existing:
        raise _without_policies(
            f"table {'.'.join(entry.on)} exists and has no row policy like the backup's {entry.name}"
        )
    create, assignment = access.split_assignment(entry)
    if found is None:
        yield _Step(entry=entry, statements=(create, assignment) if assignment else (create,))
        return
    if assignment and shape(found) == shape(replace(entry, create=create)):
        yield _Step(entry=entry, statements=(assignment,))  # an earlier try came as far as this
        return
    if request.existing == REFUSE:
        raise RefusedError(
            f"{entry.title} exists already at source {request.source}, and differs from the backup's",
            code="access_exists",
            hint="--existing append leaves it as it is, --existing replace replaces it",
        )
    if request.existing == REPLACE:
        yield _Step(entry=entry, statements=_replacing(entry, create, assignment))


def _replacing(entry: AccessEntry, create: str, assignment: str) -> tuple[str, ...]:
    words = f"CREATE {_KEYWORDS[entry.kind]}"
    if entry.kind == access.COLLECTION:
        return f"DROP NAMED COLLECTION IF EXISTS {quoted(entry.name)}", create
    replacing = f"{words} OR REPLACE{create.removeprefix(words)}"
    return (replacing, assignment) if assignment else (replacing,)


def _make(session: Session, request: RestoreRequest, steps: Sequence[_Step]) -> None:
    """In their order; what fails for want of another is tried again after it."""
    left = [(step.entry, at, text) for step in steps for at, text in enumerate(step.statements)]
    left.sort(key=lambda item: (item[1], access.ORDER.index(item[0].kind)))
    while left:
        failed = []
        for item in left:
            try:
                # if we die here, some are there: the next try finds that they say the same
                session.execute(item[2], what=f"making {item[0].title}")
            except CalveError as error:
                failed.append((item, error))
        if len(failed) == len(left):
            (entry, _, _), why = failed[0]
            raise _refusal(session, request, entry, why)
        left = [item for item, _ in failed]


def _refusal(session: Session, request: RestoreRequest, entry: AccessEntry, error: CalveError) -> CalveError:
    number = number_of(error)
    if number in (_NO_STORAGE, ACCESS_DENIED):
        return _cannot(session, entry.kind, error)
    if number in _UNKNOWN and entry.kind == access.POLICY and not request.rbac:
        return _without_policies(
            f"{entry.title} names somebody that source {request.source} lacks: {error.message}"
        )
    return error


def _cannot(session: Session, kind: str, error: CalveError) -> RefusedError:
    if kind == access.POLICY:
        return _without_policies(f"source {session.source} takes no row policies: {error.message}")
    return RefusedError(
        f"source {session.source} takes no {kind}: {error.message}",
        code="access_not_writable",
        hint="give its user access_management, or restore without --rbac",
    )


def _without_policies(why: str) -> RefusedError:
    return RefusedError(
        f"{why}: restored without them, its rows could be read by anybody who may read the table",
        code="row_policies",
        hint="make the policies, or restore their users and roles with --rbac; --without-row-policies insists",
    )
