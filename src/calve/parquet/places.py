"""Where everything of a plain Parquet destination is. All names are under `_calve`, which readers
that glob pass over: a name that begins with `_` is hidden to Spark, Hive and Trino."""

import re

HIDDEN = "_calve"
_COMMIT = re.compile(r"/(?P<key>[0-9a-f]+)\.(?P<generation>\d+)\.json$")


def schema(location: str) -> str:
    return f"{location}/{HIDDEN}/schema.json"


def receipts(location: str) -> str:
    return f"{location}/{HIDDEN}/receipts"


def commits(location: str) -> str:
    return f"{location}/{HIDDEN}/commits"


def commit(location: str, key_hash: str, generation: int) -> str:
    return f"{commits(location)}/{key_hash}.{generation}.json"


def parse_commit(uri: str) -> tuple[str, int] | None:
    """The key and the generation that a commit's name says; None for what is no commit."""
    found = _COMMIT.search(uri)
    return (found["key"], int(found["generation"])) if found else None
