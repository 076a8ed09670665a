"""The text of one statement becomes one frozen value, or an error that says what to use instead.

A linear scan comes first: quotes and comments closed, one statement, a bounded length. Comments are cut out
there, so nothing after it has to know them. A SELECT is not read any further here: ClickHouse's own parser does
that, and `allowance` looks at what it makes of it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from calve.clickhouse.sql.tokens import Sort, TableName, Token, tokens
from calve.clickhouse.sql.tokens import name as quoted_name
from calve.model.errors import UsageError
from calve.sql import codes
from calve.sql.settings import PREFER_REMOTE

LONGEST_KB = 64
_HELP = "ALTER TABLE db.t EXPORT …, KILL EXPORT WHERE …, SYSTEM STOP|START EXPORTS, SELECT, SHOW TABLES"
# Possessive: an open quote fails at once instead of trying every shorter text.
_PIECE = re.compile(
    r"""(?P<quoted>'(?:[^'\\]|\\.|'')*+'|`(?:[^`\\]|\\.|``)*+`|"(?:[^"\\]|\\.|"")*+")
      | (?P<comment>--[^\n]*+|\#[ !][^\n]*+|/\*.*?\*/)
      | (?P<end>;)
      | (?P<plain>[^'"`;$#/\-\x00\x80-\U0010ffff]++|/(?!\*)|-(?!-))""",
    re.VERBOSE | re.DOTALL,
)
_FRESH = [[word, PREFER_REMOTE, "="] for word in ("SETTINGS", "settings")]
_ELSEWHERE = {
    "INSERT": "this server stores nothing; read with SELECT",
    "CREATE": "tables here are fixed; see docs/sql.md",
    "DROP": "delete backups with: calve backup delete NAME",
    "BACKUP": "use: calve backup create NAME",
    "RESTORE": "use: calve backup restore NAME",
    "OPTIMIZE": "use: calve optimize TABLE",
    "EXPLAIN": "run the SELECT itself",
    "SET": "give settings of an export in its own SETTINGS clause",
    "USE": "name tables with their database",
}


@dataclass(frozen=True, kw_only=True)
class Clause:
    """What one EXPORT clause names; exactly one of part, partition and all."""

    to: str
    part: str = ""
    partition: str = ""  # an id or a value
    all: bool = False


@dataclass(frozen=True, kw_only=True)
class Export:
    table: str  # as a person names it
    clauses: tuple[Clause, ...]
    settings: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Kill:
    where: str
    test: bool = False
    form: str = ""


@dataclass(frozen=True, kw_only=True)
class Switch:
    """SYSTEM STOP EXPORTS, SYSTEM START EXPORTS. `table` is empty for all."""

    stop: bool
    table: str = ""


@dataclass(frozen=True, kw_only=True)
class Select:
    sql: str
    form: str = ""  # of its FORMAT clause


class Asks(StrEnum):
    DATABASES = "databases"
    TABLES = "tables"
    COLUMNS = "columns"
    DATABASE_EXISTS = "database exists"
    TABLE_EXISTS = "table exists"


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """SHOW DATABASES, SHOW TABLES, DESCRIBE, EXISTS. `name` is that of the database or the table."""

    asks: Asks
    name: str = ""
    like: str = ""
    form: str = ""


Statement = Export | Kill | Switch | Select | Inspection


def parse(text: str) -> Statement:
    """UsageError for anything that is not one of these."""
    plain = scan(text)
    words = _Words(plain)
    match words.first:
        case "ALTER":
            return _alter(words)
        case "KILL":
            return _kill(words, plain)
        case "SYSTEM":
            return _system(words)
        case "SELECT" | "WITH" | "FROM" | "(":
            return _select(words, plain)
        case "SHOW" | "DESCRIBE" | "DESC" | "EXISTS":
            return _look(words)
        case "":
            raise codes.wrong("the statement is empty", hint=_HELP)
        case other:
            raise codes.wrong(
                f"{other} is not a statement of Calve",
                code=codes.STATEMENT,
                hint=_ELSEWHERE.get(other, f"use {_HELP}"),
            )


def scan(text: str) -> str:
    """The statement without comments and without a last semicolon. Linear in its length."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise codes.wrong("the statement is not valid UTF-8") from None
    if size > LONGEST_KB << 10:
        raise codes.wrong(f"the statement is longer than {LONGEST_KB} KB", code=codes.TOO_LONG)
    kept: list[str] = []
    at = 0
    ended = False
    while at < len(text):
        found = _PIECE.match(text, at)
        if found is None:
            raise codes.wrong(_unread(text, at))
        at = found.end()
        if found.lastgroup == "comment":
            kept.append(" ")
        elif found.lastgroup == "end":
            ended = True
        elif ended and found.group().strip():
            raise codes.wrong("there are several statements", hint="send one at a time")
        else:
            kept.append(found.group())
    return "".join(kept).strip()


def split(text: str) -> list[str]:
    """The statements of a script, as they are. What cannot be read is the last one, for `parse` to refuse."""
    made: list[str] = []
    start = at = 0
    says = False  # whether there is more than space and comments
    while (found := _PIECE.match(text, at)) is not None:
        at = found.end()
        if found.lastgroup == "end":
            made += [text[start:at]] if says else []
            start, says = at, False
        elif found.lastgroup != "comment":
            says = says or bool(found.group().strip())
    return [*made, text[start:]] if says or at < len(text) else made


def is_whole(text: str) -> bool:
    """Whether a statement at a prompt has ended: with a semicolon, or with what no further line can put right."""
    at, last = 0, ""
    while (found := _PIECE.match(text, at)) is not None:
        at = found.end()
        if found.lastgroup == "end" or (found.lastgroup != "comment" and found.group().strip()):
            last = found.group()
    return last == ";" if at == len(text) else text[at] not in "'\"`/"


def _unread(text: str, at: int) -> str:
    sign = text[at]
    where = f"at character {at + 1}"
    if sign in "'\"`":
        return f"a quote is not closed, {where}"
    if sign == "/":
        return f"a comment is not closed, {where}"
    if sign == "$":
        return f"$ is not allowed outside of quotes, {where}"
    return f"the sign {sign!r} is not allowed outside of quotes, {where}"


class _Words:
    """Tokens, read from left to right."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.all = list(tokens(text))
        self.at = 0

    @property
    def first(self) -> str:
        return self.all[0].text.upper() if self.all else ""

    @property
    def next(self) -> Token | None:
        return self.all[self.at] if self.at < len(self.all) else None

    def is_next(self, *words: str) -> bool:
        """Whether these words come next; quoted names are never keywords."""
        coming = self.all[self.at : self.at + len(words)]
        plain = [one.text.upper() for one in coming if one.sort in (Sort.NAME, Sort.SIGN)]
        return plain == list(words)

    def skip(self, *words: str) -> bool:
        found = self.is_next(*words)
        if found:
            self.at += len(words)
        return found

    def need(self, *words: str) -> None:
        if not self.skip(*words):
            raise self.expected(" ".join(words))

    def take(self, what: str, *sorts: Sort) -> Token:
        word = self.next
        if word is None or word.sort not in sorts:
            raise self.expected(what)
        self.at += 1
        return word

    def name(self, what: str) -> str:
        return self.take(what, Sort.NAME, Sort.QUOTED).value

    def end(self) -> None:
        if self.next is not None:
            raise self.expected("the end of the statement")

    def expected(self, what: str) -> UsageError:
        word = self.next
        place = f"at character {word.start + 1}: {word.text[:30]!r}" if word else "at the end"
        return codes.wrong(f"syntax error {place}, expected {what}")


def _alter(words: _Words) -> Export:
    words.need("ALTER")
    words.need("TABLE")
    table = _table(words)
    if words.is_next("ON", "CLUSTER"):
        raise codes.wrong(
            "ON CLUSTER is not needed: Calve exports each table once, wherever it runs", code=codes.STATEMENT
        )
    clauses = [_clause(words)]
    while words.skip(","):
        clauses.append(_clause(words))
    settings = _settings(words) if words.skip("SETTINGS") else ()
    words.end()
    return Export(table=table, clauses=tuple(clauses), settings=settings)


def _clause(words: _Words) -> Clause:
    if not words.skip("EXPORT"):
        raise codes.wrong(
            "ALTER TABLE here can only EXPORT PART or EXPORT PARTITION",
            code=codes.STATEMENT,
            hint="ALTER TABLE db.t EXPORT PARTITION ID '2024' TO TABLE catalog.namespace.table",
        )
    part = partition = ""
    every = False
    if words.skip("PART"):
        part = words.take("the name of a part in quotes", Sort.STRING).value
    else:
        words.need("PARTITION")
        if words.skip("ID"):
            partition = words.take("the id of a partition in quotes", Sort.STRING).value
        elif words.skip("ALL"):
            every = True
        else:
            partition = _value(words)
    words.need("TO", "TABLE")
    if words.is_next("FUNCTION"):
        raise codes.wrong(
            "TO TABLE FUNCTION is not supported",
            code=codes.STATEMENT,
            hint="name a table of a catalog (catalog.namespace.table), or a folder in quotes: 's3://bucket/folder'",
        )
    if not (part or partition or every):
        raise codes.wrong("the name of a part or partition is empty")
    return Clause(to=_destination(words), part=part, partition=partition, all=every)


def _value(words: _Words) -> str:
    """A partition's value: a literal, a tuple of literals, or tuple() of a table without a key."""
    if words.skip("TUPLE", "(", ")"):
        return "tuple()"
    if not words.skip("("):
        word = _literal(words)
        return word.value if word.sort is Sort.STRING else word.text
    values = [_literal(words).text]
    while words.skip(","):
        values.append(_literal(words).text)
    words.need(")")
    return f"({','.join(values)})"


def _literal(words: _Words) -> Token:
    minus = words.skip("-")
    word = words.take(
        "a number" if minus else "a value, ID or ALL",
        *((Sort.NUMBER,) if minus else (Sort.NUMBER, Sort.STRING)),
    )
    return Token(word.sort, f"-{word.text}", word.start, word.end) if minus else word


def _destination(words: _Words) -> str:
    word = words.next
    if word is not None and word.sort is Sort.STRING:
        words.at += 1
        return word.value
    names = [words.name("a table: catalog.namespace.table")]
    while words.skip("."):
        names.append(words.name("a name"))
    return ".".join(names)


def _table(words: _Words) -> str:
    """`[source:][db.]table`, as a person names it."""
    names = [words.name("a table")]
    source: str | None = None
    if words.skip(":"):
        source = names.pop()
        names.append(words.name("a table"))
    if words.skip("."):
        names.append(words.name("a table"))
    if len(names) == 2:
        return str(TableName(source=source, database=names[0], table=names[1]))
    return (f"{quoted_name(source)}:" if source is not None else "") + quoted_name(names[0])


def _settings(words: _Words) -> tuple[tuple[str, str], ...]:
    found: list[tuple[str, str]] = []
    while True:
        setting = words.name("the name of a setting")
        words.need("=")
        if words.is_next("TRUE") or words.is_next("FALSE"):
            value = str(int(words.take("a value", Sort.NAME).text.upper() == "TRUE"))
        else:
            word = _literal(words)
            value = word.value if word.sort is Sort.STRING else word.text
        found.append((setting, value))
        if not words.skip(","):
            return tuple(found)


def _kill(words: _Words, text: str) -> Kill:
    words.need("KILL")
    if not words.skip("EXPORT"):
        raise codes.wrong(
            "KILL here can only KILL EXPORT",
            code=codes.STATEMENT,
            hint="KILL EXPORT PARTITION WHERE partition_id = '2024'; other processes: calve cancel ID",
        )
    words.skip("PARTITION")
    words.need("WHERE")
    start = words.at
    rest, form = _format(words.all[start:])
    test = False
    if rest and rest[-1].sort is Sort.NAME and rest[-1].text.upper() in ("SYNC", "ASYNC", "TEST"):
        test = rest[-1].text.upper() == "TEST"
        rest = rest[:-1]
    if not rest:
        raise codes.wrong("the condition of KILL EXPORT is empty", hint="WHERE partition_id = '2024'")
    return Kill(where=text[rest[0].start : rest[-1].end], test=test, form=form)


def _system(words: _Words) -> Switch:
    words.need("SYSTEM")
    stop = words.skip("STOP")
    if not stop and not words.skip("START"):
        raise _not_a_switch()
    if not words.skip("EXPORTS"):
        raise _not_a_switch()
    table = _table(words) if words.next is not None else ""
    words.end()
    return Switch(stop=stop, table=table)


def _not_a_switch() -> UsageError:
    return codes.wrong(
        "SYSTEM here can only STOP EXPORTS or START EXPORTS",
        code=codes.STATEMENT,
        hint="SYSTEM STOP EXPORTS [db.table]",
    )


def _select(words: _Words, text: str) -> Select:
    rest, form = _format(words.all)
    # Altinity's users add it to every look at these tables; here all information is fresh.
    if [one.text for one in rest[-4:-1]] in _FRESH and rest[-1].sort is Sort.NUMBER:
        rest = rest[:-4]
    return Select(sql=text[: rest[-1].end], form=form)


def _look(words: _Words) -> Inspection:
    words.all, form = list(_format(words.all)[0]), _format(words.all)[1]
    name = like = ""
    if words.skip("SHOW", "DATABASES"):
        asks = Asks.DATABASES
    elif words.skip("SHOW", "TABLES"):
        asks = Asks.TABLES
        name = words.name("a database") if words.skip("FROM") or words.skip("IN") else ""
    elif words.skip("EXISTS", "DATABASE"):
        asks, name = Asks.DATABASE_EXISTS, words.name("a database")
    elif words.is_next("SHOW"):
        raise codes.wrong(
            "SHOW here can only SHOW TABLES or SHOW DATABASES",
            code=codes.STATEMENT,
            hint="DESCRIBE calve.processes",
        )
    else:
        asks = Asks.TABLE_EXISTS if words.is_next("EXISTS") else Asks.COLUMNS
        words.at += 1
        words.skip("TABLE")
        name = words.name("a table")
        if words.skip("."):
            name += "." + words.name("a table")
    if asks in (Asks.DATABASES, Asks.TABLES) and words.skip("LIKE"):
        like = words.take("a pattern in quotes", Sort.STRING).value
    words.end()
    return Inspection(asks=asks, name=name, like=like, form=form)


def _format(words: Sequence[Token]) -> tuple[Sequence[Token], str]:
    """Cut `FORMAT name` off the end."""
    if (
        len(words) >= 2
        and words[-1].sort is Sort.NAME
        and words[-2].sort is Sort.NAME
        and words[-2].text.upper() == "FORMAT"
    ):
        return words[:-2], words[-1].text
    return words, ""
