"""Changes that a table has accepted and its parts do not show yet: what may be done over them.

An UPDATE or DELETE that is not applied yet leaves the rows as they were before it, which a person
may choose to export. A RENAME, DROP, ADD or MODIFY changes what the names in the table mean, while
its parts still have the old ones: reading them would give empty or foreign values (W7), so nobody
may choose that.
"""

import itertools
from collections.abc import Sequence

from calve.clickhouse.sql.tokens import Sort, split_arguments, tokens
from calve.clickhouse.tables import Mutation, TableInfo
from calve.model.errors import RefusedError

# By their first words. Whatever else there is, or will be, counts as a change of the table's shape.
_OF_ROWS = frozenset({"UPDATE", "DELETE"})
_OF_NOTHING_READ = frozenset(
    {("APPLY", "DELETED"), ("APPLY", "PATCHES")}
    | {("MATERIALIZE", what) for what in ("INDEX", "PROJECTION", "STATISTICS", "STATISTIC")}
    | {("CLEAR", what) for what in ("INDEX", "PROJECTION", "STATISTICS")}
)
_WAIT = "--mutations wait waits for them, --mutations ignore exports the rows as before them"


def keeps_the_shape(mutation: Mutation) -> bool:
    """Whether parts that it has not reached are still read rightly, as before it."""
    words = [token.text.upper() for token in tokens(mutation.command)]
    while words and words[0] == "(":
        del words[0]
    return bool(words) and (words[0] in _OF_ROWS or tuple(words[:2]) in _OF_NOTHING_READ)


def only_partition(mutation: Mutation) -> tuple[str, bool] | None:
    """The partition that one command names (`… IN PARTITION 0 WHERE …`), as a value, or as an id where the
    second is true; None for a mutation of the whole table, or of several commands."""
    if len(split_arguments(mutation.command)) != 1:
        return None
    words = list(tokens(mutation.command))
    for at, (one, two) in enumerate(itertools.pairwise(words)):
        if (one.text.upper(), two.text.upper()) == ("IN", "PARTITION"):
            rest = words[at + 2 :]
            if len(rest) > 1 and rest[0].text.upper() == "ID" and rest[1].sort is Sort.STRING:
                return rest[1].value, True
            end = next((word.start for word in rest if word.text.upper() == "WHERE"), None)
            return None if end is None else (mutation.command[two.end : end].strip(), False)
    return None


def refuse_unapplied(
    table: TableInfo, mutations: Sequence[Mutation], patches: Sequence[str], *, ignore: bool = False
) -> tuple[str, ...]:
    """RefusedError names what stands in the way (W6, W7, P12); otherwise notes of what is ignored."""
    blocking = [one for one in mutations if not (ignore and keeps_the_shape(one))]
    if blocking:
        reshaping = ignore or not keeps_the_shape(blocking[0])
        raise RefusedError(
            f"table {table} has {len(mutations)} unfinished mutations, the first {blocking[0]}: "
            + (
                "until it is done, its parts cannot be read correctly"
                if reshaping
                else "its parts do not show it yet"
            ),
            code="unfinished_mutations",
            hint="--mutations wait waits for it; system.mutations shows it, KILL MUTATION ends it"
            if reshaping
            else _WAIT,
        )
    if patches and not ignore:
        raise RefusedError(
            f"table {table} has {len(patches)} patch parts ({patches[0]}, …): a freeze leaves them out, "
            "and rows that were updated or deleted would come back",
            code="patch_parts",
            hint=f"{_WAIT}; or run ALTER TABLE {table.sql} APPLY PATCHES SETTINGS mutations_sync = 2",
        )
    notes = [
        f"mutation {one} is ignored: parts it has not reached are exported as before it" for one in mutations
    ]
    if patches:
        notes.append(f"{len(patches)} patch parts are ignored: the rows are exported as before them")
    return tuple(notes)
