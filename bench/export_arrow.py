"""An export by a warm worker, against Arrow batches from ClickHouse that PyIceberg appends, as loaders written in
Python do it. Both take turns, on the same cores."""

import json
import subprocess
import sys
from pathlib import Path

from kit.report import Report, Run
from kit.world import fill, folder, warm
from support.place import Place

_APPENDED = """
import io, json, os, resource, sys, time
import pyarrow as pa
from chdb.session import Session
from pyiceberg.catalog.sql import SqlCatalog

folder, batch, rows = sys.argv[2], 500000, int(sys.argv[3])
session = Session(sys.argv[1])
session.query("SYSTEM STOP MERGES")
os.makedirs(folder)
catalog = SqlCatalog("lake", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
catalog.create_namespace("ns")
columns = ("toDecimal128(id, 0) AS id, toDate32(day) AS day, toDateTime64(at, 6) AS at, score, note,"
           " toString(tag) AS tag, toString(user) AS user, price")
settings = "SETTINGS output_format_arrow_string_as_string = 1"
used = lambda: sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
at, began, table = used(), time.perf_counter(), None
for first in range(0, rows, batch):
    answer = session.query(f"SELECT {columns} FROM db.events WHERE id >= {first} AND id < {first + batch} {settings}",
                           "ArrowStream")
    found = pa.ipc.open_stream(io.BytesIO(answer.bytes())).read_all()
    if table is None:
        table = catalog.create_table("ns.events", schema=found.schema)
    table.append(found)
print(json.dumps([time.perf_counter() - began, used() - at]), flush=True)
os._exit(0)
"""


def appended(data: Path, out: Path, rows: int) -> Run:
    command = [sys.executable, "-c", _APPENDED, str(data), str(out), str(rows)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd="/")
    seconds, cores = json.loads(done.stdout.splitlines()[-1])
    return Run(seconds=round(seconds, 4), core_seconds=round(cores, 3))


def main() -> None:
    report = Report("export-arrow", __doc__)
    rows = 1_000_000 if report.quick else 5_000_000
    with folder() as home:
        fill(Place(home), rows)
        with warm(home) as worker:
            worker.export()
            for turn in range(2):
                report.note("PyIceberg append", appended(home / "clickhouse", home / f"arrow-{turn}", rows))
                with report.timed("export") as run:
                    [process] = worker.export()
                    run.detail["tasks"] = process.tasks.total
        report.ratio(
            f"rows/s, {rows:,}", report.best("PyIceberg append") / report.best("export"), 2.0, at_least=True
        )
    report.finish()


if __name__ == "__main__":
    main()
