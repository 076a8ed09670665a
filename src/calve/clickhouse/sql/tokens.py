"""Words of ClickHouse's SQL: splitting text into them, and quoting text so that it stays one.

Nothing a user named ever goes into a statement except through `name` or `string`.

Tables as a person names them: `[source:]db.table`, with backquotes where needed.

Small expressions as a tree: partition keys, sorting keys, `--partition-by`.
"""

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from calve.model.errors import UsageError

_ESCAPES = {
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "0": "\0",
    "a": "\a",
    "v": "\v",
    "e": "\x1b",
}
_ESCAPED = {
    "\\": "\\\\",
    "'": "\\'",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\0": "\\0",
}
_WORD = re.compile(
    r"""(?P<space>\s+)
      | (?P<string>'(?:[^'\\]|\\.|'')*')
      | (?P<quoted>`(?:[^`\\]|\\.|``)*`|"(?:[^"\\]|\\.|"")*")
      | (?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)
      | (?P<name>[^\W\d]\w*)
      | (?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\x([0-9a-fA-F]{2})|\\(.)|(['`\"])\3", re.DOTALL)


class Sort(StrEnum):
    """What a token is."""

    STRING = "string"
    QUOTED = "quoted"  # a name in backquotes or double quotes
    NUMBER = "number"
    NAME = "name"
    SIGN = "sign"


@dataclass(frozen=True, slots=True)
class Token:
    """One word; `start` and `end` say where it stood, so that text can be cut out as it was."""

    sort: Sort
    text: str
    start: int
    end: int

    @property
    def value(self) -> str:
        """What the word means: quotes and escapes taken away."""
        if self.sort in (Sort.STRING, Sort.QUOTED):
            return unquote(self.text)
        return self.text


def tokens(text: str) -> Iterator[Token]:
    """The words of `text`, spaces left out. An unfinished quote becomes single signs."""
    for match in _WORD.finditer(text):
        if match.lastgroup != "space" and match.lastgroup is not None:
            yield Token(Sort(match.lastgroup), match.group(), match.start(), match.end())


def unquote(text: str) -> str:
    """The value of a quoted word. Bytes above 0x7F given as \\xNN stay bytes (surrogates)."""

    def plain(match: re.Match[str]) -> str:
        code: str | None
        doubled: str | None
        code, escaped, doubled = match.groups()
        if code is not None:
            return bytes([int(code, 16)]).decode("utf-8", "surrogateescape")
        if doubled is not None:
            return (
                doubled if doubled == text[0] else doubled * 2
            )  # another quote's sign is a sign as any other
        return _ESCAPES.get(escaped, escaped)

    return _ESCAPE.sub(plain, text[1:-1])


def string(value: str) -> str:
    """A string literal."""
    return "'" + "".join(_ESCAPED.get(sign, sign) for sign in value) + "'"


def name(value: str) -> str:
    """A name in backquotes, whatever it holds."""
    return "`" + value.replace("\\", "\\\\").replace("`", "\\`").replace("\0", "\\0") + "`"


def split_arguments(text: str) -> list[str]:
    """The arguments of a call, cut at commas outside of brackets and quotes."""
    depth = 0
    start = 0
    found: list[str] = []
    for token in tokens(text):
        if token.sort is not Sort.SIGN:
            continue
        if token.text in "([{":
            depth += 1
        elif token.text in ")]}":
            depth -= 1
        elif token.text == "," and depth == 0:
            found.append(text[start : token.start].strip())
            start = token.end
    last = text[start:].strip()
    if last or found:
        found.append(last)
    return found


def called(words: Sequence[Token]) -> Iterator[str]:
    """The names that stand right before an opening bracket: the functions an expression calls."""
    for word, following in itertools.pairwise(words):
        if word.sort in (Sort.NAME, Sort.QUOTED) and following.text == "(":
            yield word.value


_PIECE = r"`(?:[^`\\]|\\.|``)+`|[^`.:\s]+"
_TABLE = re.compile(rf"(?:(?P<source>{_PIECE}):)?(?:(?P<database>{_PIECE})\.)?(?P<table>{_PIECE})", re.DOTALL)
_BARE = re.compile(r"[^\W\d]\w*")


@dataclass(frozen=True, kw_only=True)
class TableName:
    """A table of a source; `source` is None where the person left it to the default."""

    source: str | None
    database: str
    table: str

    @property
    def sql(self) -> str:
        """For a statement."""
        return f"{name(self.database)}.{name(self.table)}"

    def __str__(self) -> str:
        """For a person; `parse` reads it back."""
        prefix = "" if self.source is None else f"{_shown(self.source)}:"
        return f"{prefix}{_shown(self.database)}.{_shown(self.table)}"


def parse(text: str, default_database: Callable[[str | None], str] = lambda _source: "") -> TableName:
    """UsageError for an invalid name, and for one without a database where its source has no default."""
    found = _TABLE.fullmatch(text.strip())
    source, database, table = (
        (_plain(piece) for piece in found.group("source", "database", "table")) if found else ("", "", "")
    )
    database = database or (default_database(source) if found else "")
    if not database or not table:
        raise UsageError(
            f"invalid table name {text!r}",
            code="table_name",
            hint="give it as db.table or source:db.table, with backquotes around "
            "names that have dots, colons, spaces or backquotes: 'db.`my.table`'",
        )
    return TableName(source=source, database=database, table=table)


def _plain(piece: str | None) -> str | None:
    if piece is None or not piece.startswith("`"):
        return piece
    return unquote(piece)


def _shown(piece: str) -> str:
    return piece if _BARE.fullmatch(piece) else name(piece)


@dataclass(frozen=True)
class Name:
    name: str


@dataclass(frozen=True)
class Number:
    value: int


@dataclass(frozen=True)
class Text:
    value: str


@dataclass(frozen=True)
class Call:
    function: str
    arguments: tuple["Expression | None", ...]


Expression = Name | Number | Text | Call


def members(key: str) -> list[str]:
    """The members of a key: of a tuple, or of a list without brackets, or the key alone."""
    text = key.strip()
    words = list(tokens(text))
    if words and words[0].text == "(" and _closes_last(words, 0):
        text = text[words[0].end : words[-1].start]
    elif len(words) > 1 and words[0].text == "tuple" and words[1].text == "(" and _closes_last(words, 1):
        text = text[words[1].end : words[-1].start]
    return [member for member in split_arguments(text) if member]


def expression(text: str) -> Expression | None:
    """The tree of one member; None if it is anything else than names, numbers and calls."""
    words = list(tokens(text))
    match words:
        case []:
            return None
        case [Token(sort=Sort.NUMBER, text=digits)] if digits.isdigit():
            return Number(int(digits))
        case [Token(sort=Sort.STRING) as word]:
            return Text(word.value)
        case [Token(sort=Sort.NAME | Sort.QUOTED) as word]:
            return Name(word.value)
        case [Token(sort=Sort.NAME) as word, Token(text="("), *_] if _closes_last(words, 1):
            inner = text[words[1].end : words[-1].start]
            return Call(word.text, tuple(expression(argument) for argument in split_arguments(inner)))
        case [Token(text="("), *_] if _closes_last(words, 0):
            return expression(text[words[0].end : words[-1].start])
        case _:
            return _dotted(words)


def _dotted(words: Sequence[Token]) -> Expression | None:
    """`n.a`, the name of a flattened column."""
    names, dots = words[::2], words[1::2]
    if all(word.sort in (Sort.NAME, Sort.QUOTED) for word in names) and all(dot.text == "." for dot in dots):
        return Name(".".join(word.value for word in names)) if len(names) == len(dots) + 1 else None
    return None


def _closes_last(words: Sequence[Token], opening: int) -> bool:
    """Whether the bracket at `opening` is closed by the very last word."""
    depth = 0
    for place in range(opening, len(words)):
        if words[place].sort is Sort.SIGN:
            depth += (words[place].text == "(") - (words[place].text == ")")
        if depth == 0:
            return place == len(words) - 1
    return False
