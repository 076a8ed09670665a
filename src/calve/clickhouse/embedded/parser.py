"""ClickHouse's own parser, in a child process: this program never imports the engine (W10).

Text to be parsed is only ever an argument of `formatQuery`; what comes back is one statement, and
only that is looked at with EXPLAIN AST. So nothing in the text is executed.
"""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from calve.clickhouse import errors
from calve.clickhouse.embedded.host import Answer, HostDied, HostProcess, HostTimeout
from calve.clickhouse.engine.engine import SETTINGS, decode
from calve.clickhouse.sql.filters import Node, tree
from calve.clickhouse.sql.tokens import string
from calve.model.errors import TemporaryError

_SECONDS = 60.0
_SETTINGS: Mapping[str, str] = {
    **SETTINGS,
    "max_parser_depth": "1000",
    "max_query_size": str(16 << 20),
    "implicit_select": "0",
}


class StatementChild(Protocol):
    """A child that answers statements: `HostProcess`, or a cage."""

    def ask(self, sql: str, settings: Mapping[str, str], seconds: float) -> Answer: ...


class Parser:
    """An engine without a table. Each call raises PermanentError for text that does not parse."""

    def __init__(self, host: StatementChild) -> None:
        self._host = host

    def normal(self, statement: str) -> str:
        """One statement as the engine writes it: on one line, without comments."""
        found = self._rows(f"SELECT formatQuerySingleLine({string(statement)}) AS text")
        return str(found[0]["text"])

    def tree(self, statement: str) -> Node:
        """The tree of one SELECT or CREATE, given as `normal` writes it."""
        found = self._rows(f"EXPLAIN AST {statement}")
        return tree("\n".join(row["explain"] for row in found))

    def _rows(self, sql: str) -> list[dict[str, Any]]:
        try:
            answer = self._host.ask(sql, _SETTINGS, _SECONDS)
        except (HostDied, HostTimeout) as error:
            raise _ended(error) from None
        if not answer.ok:
            raise errors.translate(answer.data.decode("utf-8", "replace"), "parsing")
        return decode(answer.data)


@contextmanager
def parser() -> Iterator[Parser]:
    """Takes about a second to start."""
    # if we die here, a small folder stays in the temporary folder
    with tempfile.TemporaryDirectory(prefix="calve-parser-") as folder:
        host = HostProcess()
        try:
            answer = host.open(Path(folder), "", _SECONDS)
            if not answer.ok:
                raise errors.translate(answer.data.decode("utf-8", "replace"), "starting the parser")
            yield Parser(host)
        except (HostDied, HostTimeout) as error:
            raise _ended(error) from None
        finally:
            host.kill()


def _ended(error: Exception) -> TemporaryError:
    return TemporaryError(f"the parser's process ended without an answer: {error}", code="parser_ended")
