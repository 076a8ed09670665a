"""What a SELECT may contain, decided over every node of the tree that ClickHouse's own parser makes of it.

The list says what is allowed: kinds of nodes, tables, functions. What is not on it is refused by its name, so
what the next engine adds is refused until somebody looks at it. What runs is the parser's own text of the tree that
was checked, never the text that came.

The tree is read from EXPLAIN AST, whose lines a name with a line break or `(children 9` in it could forge: such
names are refused first. `* APPLY(f)` is refused because the tree does not show its function.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from calve.clickhouse import errors as clickhouse
from calve.clickhouse.sql.filters import LASTING, FilterParser, Node
from calve.clickhouse.sql.tokens import Sort, Token, tokens
from calve.model.errors import CalveError, UsageError
from calve.sql import codes

DATABASE = "calve"  # of names without one
ONE = "system.one"
_DEEPEST = 200
_TOO_DEEP, _PARAMETER = frozenset({167, 168, 306}), 456  # ClickHouse's codes
_NODES = """
SelectWithUnionQuery SelectQuery SelectIntersectExceptQuery ExpressionList Subquery Identifier Literal
Function Asterisk QualifiedAsterisk ColumnsTransformerList ColumnsExceptTransformer ColumnsRegexpMatcher
ColumnsListMatcher QualifiedColumnsRegexpMatcher QualifiedColumnsListMatcher TablesInSelectQuery
TablesInSelectQueryElement TableExpression TableIdentifier TableJoin ArrayJoin OrderByElement
InterpolateElement WindowDefinition WindowListElement WithElement
"""
_KINDS = frozenset(_NODES.split())
_CLAUSES = {
    "Set": "SETTINGS is not allowed in a SELECT",
    "ColumnsApplyTransformer": "APPLY is not allowed: call the function on each column",
}
_AGGREGATES = """
count sum avg min max any anyLast any_value first_value last_value argMin argMax uniq uniqExact uniqCombined
uniqCombined64 uniqHLL12 countDistinct median medianExact quantile quantiles quantileExact quantilesExact
quantileTDigest quantilesTDigest quantileTiming quantilesTiming stddevPop stddevSamp varPop varSamp covarPop
covarSamp corr groupArray groupUniqArray groupArraySorted groupConcat groupBitAnd groupBitOr groupBitXor topK sumMap
minMap maxMap sumWithOverflow sumKahan avgWeighted deltaSum skewPop kurtPop histogram entropy
"""
_COMBINATORS = ("if", "array", "distinct", "ornull", "ordefault")
_WINDOWS = "row_number rank dense_rank percent_rank cume_dist ntile nth_value lag lead lagInFrame leadInFrame"
_MORE = """
now now64 today yesterday timezone version currentDatabase toTypeName bar arrayJoin exists globalIn globalNotIn
formatReadableSize formatReadableDecimalSize formatReadableQuantity formatReadableTimeDelta materialize grouping
groupingSets concatWithSeparator format tupleNames mapFilter mapApply
"""
_FUNCTIONS = frozenset(name.casefold() for name in (*LASTING, *_WINDOWS.split(), *_MORE.split()))
_FOLDED_AGGREGATES = frozenset(name.casefold() for name in _AGGREGATES.split())
_SETS = frozenset({"in", "notin", "globalin", "globalnotin"})
_FORMATS = """
TabSeparated TabSeparatedWithNames TabSeparatedWithNamesAndTypes TSV TSVWithNames TSVWithNamesAndTypes
CSV CSVWithNames CSVWithNamesAndTypes JSON JSONStrings JSONCompact JSONEachRow JSONStringsEachRow
JSONCompactEachRow JSONCompactEachRowWithNames JSONCompactEachRowWithNamesAndTypes Native RowBinary
RowBinaryWithNames RowBinaryWithNamesAndTypes Pretty PrettyCompact PrettyCompactMonoBlock PrettySpace
PrettyNoEscapes PrettyCompactNoEscapes Vertical Values Markdown Parquet Arrow ArrowStream Null
"""
FORMATS = {name.casefold(): name for name in _FORMATS.split()}


@dataclass(frozen=True, kw_only=True)
class Allowed:
    """A SELECT that may run: the parser's own text of it, and what it reads."""

    sql: str
    tables: tuple[str, ...]
    columns: frozenset[str] | None = None  # names that it mentions, without their tables; None: any, by *
    ids: tuple[str, ...] = ()  # of the processes that its WHERE asks for, where it is that simple


def format_named(name: str) -> str:
    """A format of the list; UsageError for another."""
    try:
        return FORMATS[name.casefold()]
    except KeyError:
        raise codes.wrong(
            f"format {name!r} is not available",
            code=codes.FORMAT,
            hint="such as TSV, JSON, JSONEachRow, CSV, Native",
        ) from None


def allowed(parser: FilterParser, sql: str, tables: Collection[str]) -> Allowed:
    """The statement as it may run. UsageError with a code of `codes` otherwise."""
    normal = _normal(parser, sql)
    try:
        root = parser.tree(normal)
        nodes = list(_nodes(root, 0))
    except (ValueError, RecursionError):
        raise _refusal("the statement is nested too deeply, or has names that cannot be checked") from None
    except CalveError as error:
        raise _translated(error) from None
    if root.kind != "SelectWithUnionQuery":
        raise _refusal(f"{root.kind} is not a SELECT")
    read: dict[str, None] = {}
    for node in nodes:
        _check(node)
        if node.kind == "TableIdentifier" and (table := _table(_name(node), tables)):
            read[table] = None
    return Allowed(sql=normal, tables=tuple(read), columns=_columns(nodes), ids=_ids(normal, nodes))


def _normal(parser: FilterParser, sql: str) -> str:
    try:
        normal = parser.normal(sql)
    except CalveError as error:
        raise _translated(error) from None
    words = list(tokens(normal))
    for word, following in zip(words, (*words[1:], None), strict=True):
        if word.sort is Sort.QUOTED and _forges(word):
            raise _refusal(f"the name {word.text[:40]!r} has signs in it that are not allowed here")
        if _is(word, "INTO") and following is not None and _is(following, "OUTFILE"):
            raise _refusal("INTO OUTFILE is not allowed", hint="redirect what the client prints")
    return normal


def _is(word: Token, keyword: str) -> bool:
    return word.sort is Sort.NAME and word.text.upper() == keyword


def _forges(word: Token) -> bool:
    inner = word.text[1:-1]
    signs = any(sign < " " or sign in "\\\x7f" for sign in inner)
    return signs or any(mark in inner for mark in ("(children", "(alias", "(column"))


def _nodes(node: Node, depth: int) -> Iterator[Node]:
    if depth > _DEEPEST:
        raise RecursionError
    yield node
    for child in node.children:
        yield from _nodes(child, depth + 1)


def _check(node: Node) -> None:
    if node.kind not in _KINDS:
        raise _refusal(_CLAUSES.get(node.kind, f"{node.kind} is not allowed in a SELECT"))
    match node.kind:
        case "SelectWithUnionQuery" if [child.kind for child in node.children] != ["ExpressionList"]:
            raise _refusal("a SELECT here has no INTO OUTFILE, no SETTINGS, and FORMAT only at its end")
        case "TableExpression":
            for child in node.children:
                if child.kind == "Function":
                    raise _refusal(
                        f"the table function {_name(child)}() is not allowed",
                        hint="read system.exports, calve.processes, …",
                    )
        case "Function":
            _check_call(node)


def _check_call(node: Node) -> None:
    function = _name(node)
    if not _may_call(function):
        raise codes.wrong(
            f"function {function}() is not allowed in a SELECT here",
            code=codes.FUNCTION,
            hint="docs/sql.md lists what is: comparisons, arithmetic, text, times, arrays, aggregates, windows",
        )
    arguments = node.children[0].children if node.children else ()
    if function.casefold() in _SETS and (len(arguments) != 2 or arguments[1].kind == "Identifier"):
        raise _refusal(
            f"IN takes a list of values or a sub-query here, not {_name(arguments[1]) if arguments[1:] else 'that'}",
            hint="write IN (SELECT … FROM it)",
        )


def _may_call(function: str) -> bool:
    name = function.casefold()
    if name in _FUNCTIONS:
        return True
    while name not in _FOLDED_AGGREGATES:
        shorter = next((name.removesuffix(one) for one in _COMBINATORS if name.endswith(one)), "")
        if not shorter:
            return False
        name = shorter
    return True


def _table(name: str, tables: Collection[str]) -> str:
    """The table that is read; empty for `system.one` and for names of WITH. Which of WITH's names there are
    the tree does not show; a name that is neither one is the engine's to refuse, in a database of ours."""
    if "." not in name:
        own = f"{DATABASE}.{name}"
        return own if own in tables else ""
    if name == ONE:
        return ""
    if name in tables:
        return name
    raise codes.wrong(f"there is no table {name}", code=codes.TABLE, hint=f"there are {', '.join(tables)}")


def _columns(nodes: list[Node]) -> frozenset[str] | None:
    if any("Asterisk" in node.kind or "Matcher" in node.kind for node in nodes):
        return None
    names = [_name(node).split(".") for node in nodes if node.kind == "Identifier"]
    return frozenset(piece for name in names for piece in name)


_ID_COLUMNS = frozenset({"id", "process_id", "transaction_id"})
_CLAUSE_WORDS = frozenset({"PREWHERE", "HAVING", "QUALIFY", "JOIN", "WITH", "UNION", "INTERSECT", "EXCEPT"})


def _ids(normal: str, nodes: list[Node]) -> tuple[str, ...]:
    """`SELECT … FROM one_table WHERE id = 'x' AND …`: reading only that process gives the same rows. The
    engine compares again, so to find nothing here is always right."""
    words = [word.text.upper() for word in tokens(normal) if word.sort is Sort.NAME]
    aliased = {node.text.partition(" (alias ")[2].removesuffix(")") for node in nodes}
    if (
        words.count("SELECT") != 1
        or "WHERE" not in words
        or _CLAUSE_WORDS & set(words)
        or _ID_COLUMNS & aliased
    ):
        return ()
    if [node.kind for node in nodes].count("TableExpression") != 1:
        return ()
    [select] = (node for node in nodes if node.kind == "SelectQuery")
    after = [child.kind for child in select.children].index("TablesInSelectQuery") + 1
    conditions = [select.children[after]]
    for one in conditions:
        if one.kind == "Function" and one.text == "and":
            conditions += one.arguments or ()
    for one in conditions:
        match one:
            case Node(kind="Function", text="equals", children=(Node(children=(column, value)),)) if (
                column.kind == "Identifier" and value.kind == "Literal" and value.text.startswith("'")
            ):
                if column.text.rpartition(".")[2] in _ID_COLUMNS and value.text[1:-1].isalnum():
                    return (value.text[1:-1],)
    return ()


def _name(node: Node) -> str:
    return node.text.partition(" (alias ")[0]


def _translated(error: CalveError) -> CalveError:
    """What the parser says, as an error of the statement; another error as it is."""
    number = clickhouse.number_of(error)
    if number in _TOO_DEEP:
        return _refusal("the statement is nested too deeply")
    if number == _PARAMETER:
        return _refusal("a query parameter has no value here", hint="put the value into the statement")
    return (
        codes.wrong(error.message.removeprefix("parsing: ").partition(": In scope ")[0]) if number else error
    )


def _refusal(message: str, hint: str = "") -> UsageError:
    return codes.wrong(message, code=codes.REFUSED, hint=hint)
