"""An executor in a process of its own: the engine must never be imported by pytest's (W10).

`python executor_child.py` reads one JSON order a line and answers one line: the rows that were
staged, or the error.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from calve.clickhouse.pins.pin import Pinned
from calve.clickhouse.server.source import ServerSource
from calve.destination.plan import PartPlan, Relation, Slice
from calve.model.errors import CalveError


class ExecutorChild:
    """Stages and reads what a pinned pin describes."""

    def __init__(self) -> None:
        self._child = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def close(self) -> None:
        assert self._child.stdin is not None and self._child.stdout is not None
        self._child.stdin.close()
        self._child.wait(30)
        self._child.stdout.close()

    def read(
        self,
        source: ServerSource,
        pinned: Pinned,
        select: str = "*",
        slices: Sequence[Slice] | None = None,
        again: Sequence[tuple[int, int, int]] | None = None,
        read_seconds: float = 30.0,
    ) -> dict[str, Any]:
        """`{"rows": [...]}` or `{"error": ...}`; `again` asks the staged table for these slices only."""
        whole = [Slice(part=place, start=0, end=part.rows) for place, part in enumerate(pinned.parts)]
        order = {
            "relation": asdict(pinned.relation),
            "parts": [asdict(part) for part in pinned.parts],
            "slices": [[s.part, s.start, s.end] for s in (whole if slices is None else slices)],
            "again": again,
            "access": dict(source.reader(pinned.relation).access),
            "read_seconds": read_seconds,
            "settings": dict(pinned.settings),
            "select": select,
        }
        assert self._child.stdin is not None and self._child.stdout is not None
        self._child.stdin.write(json.dumps(order) + "\n")
        self._child.stdin.flush()
        answer: dict[str, Any] = json.loads(self._child.stdout.readline())
        return answer


_COMPRESSED = (
    "SELECT sum(data_compressed_bytes) < sum(data_uncompressed_bytes) AS compressed FROM system.parts"
    " WHERE active AND database = 'calve_scratch'"
)


def _answer(order: dict[str, Any]) -> dict[str, Any]:
    from calve.clickhouse.engine.engine import worker_engine
    from calve.clickhouse.server.fetch import Access
    from calve.clickhouse.server.stage import staged

    parts = [PartPlan(**part) for part in order["parts"]]
    slices = [tuple(piece) for piece in order["slices"]]
    access = Access.of({**order["access"], "read_seconds": str(order["read_seconds"])})
    engine = worker_engine()
    relation = Relation(**order["relation"])
    try:
        with staged(engine, relation, parts, slices, access, order["settings"]) as table:
            wanted = order["again"] if order["again"] is not None else slices
            where = table.relation_where([(parts[place].path, start, end) for place, start, end in wanted])
            final = " FINAL" if relation.final else ""
            sql = f"SELECT {order['select']} FROM {table}{final} WHERE {where}"
            return {
                "rows": engine.rows(sql, order["settings"]),
                "where": where,
                "compressed": engine.rows(_COMPRESSED)[0]["compressed"],
            }
    except CalveError as error:
        return {"error": error.info.to_json()}


def main() -> None:
    for line in sys.stdin:
        print(json.dumps(_answer(json.loads(line)), default=str), flush=True)


if __name__ == "__main__":
    main()
