"""References of a CREATE to other tables, followed to the names these are restored under. Pure.

A reference is known by where it stands (T5): after FROM, JOIN, IN, TO or DEPENDS ON, in the arguments
of engines and functions that name tables, in a dictionary's source. What merely looks like a table's
name, a literal, a comment, a default, a check, a column, stays as it is (T6). What cannot be followed
with certainty is refused by name: a restored object must not read or write the original.
"""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from calve.clickhouse.sql.tokens import Sort, Token, string, tokens
from calve.clickhouse.sql.tokens import name as quoted
from calve.model.errors import RefusedError

Name = tuple[str, str]
Words = Sequence[Token]
_NAMES = frozenset({Sort.NAME, Sort.QUOTED})
# Words that a table follows; the last four name the targets of a TimeSeries table.
_BEFORE = frozenset({"FROM", "JOIN", "TO", "IN", "DATA", "TAGS", "SAMPLES", "METRICS"})
# Arguments that are a database and a table, or `db.table` in place of both.
_ENGINES = {"Buffer": 0, "Alias": 0, "Distributed": 1}
_FUNCTIONS = {
    "remote": 1,
    "remotesecure": 1,
    "cluster": 1,
    "clusterallreplicas": 1,
    "loop": 0,
    "mergetreeindex": 0,
    "mergetreeprojection": 0,
    "hascolumnintable": 0,
    "dictionary": 0,
    "joinget": 0,
    "joingetornull": 0,
}
_DICTIONARY_FUNCTION = re.compile(r"dict(get|has|isin)", re.IGNORECASE)
_QUERIES = frozenset({"QUERY", "INVALIDATE_QUERY"})


@dataclass(kw_only=True)
class _Follower:
    text: str
    owner: str  # the object that is restored, for messages
    renamed: Mapping[Name, Name]  # everything that is restored, and its name then
    words: Words = ()
    edits: dict[tuple[int, int], str] = field(default_factory=dict)
    tables: set[Name] = field(default_factory=set)  # in a FROM of this statement

    def follow(self) -> str:
        self.words = list(tokens(self.text))
        for at, word in enumerate(self.words):
            if word.sort is Sort.NAME and self._is_before_table(at):
                self._tables_from(at + 1)
            if word.sort in _NAMES and self._text(at + 1) == "(":
                self._call(at)
        self._qualified_columns()
        pieces, done = [], 0
        for (start, end), new in sorted(self.edits.items()):
            pieces += [self.text[done:start], new]
            done = end
        return "".join([*pieces, self.text[done:]])

    # ---- names in the text

    def _is_before_table(self, at: int) -> bool:
        word, before = self._text(at).upper(), self._text(at - 1).upper()
        return (word in _BEFORE and before != "ARRAY") or (word == "ON" and before == "DEPENDS")

    def _tables_from(self, at: int) -> None:
        """`db.a`, and in a list `db.a AS x, db.b FINAL`."""
        if self._text(at) == "(":
            if self._text(at - 1).upper() == "IN" and self._text(at + 4) != ")":
                return  # a list of values
            at += 1
        while (found := self._pair(at)) is not None:
            self.tables.add(found)
            self._replace_pair(at, found)
            at += 3
            if self._text(at).upper() == "AS":
                at += 2
            at += self._text(at).upper() == "FINAL"
            if self._text(at) != ",":
                return
            at += 1

    def _pair(self, at: int) -> Name | None:
        if self._text(at + 1) != "." or self._text(at + 3) == ".":
            return None
        if not all(place < len(self.words) and self.words[place].sort in _NAMES for place in (at, at + 2)):
            return None
        return self.words[at].value, self.words[at + 2].value

    def _replace_pair(self, at: int, found: Name) -> None:
        if (new := self._new(found)) is not None:
            self._edit(self.words[at], self.words[at + 2], f"{quoted(new[0])}.{quoted(new[1])}")

    def _qualified_columns(self) -> None:
        """`db.table.column`, where that table is in a FROM."""
        for at in range(len(self.words) - 4):
            names = self.words[at : at + 5 : 2]
            if self._text(at - 1) == "." or self._text(at + 1) != "." or self._text(at + 3) != ".":
                continue
            found = (names[0].value, names[1].value)
            if all(word.sort in _NAMES for word in names) and found in self.tables:
                self._replace_pair(at, found)

    # ---- names in arguments

    def _call(self, at: int) -> None:
        function = self.words[at].value
        arguments = list(_arguments(self.words, at + 1))
        if self._text(at - 1) == "=" and self._text(at - 2).upper() == "ENGINE":
            self._engine(function, arguments)
        elif function.casefold() == "merge" and len(arguments) > 1:
            self._merge(arguments[0])
        elif function.casefold() in _FUNCTIONS:
            self._named(arguments[_FUNCTIONS[function.casefold()] :])
        elif _DICTIONARY_FUNCTION.match(function):
            self._named(arguments[:1])
        elif function.upper() == "CLICKHOUSE" and self._text(at - 2).upper() == "SOURCE":
            self._dictionary_source(self.words[at + 2 :])

    def _engine(self, engine: str, arguments: Sequence[Words]) -> None:
        if engine == "Merge" and arguments:
            self._merge(arguments[0])
        elif engine == "Dictionary":
            self._named(arguments[:1])
        elif engine in _ENGINES:
            self._named(arguments[_ENGINES[engine] :])
        elif engine.startswith("Replicated") and arguments and arguments[0][0].sort is Sort.STRING:
            path = arguments[0][0].value
            if self._renames and "{uuid}" not in path and "{table}" not in path:
                raise self._refusal(f"would join the original's replicas at {path}")

    def _named(self, arguments: Sequence[Words]) -> None:
        """A table named by the first argument, or by the first two."""
        match [list(one) for one in arguments[:2]]:
            case [[Token(sort=Sort.NAME | Sort.QUOTED), Token(text="."), Token() as last], *_]:
                found = (arguments[0][0].value, last.value)
                if (new := self._new(found)) is not None:
                    self._edit(arguments[0][0], last, f"{quoted(new[0])}.{quoted(new[1])}")
            case [[Token() as database], [Token() as table]] if database.value in self._databases:
                self._two(database, table)
            case [[Token() as only], *_] if "." in only.value and only.sort is not Sort.NUMBER:
                before, _, after = only.value.partition(".")
                if (new := self._new((before, after))) is not None:
                    self._edit(
                        only,
                        only,
                        string(".".join(new)) if only.sort is Sort.STRING else quoted(".".join(new)),
                    )

    def _two(self, database: Token, table: Token) -> None:
        new = self._new((database.value, table.value))
        if new is None:
            return
        for word, value in ((database, new[0]), (table, new[1])):
            self._edit(word, word, string(value) if word.sort is Sort.STRING else quoted(value))

    def _merge(self, database: Words) -> None:
        """`Merge('db', 'regexp')` shows all tables of a database: followed if the whole of it moves."""
        if len(database) > 1 and database[0].value.upper() == "REGEXP":
            pattern = next((word.value for word in database if word.sort is Sort.STRING), "")
            if any(re.search(pattern, one) for one in self._databases):
                raise self._refusal(f"shows tables of every database like {pattern!r}, the original's too")
            return
        if len(database) != 1 or database[0].value not in self._databases:
            return
        moved = {
            (new[0], old[1] == new[1]) for old, new in self.renamed.items() if old[0] == database[0].value
        }
        if len(moved) != 1 or not next(iter(moved))[1]:
            raise self._refusal(f"shows tables of {database[0].value}, which are restored under other names")
        self._edit(database[0], database[0], string(next(iter(moved))[0]))

    def _dictionary_source(self, words: Words) -> None:
        """`SOURCE(CLICKHOUSE(DB 'db' TABLE 't' QUERY '…'))`, in whichever order."""
        given: dict[str, Token] = {}
        for word, value in itertools.pairwise(words):
            if word.text == ")":
                break
            if word.sort is Sort.NAME and value.sort is Sort.STRING:
                given[word.text.upper()] = value
        database, table = given.get("DB") or given.get("DATABASE"), given.get("TABLE")
        if database is not None and table is not None:
            self._two(database, table)
        for key in _QUERIES & given.keys():
            inner = _Follower(text=given[key].value, owner=self.owner, renamed=self.renamed).follow()
            if inner != given[key].value:
                self._edit(given[key], given[key], string(inner))

    # ---- what they become

    @property
    def _renames(self) -> bool:
        return any(old != new for old, new in self.renamed.items())

    @property
    def _databases(self) -> frozenset[str]:
        """Those of which something is restored under another name."""
        return frozenset(old[0] for old, new in self.renamed.items() if old != new)

    def _new(self, found: Name) -> Name | None:
        """None where the name stays."""
        if found in self.renamed:
            return None if self.renamed[found] == found else self.renamed[found]
        if found[0] in self._databases:
            raise self._refusal(f"refers to {'.'.join(found)}, which this restore does not make")
        return None

    def _refusal(self, why: str) -> RefusedError:
        return RefusedError(
            f"{self.owner} {why}: restored under another name it would still use the original",
            code="restore_reference",
            hint="restore what it refers to as well, leave it out with --tables, or restore without --as",
        )

    def _text(self, at: int) -> str:
        return self.words[at].text if 0 <= at < len(self.words) else ""

    def _edit(self, first: Token, last: Token, new: str) -> None:
        self.edits[first.start, last.end] = new


def follow(text: str, owner: str, renamed: Mapping[Name, Name]) -> str:
    """The part of a CREATE after its name, with every reference to what is restored under its new name."""
    if all(old == new for old, new in renamed.items()):
        return text
    return _Follower(text=text, owner=owner, renamed=renamed).follow()


def names_tables(function: str) -> bool:
    """Whether arguments of this engine or function can name a table."""
    plain = function.casefold()
    return (
        plain in _FUNCTIONS
        or plain == "merge"
        or function in {*_ENGINES, "Dictionary"}
        or _DICTIONARY_FUNCTION.match(function) is not None
    )


def _arguments(words: Words, opening: int) -> Iterator[Words]:
    """The words of each argument of the call whose bracket opens at `opening`."""
    depth, begin = 0, opening + 1
    for at in range(opening, len(words)):
        if words[at].sort is not Sort.SIGN:
            continue
        depth += (words[at].text in "([") - (words[at].text in ")]")
        if (words[at].text == "," and depth == 1) or depth == 0:
            if at > begin:
                yield words[begin:at]
            begin = at + 1
        if depth == 0:
            return
