"""Users, roles, settings profiles, quotas, row policies, named collections and grants, as statements. Pure.

Like every statement of a manifest, each of these is run only if it is the one statement of the entity
it is kept for: one name, no cluster, nothing after it.
"""

import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from calve.archive.create import after, outer, refused, words_of
from calve.clickhouse.sql.tokens import Sort, Token, string
from calve.clickhouse.sql.tokens import name as quoted

Name = tuple[str, str]

USER, ROLE, PROFILE, QUOTA = "user", "role", "settings profile", "quota"
POLICY, COLLECTION, GRANT = "row policy", "named collection", "grant"
_WORDS = {
    COLLECTION: ("NAMED", "COLLECTION"),
    ROLE: ("ROLE",),
    PROFILE: ("SETTINGS", "PROFILE"),
    USER: ("USER",),
    QUOTA: ("QUOTA",),
    POLICY: ("ROW", "POLICY"),
}
ORDER = (*_WORDS, GRANT)  # in which they can be made
HIDDEN = "[HIDDEN]"  # what ClickHouse shows in place of a secret
_NAMES = (Sort.NAME, Sort.QUOTED, Sort.STRING)
_AFTER_AUTHENTICATION = frozenset({"HOST", "IN", "DEFAULT", "GRANTEES", "SETTINGS"})
_WITH_SECRET = re.compile(
    r"(sha256|double_sha1|bcrypt|scram_sha256|plaintext)_(password|hash)", re.IGNORECASE
)


@dataclass(frozen=True, kw_only=True)
class AccessEntry:
    """One entity, or one grant to it; `table` is what a row policy is on, "" for a whole database's."""

    kind: str
    name: str
    create: str
    database: str = ""
    table: str = ""

    @property
    def on(self) -> Name:
        return self.database, self.table

    @property
    def title(self) -> str:
        where = f" ON {self.database}.{self.table or '*'}" if self.kind == POLICY else ""
        return f"{self.kind} {self.name}{where}"


def entry_of(statement: str) -> AccessEntry | None:
    """What a statement of SHOW ACCESS makes; None for one that no backup holds."""
    words = words_of(statement)
    if words and words[0].text.upper() == "GRANT":
        grantee = _grantee(words)
        return AccessEntry(kind=GRANT, name=grantee, create=statement) if grantee else None
    given = [word.text.upper() for word in words[:3]]
    for kind, expected in _WORDS.items():
        if given[: 1 + len(expected)] == ["CREATE", *expected] and len(words) > 1 + len(expected):
            rest = words[1 + len(expected) :]
            database, table = _on(rest[1:]) if kind == POLICY else ("", "")
            return AccessEntry(
                kind=kind, name=rest[0].value, create=statement, database=database, table=table
            )
    return None


def check_access(entry: AccessEntry) -> None:
    """PermanentError unless the statement makes that entity, or grants something to it, and no more."""
    words = words_of(entry.create)
    if entry_of(entry.create) != entry:
        raise refused(entry.create, f"it does not make the {entry.title}")
    top = list(outer(words))
    if after(words, "ON", "CLUSTER"):
        raise refused(entry.create, "it is for a whole cluster")
    if entry.kind == GRANT:
        if after(top, "WITH", "REPLACE"):
            raise refused(entry.create, "it takes other rights away")
        return
    at = 1 + len(_WORDS[entry.kind])
    follows = words[at + 1].text if at + 1 < len(words) else ""
    if words[at].sort not in _NAMES or follows in (",", "@"):
        raise refused(entry.create, "it does not make one thing")


def _grantee(words: Sequence[Token]) -> str:
    """Whom the rights are granted to, if it is one."""
    top = list(outer(words))
    to = [at for at, word in enumerate(top) if word.sort is Sort.NAME and word.text.upper() == "TO"]
    if not to or to[-1] + 1 >= len(top):
        return ""
    rest = top[to[-1] + 1 :]
    if rest[0].sort not in _NAMES or (len(rest) > 1 and rest[1].text.upper() != "WITH"):
        return ""
    return rest[0].value


def _on(words: Sequence[Token]) -> Name:
    """`ON db.table`, `ON db.*`."""
    texts = [word.text for word in words[:4]]
    if len(texts) < 4 or texts[0].upper() != "ON" or texts[2] != ".":
        return "", ""
    return words[1].value, "" if texts[3] == "*" else words[3].value


def retargeted_policy(entry: AccessEntry, target: Name) -> AccessEntry:
    """The same policy on another table."""
    words = words_of(entry.create)
    at = next(at for at, word in enumerate(words) if word.text.upper() == "ON" and word.sort is Sort.NAME)
    table = f"{quoted(target[0])}.{quoted(target[1])}"
    create = f"{entry.create[: words[at + 1].start]}{table}{entry.create[words[at + 3].end :]}"
    return AccessEntry(kind=POLICY, name=entry.name, create=create, database=target[0], table=target[1])


# ---- secrets


def authentication(create: str) -> tuple[int, int] | None:
    """Where a CREATE USER says how the user proves who they are."""
    top = list(outer(words_of(create)))
    for at, word in enumerate(top):
        if word.text.upper() == "IDENTIFIED" and word.sort is Sort.NAME:
            end = next((one for one in top[at:] if one.text.upper() in _AFTER_AUTHENTICATION), None)
            return word.start, end.start if end else len(create)
    return None


def lacks_secret(create: str) -> bool:
    """A password that the server does not show."""
    found = authentication(create)
    if found is None:
        return False
    clause = create[found[0] : found[1]]
    methods = len(_WITH_SECRET.findall(clause))
    shown = sum(word.text.upper() == "BY" for word in words_of(clause))
    return methods > shown or HIDDEN in clause


def has_plain_secret(create: str) -> bool:
    found = authentication(create)
    return found is not None and "plaintext_password" in create[found[0] : found[1]].lower()


def locked(create: str) -> str:
    """The same user with a password that nobody knows."""
    found = authentication(create)
    assert found is not None
    rest = create[found[1] :]
    clause = f"IDENTIFIED WITH sha256_hash BY {string(secrets.token_hex(32).upper())}"
    return f"{create[: found[0]]}{clause}{' ' if rest else ''}{rest}"


def shape(entry: AccessEntry) -> tuple[str, ...]:
    """A statement without its secrets: two of the same shape make the same."""
    create = entry.create
    if entry.kind == USER and (found := authentication(create)) is not None:
        create = create[: found[0]] + create[found[1] :]
    hide = entry.kind == COLLECTION
    return tuple(
        HIDDEN if hide and word.sort is Sort.STRING else word.value if word.sort in _NAMES else word.text
        for word in words_of(create)
    )


def split_assignment(entry: AccessEntry) -> tuple[str, str]:
    """A settings profile and whom it is given to, apart: a role may need the profile, and the profile
    name the role."""
    top = list(outer(words_of(entry.create)))
    to = [word for word in top if word.sort is Sort.NAME and word.text.upper() == "TO"]
    if entry.kind != PROFILE or not to:
        return entry.create, ""
    head, tail = entry.create[: to[-1].start].rstrip(), entry.create[to[-1].start :]
    return head, f"ALTER SETTINGS PROFILE {quoted(entry.name)} {tail}"
