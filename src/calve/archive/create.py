"""What a CREATE out of a manifest may be. Pure.

A manifest is data from outside, and its statements are run. So each must be one statement that makes
the very object it is kept for, in words that ClickHouse itself writes: no second statement, no
comment, no query that is run while it makes a table, no disk of its own but a local folder. Whatever else is refused
before anything is made.
"""

from collections.abc import Iterator, Sequence
from itertools import takewhile

from calve.clickhouse.engine.ddl import asks_server
from calve.clickhouse.sql.tokens import Sort, Token, called, tokens
from calve.model.errors import PermanentError

_OF_LOCAL_DISKS = frozenset({"type", "path", "name", "keep_free_space_bytes", "keep_free_space_ratio"})
_SIGNS = frozenset("()[]{},.=<>+-*/%!?:|@~")  # not `;`, nor a quote, `#`, `$` or anything beyond ASCII
_NAMES = (Sort.NAME, Sort.QUOTED)
_KINDS = {
    "View": ("VIEW",),
    "MaterializedView": ("MATERIALIZED", "VIEW"),
    "LiveView": ("LIVE", "VIEW"),
    "WindowView": ("WINDOW", "VIEW"),
    "Dictionary": ("DICTIONARY",),
}
_TABLE = ("TABLE",)


def check_create(create: str, name: tuple[str, str], engine: str) -> None:
    """PermanentError unless this makes the table, view or dictionary `name` of that engine and no more."""
    words = words_of(create)
    kind = _KINDS.get(engine, _TABLE)
    if engine == "Dictionary" and [word.text for word in words[:2]] == ["CREATE", "TABLE"]:
        kind = _TABLE  # over a dictionary
    made, rest = _object(create, words, kind)
    if made not in (name, ("", name[1])):
        raise refused(create, f"it does not make {'.'.join(name)}")
    top = list(outer(rest))
    head = list(takewhile(lambda word: word.text.upper() != "AS" or word.sort is not Sort.NAME, top))
    if kind == _TABLE:
        if after(top, "ENGINE", "=") != engine:
            raise refused(create, f"its engine is not {engine}")
        if head != top:
            raise refused(create, "it fills the table from a query")
    if (rest and rest[0].text.upper() == "ON") or after(head, "ON", "CLUSTER"):
        raise refused(create, "it is for a whole cluster")
    if any(word.sort is Sort.NAME and word.text.upper() == "POPULATE" for word in head):
        raise refused(create, "it runs its query at once")
    if any(after(rest, "SOURCE", "(", name) for name in ("EXECUTABLE", "EXECUTABLE_POOL")):
        raise refused(create, "it starts a program")
    _refuse_files(create, rest)
    if defines_disk(head) and own_disk(create) is None:
        raise refused(
            create,
            "it defines a disk of its own",
            "create the table on a disk of the target's configuration, then restore its rows with --data-only",
        )


def own_disk(create: str) -> str | None:
    """The folder of a local disk that a CREATE TABLE defines: `disk = disk(type = local, path = '…')`. None
    where it defines none, or another kind: what that is and holds is for the target's configuration to
    say. ClickHouse itself allows such a folder only below its `custom_local_disks_base_directory`."""
    words = list(tokens(create))
    starts = [at for at in range(len(words)) if defines_disk(words[at : at + 3])]
    if len(starts) != 1:
        return None
    given: dict[str, Token] = {}
    at = starts[0] + 4
    while [word.text for word in words[at + 1 : at + 2]] == ["="] and at + 3 < len(words):
        given[words[at].text] = words[at + 2]
        if words[at + 3].text != ",":
            break
        at += 4
    closed = at + 3 < len(words) and words[at + 3].text == ")"
    is_local = "type" in given and given["type"].value == "local" and given.keys() <= _OF_LOCAL_DISKS
    if closed and is_local and "path" in given and given["path"].sort is Sort.STRING:
        folder = given["path"].value
        return folder if folder.startswith("/") else None  # a server shows "[HIDDEN]"
    return None


def defines_disk(words: Sequence[Token]) -> bool:
    """`disk = disk(…)`, where `disk = 'name'` uses one."""
    return any(
        word.sort is Sort.NAME
        and word.text.lower() == "disk"
        and words[at + 1].text == "="
        and words[at + 2].sort is not Sort.STRING
        for at, word in enumerate(words[:-2])
    )


def check_function(create: str, name: str) -> None:
    """PermanentError unless this makes the SQL function `name` and no more."""
    words = words_of(create)
    made, rest = _object(create, words, ("FUNCTION",))
    if made != ("", name):
        raise refused(create, f"it does not make the function {name}")
    if not rest or rest[0].text.upper() != "AS":
        raise refused(create, "it is not an SQL function")
    _refuse_files(create, rest)


def check_scratch(create: str) -> None:
    """PermanentError unless this makes one table, to be called `{table}`, that parts can be read through:
    of a plain MergeTree engine, and without a default that reads a file, a dictionary or a query."""
    if create.count("{table}") != 1:
        raise refused(create, "it does not make one scratch table")
    create = create.replace("{table}", "scratch", 1)
    words = words_of(create)
    engine = after(list(outer(words)), "ENGINE", "=")
    if not engine.endswith("MergeTree") or engine.startswith(("Replicated", "Shared")):
        raise refused(create, f"parts are not read through the engine {engine or 'that it lacks'}")
    if any(asks_server(function) for function in called(words)):
        raise refused(create, "a default of it reads what is not in the part")
    if any(word.sort is Sort.NAME and word.text.upper() == "SELECT" for word in words):
        raise refused(create, "a default of it runs a query")
    check_create(create, ("", "scratch"), engine)
    if own_disk(create) is not None:
        raise refused(create, "it defines a disk of its own")


def words_of(create: str) -> list[Token]:
    """The words of one statement; PermanentError for signs that only a second one or a comment has."""
    words = list(tokens(create))
    for at, word in enumerate(words):
        if word.sort is not Sort.SIGN:
            continue
        follows = words[at + 1] if at + 1 < len(words) else None
        touching = follows.text if follows is not None and follows.start == word.end else ""
        if word.text not in _SIGNS or word.text + touching in ("--", "/*"):
            raise refused(create, f"{word.text + touching!r} has no place in it")
    return words


def _object(
    create: str, words: Sequence[Token], kind: tuple[str, ...]
) -> tuple[tuple[str, str], Sequence[Token]]:
    """The name of what is made, "" for a database that is not given, and the words after it."""
    given = [word.text.upper() if word.sort is Sort.NAME else "" for word in words[: len(kind) + 4]]
    at = 1 + len(kind)
    if given[:at] != ["CREATE", *kind]:
        raise refused(create, f"it is not a CREATE {' '.join(kind)}")
    if given[at : at + 3] == ["IF", "NOT", "EXISTS"]:
        at += 3
    if at >= len(words) or words[at].sort not in _NAMES:
        raise refused(create, "it names nothing")
    if at + 2 < len(words) and words[at + 1].text == "." and words[at + 2].sort in _NAMES:
        return (words[at].value, words[at + 2].value), words[at + 3 :]
    return ("", words[at].value), words[at + 1 :]


def outer(words: Sequence[Token]) -> Iterator[Token]:
    """Those outside of brackets."""
    depth = 0
    for word in words:
        if word.sort is Sort.SIGN and word.text in "([{":
            depth += 1
        elif word.sort is Sort.SIGN and word.text in ")]}":
            depth -= 1
        elif depth == 0:
            yield word


def after(words: Sequence[Token], *sequence: str) -> str:
    """The word after the first such sequence; "" where there is none."""
    for at in range(len(words) - len(sequence)):
        if tuple(word.text.upper() for word in words[at : at + len(sequence)]) == sequence:
            return words[at + len(sequence)].text
    return ""


def _refuse_files(create: str, words: Sequence[Token]) -> None:
    if after(words, "INTO", "OUTFILE") or after(words, "FROM", "INFILE"):
        raise refused(create, "it reads or writes a file")


def refused(create: str, why: str, hint: str = "") -> PermanentError:
    """`create` is refused, with the reason."""
    return PermanentError(
        f"a statement of the backup is refused: {why}: {create[:120]}",
        code="backup_statement",
        hint=hint or "a backup holds one CREATE for each of its objects; find out who changed it",
    )
