"""Making what a backup describes, at the target. Twice is harmless: what an earlier try made is known
by its uuid, which is derived from the restore's seed.

A CREATE out of a backup, rewritten: another name, a uuid of ours, an engine the target has. Pure.
"""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from calve.archive.create import check_create, check_function
from calve.archive.manifest import Manifest, SchemaEntry, TableEntry
from calve.clickhouse.engine.ddl import LENIENT
from calve.clickhouse.source import Session
from calve.clickhouse.sql import create_table
from calve.clickhouse.sql.tokens import Sort, Token, string, tokens
from calve.clickhouse.sql.tokens import name as quoted
from calve.clickhouse.tables import ZERO_UUID, system_columns
from calve.model.errors import CalveError, NotFoundError, PermanentError, RefusedError
from calve.restore import references
from calve.restore.access import make_access
from calve.restore.plan import REFUSE, Item, RestoreRequest
from calve.restore.references import Name
from calve.restore.rewrite import Rewritten, refuse_other_changes

_KINDS = frozenset({"TABLE", "VIEW", "DICTIONARY"})
_NAMES = frozenset({Sort.NAME, Sort.QUOTED})
_AFTER_REFRESH = frozenset({"TO", "(", "ENGINE", "DEFINER", "SQL", "AS"})
_NEVER = "REFRESH AFTER 100 YEAR"


def retargeted(
    create: str, target: Name, *, uuid: str = "", renamed: Mapping[Name, Name] | None = None
) -> str:
    """`CREATE … db.t (…)` as `CREATE … target [UUID '…'] (…)`, references to renamed objects too."""
    words = list(tokens(create))
    at = _name_at(create, words)
    after = _after_name(create, words, at)
    head = f"{create[: words[at].start]}{quoted(target[0])}.{quoted(target[1])}"
    if uuid:
        head += f" UUID {string(uuid)}"
    rest = after
    if rest < len(words) and words[rest].text == "UUID":
        rest += 2
    tail_start = words[rest].start if rest < len(words) else len(create)
    owner = f"{target[0]}.{target[1]}"
    return f"{head} {references.follow(create[tail_start:], owner, renamed or {})}"


def without_replication(create: str, engine_full: str) -> str:
    """For a target without Keeper: `ReplicatedMergeTree('/path', '{replica}', …)` as `MergeTree(…)`."""
    clause = create_table.parse(engine_full)
    if not clause.replicated:
        return create
    words = list(tokens(create))
    for at, word in enumerate(words):
        if word.sort is Sort.NAME and word.text == clause.name and at and words[at - 1].text == "=":
            end = _closing(words, at + 1) if at + 1 < len(words) and words[at + 1].text == "(" else at
            arguments = ", ".join(clause.family_arguments)
            engine = f"{clause.family}({arguments})" if arguments else clause.family
            return f"{create[: word.start]}{engine}{create[words[end].end :]}"
    return create


def held_back(create: str, target: Name) -> tuple[str, str]:
    """A refreshable view that does not run, and the statement that gives it its schedule.

    EMPTY leaves out the first run alone, and SYSTEM STOP VIEW ends with a restart, upon which every such
    view runs at once. A schedule of a hundred years lasts. ("", for any other object)."""
    words = list(tokens(create))
    at = _after_name(create, words, _name_at(create, words))
    at += 2 * (at < len(words) and words[at].text == "UUID")
    if at >= len(words) or words[at].sort is not Sort.NAME or words[at].text.upper() != "REFRESH":
        return create, ""
    end = next(place for place in range(at, len(words)) if words[place].text.upper() in _AFTER_REFRESH)
    query = next(place for place in _outside(words, end) if words[place].text.upper() == "AS")
    clause = create[words[at].start : words[end].start].rstrip()
    append = " APPEND" if words[end - 1].text.upper() == "APPEND" else ""
    between = create[words[end].start : words[query].start]
    held = f"{create[: words[at].start]}{_NEVER}{append} {between}EMPTY {create[words[query].start :]}"
    return held, f"ALTER TABLE {quoted(target[0])}.{quoted(target[1])} MODIFY {clause}"


def _outside(words: Sequence[Token], start: int) -> Iterator[int]:
    """The places of names outside of brackets."""
    depth = 0
    for place in range(start, len(words)):
        if words[place].sort is Sort.SIGN:
            depth += (words[place].text in "([") - (words[place].text in ")]")
        elif depth == 0 and words[place].sort is Sort.NAME:
            yield place


def _name_at(create: str, words: Sequence[Token]) -> int:
    """The place of the first word of the name."""
    kinds = [at for at, word in enumerate(words) if word.sort is Sort.NAME and word.text.upper() in _KINDS]
    if not kinds:
        raise _no_create(create)
    at = kinds[0] + 1
    if [word.text.upper() for word in words[at : at + 3]] == ["IF", "NOT", "EXISTS"]:
        at += 3
    return at


def _after_name(create: str, words: Sequence[Token], at: int) -> int:
    """The place of the word that follows `db.t` or `t`."""
    if at + 2 < len(words) and words[at + 1].text == "." and words[at + 2].sort in _NAMES:
        return at + 3
    if at < len(words) and words[at].sort in _NAMES:
        return at + 1
    raise _no_create(create)


def _no_create(create: str) -> PermanentError:
    return PermanentError(f"this CREATE cannot be restored: {create[:100]}", code="backup_statement")


def _closing(words: Sequence[Token], at: int) -> int:
    depth = 0
    for place in range(at, len(words)):
        depth += (words[place].text == "(") - (words[place].text == ")")
        if depth == 0:
            return place
    return len(words) - 1


_NAMESPACE = uuid.UUID("5f2d6f0a-1c0e-4a52-9a0e-8f0b6a1f7c11")
_INNER = ".inner_id."


@dataclass(frozen=True, kw_only=True)
class There:
    """A table that the target has."""

    uuid: str
    engine: str
    create: str


@dataclass(frozen=True, kw_only=True)
class Creation:
    """One object to be made, with its statement."""

    item: Item
    create: str
    uuid: str
    kept: str = ""  # the statement of the backup
    rewritten: str = ""  # the same for its new name; `create` may hold it back too
    schedule: str = ""  # of a refreshable view, given to it once its data is there
    engine: str = ""


def made_uuid(seed: str, target: Name) -> str:
    return str(uuid.uuid5(_NAMESPACE, f"{seed}/{target[0]}.{target[1]}"))


def lenient(session: Session) -> Mapping[str, str]:
    """A server of another version may not know them all, and has settings of its own."""
    return LENIENT if session.embedded else {}


def make_schema(session: Session, manifest: Manifest, request: RestoreRequest) -> dict[Name, There]:
    """Databases, functions, tables, dictionaries, views, in an order that works. Everything that stands
    in the way is found before the first of them is made. The answer: what is there now, by the
    name it was to be given."""
    wanted, found = look(session, manifest, request)
    for one in wanted:
        refuse_existing(request, one, found)
    ours = {one.item.target for one in wanted if (old := found.get(one.item.target)) and old.uuid == one.uuid}
    make_access(session, manifest, request, frozenset(found) - ours)
    if request.schema:
        for database in sorted({one.item.to_database for one in wanted}):
            _make_database(session, manifest, request, database)
        for function, create in manifest.functions.items():
            _make_function(session, function, create)
        _make_all(session, [one for one in wanted if one.item.target not in found])
    return there(session, [one.item.target for one in wanted])


def look(
    session: Session, manifest: Manifest, request: RestoreRequest
) -> tuple[list[Creation], dict[Name, There]]:
    """What is to be made, and what of it is there. Changes nothing."""
    _refuse_old(session)
    wanted = _wanted(session, manifest, request)
    refuse_other_changes(
        [Rewritten(owner=".".join(one.item.target), before=one.kept, after=one.rewritten) for one in wanted],
        {item.origin: item.target for item in request.items},
    )
    for function, create in manifest.functions.items():
        check_function(create, function)
    return wanted, there(session, [one.item.target for one in wanted])


def schedules(
    session: Session, manifest: Manifest, request: RestoreRequest, found: Mapping[Name, There]
) -> tuple[str, ...]:
    """For the refreshable views that this restore made."""
    return tuple(
        one.schedule
        for one in _wanted(session, manifest, request)
        if one.schedule
        and one.item.target in found
        and is_ours(request, one.item.target, found[one.item.target])
    )


def _refuse_old(session: Session) -> None:
    """What a restore made is known again by its uuid: without one, going on could attach parts twice."""
    if ("tables", "uuid") not in system_columns(session, ("tables",)):
        raise RefusedError(
            f"source {session.source} is a ClickHouse older than 20.5, whose tables have no uuid by which a "
            "restore could recognize them",
            code="restore_old_server",
            hint="restore to an embedded source or a newer server, and read the rows from there",
        )


def inner_of(manifest: Manifest, request: RestoreRequest) -> dict[Name, Item]:
    """Tables that a materialized view makes for itself, with the view: made by making the view."""
    items = {item.origin: item for item in request.items}
    views = {
        one.uuid: items[one.full_name]
        for one in manifest.schemas
        if one.engine == "MaterializedView" and one.full_name in items
    }
    return {
        table.full_name: views[table.name.removeprefix(_INNER)]
        for table in manifest.tables
        if table.name.startswith(_INNER) and table.name.removeprefix(_INNER) in views
    }


def inner_name(view: There) -> str:
    return f"{_INNER}{view.uuid}"


def is_ours(request: RestoreRequest, target: Name, found: There) -> bool:
    return found.uuid == made_uuid(request.seed, target)


def there(session: Session, names: Sequence[Name]) -> dict[Name, There]:
    if not names:
        return {}
    listed = ", ".join(f"({string(database)}, {string(name)})" for database, name in names)
    rows = session.rows(
        "SELECT database, name, engine, toString(uuid) AS uuid, create_table_query AS create, data_paths "
        f"FROM system.tables WHERE (database, name) IN ({listed})"
    )
    return {
        (row["database"], row["name"]): There(
            uuid=_uuid(row["uuid"], row["data_paths"]), engine=row["engine"], create=row["create"]
        )
        for row in rows
    }


def _uuid(text: str, data_paths: Sequence[str]) -> str:
    """The embedded engine's `default` database hides uuids; the folder's name does not."""
    if text != ZERO_UUID or not data_paths:
        return text
    return data_paths[0].rstrip("/").rsplit("/", 1)[-1]


def _wanted(session: Session, manifest: Manifest, request: RestoreRequest) -> list[Creation]:
    entries: dict[Name, TableEntry | SchemaEntry] = {one.full_name: one for one in manifest.tables}
    entries |= {one.full_name: one for one in manifest.schemas}
    inner = inner_of(manifest, request)
    items = {item.origin: item for item in request.items if item.origin not in inner}
    renamed = {item.origin: item.target for item in request.items}
    wanted = []
    for origin in manifest.order:
        item = items.get(origin)
        if item is None:
            continue
        entry = entries[origin]
        create = entry.create
        check_create(create, origin, entry.engine)
        if isinstance(entry, TableEntry) and session.embedded:
            create = without_replication(create, entry.engine_full)
        made = made_uuid(request.seed, item.target)
        kept = create
        create = retargeted(create, item.target, uuid=made, renamed=renamed)
        held, schedule = held_back(create, item.target)
        wanted.append(
            Creation(
                item=item,
                create=held,
                rewritten=create,
                uuid=made,
                kept=kept,
                schedule=schedule,
                engine=entry.engine,
            )
        )
    return wanted


def refuse_existing(request: RestoreRequest, one: Creation, found: Mapping[Name, There]) -> None:
    target = one.item.target
    existing = found.get(target)
    if existing is None:
        if not request.schema:
            raise NotFoundError(
                f"table {'.'.join(target)} does not exist, and --data-only creates none",
                code="no_table",
                hint="omit --data-only, or create the table first",
            )
        return
    if existing.uuid == one.uuid or request.existing != REFUSE:
        return
    raise RefusedError(
        f"table {'.'.join(target)} exists already at source {request.source}",
        code="table_exists",
        hint="restore into another database with --as, or give --existing append or --existing replace",
    )


def _make_database(session: Session, manifest: Manifest, request: RestoreRequest, database: str) -> None:
    if session.rows(f"SELECT 1 AS one FROM system.databases WHERE name = {string(database)}"):
        return
    origins = {item.database for item in request.items if item.to_database == database}
    statement = next((manifest.databases[one] for one in origins if one in manifest.databases), "")
    # An engine such as Replicated or Overlay belongs to its server; what tables need is a plain one.
    engine = (
        "ENGINE = Ordinary"
        if "ENGINE = Ordinary" in statement and not session.embedded
        else "ENGINE = Atomic"
    )
    # if we die here, the database is there: the next try finds it
    session.execute(
        f"CREATE DATABASE IF NOT EXISTS {quoted(database)} {engine}", what=f"making database {database}"
    )


def _make_function(session: Session, function: str, create: str) -> None:
    """A function that is there already is left as it is: other tables use it."""
    known = session.rows(f"SELECT 1 AS one FROM system.functions WHERE name = {string(function)}")
    if not known:
        # if we die here, the function is there: the next try finds it
        session.execute(create, what=f"making function {function}")


def _make_all(session: Session, wanted: Sequence[Creation]) -> None:
    """In the backup's order; what fails for want of another is tried again after it."""
    left = list(wanted)
    while left:
        failed: list[tuple[Creation, CalveError]] = []
        for one in left:
            try:
                # if we die here, what was made bears our uuid: the next try finds it
                session.execute(one.create, lenient(session), what=f"making {'.'.join(one.item.target)}")
            except (NotFoundError, PermanentError) as error:
                failed.append((one, error))
        if len(failed) == len(left):
            raise failed[0][1]
        left = [one for one, _ in failed]
