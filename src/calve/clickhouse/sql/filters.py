"""A row filter (`--where`): a condition over the columns of the table, and over nothing else (T3).

It is part of the export's key and is computed by executors, attempt after attempt, away from the
source. So it must mean the same each time and everywhere. ClickHouse's own parser reads it, and only
what is known to be safe is allowed: columns that the table stores, literals, and functions that
always give the same answer. What is kept and shipped is the parser's own text of it.

The tree that ClickHouse's own parser makes of a statement, read from its EXPLAIN AST. Pure.

The functions that a condition may call: the same answer for the same values, always and everywhere.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from calve.clickhouse.engine.ddl import needs_server
from calve.clickhouse.source import Session
from calve.clickhouse.sql.tokens import Sort, tokens
from calve.clickhouse.tables import TableInfo
from calve.model.errors import CalveError, PermanentError, UsageError

_LINE = re.compile(r"(?P<indent> *)(?P<kind>\w+)(?: (?P<text>.*?))??(?: \(children (?P<children>\d+)\))?")


@dataclass(frozen=True)
class Node:
    """`kind` is the parser's word: Function, Identifier, Literal, ExpressionList, Subquery, …"""

    kind: str
    text: str
    children: tuple["Node", ...] = ()

    @property
    def arguments(self) -> tuple["Node", ...] | None:
        """A plain call's arguments; None where it also has parameters, a window, or anything else."""
        match self.children:
            case (Node(kind="ExpressionList", children=given),):
                return given
            case ():
                return ()
            case _:
                return None


def tree(explained: str) -> Node:
    """ValueError for text that is not a tree."""
    lines: Iterator[re.Match[str] | None] = (
        _LINE.fullmatch(line) for line in explained.split("\n") if line.strip()
    )
    root = _node(lines, 0)
    if next(lines, None) is not None:
        raise ValueError("text after the tree")
    return root


def _node(lines: Iterator[re.Match[str] | None], depth: int) -> Node:
    line = next(lines, None)
    if line is None or len(line["indent"]) != depth:
        raise ValueError("a line that does not belong to the tree")
    children = tuple(_node(lines, depth + 1) for _ in range(int(line["children"] or 0)))
    return Node(line["kind"], line["text"] or "", children)


_COMPARED = """
equals notEquals less lessOrEquals greater greaterOrEquals isNotDistinctFrom isDistinctFrom in notIn like
notLike ilike notILike and or xor not isNull isNotNull isZeroOrNull ifNull nullIf coalesce assumeNotNull
toNullable if multiIf caseWithExpression greatest least clamp transform isNaN isFinite isInfinite
ifNotFinite identity
"""
_NUMBERS = """
plus minus multiply divide intDiv intDivOrZero intDivOrNull modulo moduloOrZero moduloOrNull
positiveModulo positiveModuloOrNull divideOrNull negate abs sign gcd lcm min2 max2 byteSwap
multiplyDecimal divideDecimal round roundBankers floor ceil trunc roundToExp2 roundDown bitAnd bitOr
bitXor bitNot bitShiftLeft bitShiftRight bitRotateLeft bitRotateRight bitTest bitTestAny bitTestAll
bitCount bitHammingDistance pow sqrt cbrt exp log log2 log10 intExp2 intExp10 isPrime
"""
_TEXT = """
empty notEmpty length lengthUTF8 lower upper lowerUTF8 upperUTF8 reverse reverseUTF8 concat substring
substringUTF8 substringIndex left right leftUTF8 rightUTF8 leftPad rightPad trimLeft trimRight trimBoth
repeat startsWith endsWith startsWithUTF8 endsWithUTF8 isValidUTF8 toValidUTF8 ascii position positionUTF8
positionCaseInsensitive positionCaseInsensitiveUTF8 locate countSubstrings match extract extractAll
countMatches multiSearchAny multiMatchAny hasToken hasTokenCaseInsensitive hasSubsequence replaceOne
replaceAll replaceRegexpOne replaceRegexpAll translate splitByChar splitByString splitByRegexp alphaTokens
arrayStringConcat hex unhex bin unbin base64Encode base64Decode tryBase64Decode CRC32 domain
domainWithoutWWW protocol path topLevelDomain extractURLParameter
"""
_TIMES = """
toYear toQuarter toMonth toDayOfMonth toDayOfYear toDayOfWeek toHour toMinute toSecond toMillisecond
toYYYYMM toYYYYMMDD toYYYYMMDDhhmmss toISOWeek toISOYear toWeek toYearWeek toMonday toStartOfYear
toStartOfISOYear toStartOfQuarter toStartOfMonth toStartOfWeek toStartOfDay toStartOfHour
toStartOfMinute toStartOfSecond toStartOfFiveMinutes toStartOfTenMinutes toStartOfFifteenMinutes
toStartOfInterval toLastDayOfMonth dateTrunc dateDiff age toRelativeYearNum toRelativeQuarterNum
toRelativeMonthNum toRelativeWeekNum toRelativeDayNum toRelativeHourNum toRelativeMinuteNum
toRelativeSecondNum toYearNumSinceEpoch toMonthNumSinceEpoch toUnixTimestamp toUnixTimestamp64Milli
toUnixTimestamp64Micro toUnixTimestamp64Nano fromUnixTimestamp fromUnixTimestamp64Milli
fromUnixTimestamp64Micro fromUnixTimestamp64Nano toTimezone addYears addQuarters addMonths addWeeks
addDays addHours addMinutes addSeconds subtractYears subtractQuarters subtractMonths subtractWeeks
subtractDays subtractHours subtractMinutes subtractSeconds toIntervalYear toIntervalQuarter
toIntervalMonth toIntervalWeek toIntervalDay toIntervalHour toIntervalMinute toIntervalSecond
toIntervalMillisecond toIntervalMicrosecond toIntervalNanosecond makeDate makeDate32 makeDateTime
makeDateTime64 formatDateTime parseDateTimeBestEffort parseDateTimeBestEffortOrNull
parseDateTimeBestEffortOrZero parseDateTime64BestEffort parseDateTime64BestEffortOrNull parseDateTime
"""
_CONVERTED = """
CAST accurateCast accurateCastOrNull toString toFixedString toBool toUUID toUUIDOrNull toUUIDOrZero toDate
toDateOrNull toDateOrZero toDate32 toDate32OrNull toDateTime toDateTimeOrNull toDateTimeOrZero
toDateTime64 toDateTime64OrNull toDecimal32 toDecimal64 toDecimal128 toDecimal256 toDecimal32OrNull
toDecimal64OrNull toDecimal128OrNull toFloat32 toFloat64 toFloat32OrNull toFloat64OrNull
toLowCardinality toIPv4 toIPv6 toIPv4OrNull toIPv6OrNull IPv4NumToString IPv4StringToNum IPv6NumToString
IPv6StringToNum isIPv4String isIPv6String isIPAddressInRange IPv4ToIPv6 reinterpretAsUInt64
reinterpretAsInt64 reinterpretAsString
"""
_NESTED = """
array tuple map lambda tupleElement arrayElement has hasAny hasAll hasSubstr indexOf countEqual arrayExists
arrayAll arrayCount arrayMap arrayFilter arrayFirst arrayLast arrayFirstIndex arrayLastIndex arraySum
arrayMin arrayMax arrayAvg arrayConcat arraySlice arraySort arrayReverseSort arrayReverse arrayDistinct
arrayUniq arrayFlatten arrayCompact arrayZip range mapKeys mapValues mapContains mapContainsKey JSONHas
JSONLength JSONType JSONExtract JSONExtractInt JSONExtractUInt JSONExtractFloat JSONExtractBool
JSONExtractString JSONExtractRaw JSONExtractArrayRaw JSONExtractKeys simpleJSONExtractInt
simpleJSONExtractUInt simpleJSONExtractFloat simpleJSONExtractBool simpleJSONExtractString simpleJSONHas
isValidJSON dynamicType dynamicElement variantType variantElement
"""
_HASHED = """
cityHash64 sipHash64 sipHash128 xxHash32 xxHash64 farmHash64 metroHash64 murmurHash2_32 murmurHash2_64
murmurHash3_32 murmurHash3_64 murmurHash3_128 intHash32 intHash64 javaHash MD5 SHA1 SHA224 SHA256 SHA512
halfMD5 icebergHash icebergBucket icebergTruncate
"""
_INTEGERS = frozenset(
    f"to{sign}Int{bits}{otherwise}"
    for sign in ("", "U")
    for bits in (8, 16, 32, 64, 128, 256)
    for otherwise in ("", "OrNull", "OrZero")
)
LASTING = _INTEGERS.union(
    *(text.split() for text in (_COMPARED, _NUMBERS, _TEXT, _TIMES, _CONVERTED, _NESTED, _HASHED))
)
_FOLDED = frozenset(name.casefold() for name in LASTING)


def lasting(function: str) -> bool:
    """Whether a condition may call it. By any case: most old names are understood so."""
    return function.casefold() in _FOLDED


_HINT = "give a condition over the table's columns, such as --where \"id < 100 AND day = '2024-01-01'\""
_ALONE = "SELECT "
_HELD, _END = "SELECT identity(", ")"
_AT = re.compile(r"failed at position (\d+)")
_SETS = frozenset({"in", "notIn"})
_WORDS = {
    "Subquery": "a sub-query reads another table, which executors do not have",
    "QueryParameter": "a query parameter has no value here",
    "Asterisk": "* is not a condition",
}


class FilterParser(Protocol):
    """ClickHouse's own, wherever it runs. PermanentError for text that does not parse."""

    def normal(self, statement: str) -> str: ...
    def tree(self, statement: str) -> Node: ...


def checked(parser: FilterParser, table: TableInfo, where: str) -> str:
    """The condition as the parser writes it; UsageError for one that is not surely the same everywhere."""
    statement = _parsed(parser, where)
    _Check(parser, table, where).condition(statement)
    return statement.removeprefix(_HELD).removesuffix(_END)


def check_at_source(session: Session, table: TableInfo, where: str) -> None:
    """UsageError where the source cannot compute it: types that do not compare, a version without it."""
    try:
        session.rows(f"SELECT 1 AS one FROM {table.sql} WHERE ({where}) LIMIT 0", what=f"table {table}")
    except PermanentError as error:
        raise _wrong(where, error.message) from None


def _parsed(parser: FilterParser, where: str) -> str:
    """`SELECT identity(<condition>)`. It must parse by itself, which no open bracket, quote or comment
    does, and as one argument, which no further clause does. The newline ends a last comment."""
    try:
        parser.normal(_ALONE + where)
    except PermanentError as error:
        raise _syntax(where, error) from None
    raw = f"{_HELD}{where}\n{_END}"
    try:
        statement = parser.normal(raw)
        same = parser.tree(raw) == parser.tree(statement)
    except PermanentError:
        raise _wrong(where, "something follows the condition") from None
    if not same or not statement.startswith(_HELD) or not statement.endswith(_END):
        raise _wrong(where, "the engine does not read its own text of this condition as the same")
    return statement


@dataclass(frozen=True)
class _Check:
    parser: FilterParser
    table: TableInfo
    where: str
    aliases: tuple[str, ...] = ()  # ALIAS columns that led here

    def condition(self, statement: str) -> None:
        """Walks the tree of a statement that `_parsed` made."""
        if any(word.sort is Sort.NAME and word.text.upper() == "AS" for word in tokens(statement)):
            raise self._refusal("AS", "a condition gives no names")
        match self.parser.tree(statement):
            case Node(
                kind="SelectWithUnionQuery",
                children=(Node(children=(Node(kind="SelectQuery", children=(selected,)),)),),
            ):
                pass
            case _:
                raise self._refusal("", "something follows the condition")
        match selected.children:
            case (Node(kind="Function", text="identity") as held,) if (
                held.arguments and len(held.arguments) == 1
            ):
                self._expression(held.arguments[0], frozenset())
            case _:
                raise self._refusal("", "it is not one condition")

    def _expression(self, node: Node, bound: frozenset[str]) -> None:
        match node.kind:
            case "Literal":
                return
            case "Identifier":
                if node.text not in bound:
                    self._column(node.text)
            case "Function":
                self._call(node, bound)
            case other:
                raise self._refusal("", _WORDS.get(other, f"{other} is not allowed in a condition"))

    def _call(self, node: Node, bound: frozenset[str]) -> None:
        arguments = node.arguments
        if needs_server(node.text, self.table) or not lasting(node.text) or arguments is None:
            raise self._refusal(
                node.text,
                f"{node.text}() is not allowed: a condition may only call functions that give the same answer "
                "for the same row always and everywhere",
            )
        if node.text == "lambda" and len(arguments) == 2:
            names = (arguments[0].arguments or ()) if arguments[0].kind == "Function" else arguments[:1]
            self._expression(arguments[1], bound | {name.text for name in names})
            return
        if node.text in _SETS and arguments[-1].kind == "Identifier":
            raise self._refusal(arguments[-1].text, "IN takes a list of values here, such as IN (1, 2)")
        for argument in arguments:
            self._expression(argument, bound)

    def _column(self, name: str) -> None:
        """A column of the table, or a part of one (`tuple.field`, `json.path`, `array.size0`)."""
        columns = {column.name: column for column in self.table.columns}
        found = next((columns[one] for one in _prefixes(name) if one in columns), None)
        qualified = name not in columns and name.partition(".")[0] in (self.table.name, self.table.database)
        if found is None or qualified:
            virtual = " (virtual columns are not kept in an export)" if name.startswith("_") else ""
            raise self._refusal(name, f"table {self.table} has no column {name}{virtual}")
        if found.default_kind == "ALIAS" and found.name not in self.aliases:
            inner = _Check(self.parser, self.table, self.where, (*self.aliases, found.name))
            inner.condition(_parsed(self.parser, found.default_expression))

    def _refusal(self, word: str, why: str) -> UsageError:
        at = next((one.start + 1 for one in tokens(self.where) if word and one.value == word), 0)
        through = f" (by way of the ALIAS column {self.aliases[-1]})" if self.aliases else ""
        return _wrong(self.where, f"{f'at character {at}: ' if at and not through else ''}{why}{through}")


def _prefixes(name: str) -> Iterator[str]:
    """`a.b.c`, `a.b`, `a`."""
    while name:
        yield name
        name = name.rpartition(".")[0]


def _syntax(where: str, error: CalveError) -> UsageError:
    found = _AT.search(error.message)
    at = int(found[1]) - len(_ALONE) if found else 0
    if not 0 < at <= len(where):
        return _wrong(where, "it ends too early" if found else error.message)
    return _wrong(where, f"syntax error at character {at}: {where[at - 1 : at + 30]!r}")


def _wrong(where: str, why: str) -> UsageError:
    return UsageError(f"invalid --where {where!r}: {why}", code="where", hint=_HINT)
