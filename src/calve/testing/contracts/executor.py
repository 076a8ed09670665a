"""An executor for the contract of sources: JSON on stdin, the ids of the rows read on stdout."""

import json
import sys

from calve.clickhouse.engine.engine import worker_engine
from calve.clickhouse.reader import Read, opened
from calve.destination.plan import PartPlan, Relation, Slice


def main() -> None:
    order = json.load(sys.stdin)
    parts = tuple(PartPlan(**part) for part in order["parts"])
    read = Read(
        relation=Relation(**order["relation"]),
        parts=parts,
        slices=tuple(Slice(part=at, start=0, end=part.rows) for at, part in enumerate(parts)),
        access=order["access"],
        settings=order["settings"],
    )
    engine = worker_engine()
    with opened(engine, order["function"], read) as rows:
        found = engine.rows(f"SELECT id {rows.from_where(rows.pieces)} ORDER BY id", order["settings"])
    json.dump([row["id"] for row in found], sys.stdout)


if __name__ == "__main__":
    main()
