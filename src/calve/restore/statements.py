"""A CREATE out of a backup, rewritten: another name, a uuid of ours, an engine the target has. Pure.

Words are replaced where they stand and everything between them is left as it was. References to
what is restored under another name are followed by `references`.
"""

from collections.abc import Mapping, Sequence

from calve.clickhouse.sql import engine_clause
from calve.clickhouse.sql.tokens import Sort, Token, string, tokens
from calve.clickhouse.sql.tokens import name as quoted
from calve.model.errors import PermanentError
from calve.restore import references
from calve.restore.references import Name

_KINDS = frozenset({"TABLE", "VIEW", "DICTIONARY"})
_NAMES = frozenset({Sort.NAME, Sort.QUOTED})


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
    clause = engine_clause.parse(engine_full)
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
