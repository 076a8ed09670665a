"""A live server as the source, over HTTP, with its rows read from a clone by `SELECT … FORMAT Native`: against the
same rows downloaded into one Parquet file the way `clickhouse-client` does it.

`clickhouse-client` takes Native blocks and encodes the Parquet file itself, with the engine that Calve embeds. So the
baseline is that engine in a process of its own, `INSERT INTO FUNCTION file(…, Parquet) SELECT * FROM url(…, Native)`
with the same compression. Server, export and baseline share the cores, and take turns. Core-seconds of both include
the server's.
"""

from pathlib import Path
from urllib.parse import quote

from kit.report import Report, Run, core_seconds, tree
from kit.world import MIXED, SAME, alone, fill_to_settle, folder, warm
from support.clickhouse_front import ClickHouseFront, clickhouse_front
from support.server_place import ServerPlace


def download(front: ClickHouseFront, out: Path) -> Run:
    """What `clickhouse-client --query 'SELECT … FORMAT Parquet' > file` does."""
    target = out / "download.parquet"
    target.unlink(missing_ok=True)
    address = f"{front.url}/?query={quote('SELECT * FROM db.events FORMAT Native')}"
    statement = (
        f"INSERT INTO FUNCTION file('{target}', Parquet) SELECT * FROM url('{address}', Native, '{MIXED}')"
        f" SETTINGS {SAME}, http_receive_timeout = 600"
    )
    before = tree(front.program.pid)
    [(_, run)] = alone(out / "client", [("download", (), statement)])
    run.core_seconds = round(run.core_seconds + core_seconds(before, tree(front.program.pid)), 3)
    run.detail["mb"] = target.stat().st_size // 10**6
    return run


def main() -> None:
    report = Report("server", __doc__)
    rows = 1_000_000 if report.quick else 10_000_000
    with folder() as home, clickhouse_front(home / "server") as front:
        fill_to_settle(ServerPlace(home, front.url), rows)
        with warm(home, server=front.url) as worker:
            worker.settle()
            for _ in range(2 if report.quick else 3):
                report.note("client's download", download(front, home))
                with report.timed("export") as run:
                    [process] = worker.export()
                    run.detail |= {"tasks": process.tasks.total, "mb": process.bytes // 10**6}
                    assert process.rows == rows
    ratio = report.best("client's download") / report.best("export")
    report.ratio(f"rows/s, {rows:,}", ratio, 0.9, at_least=True)
    share = report.cores("export") / report.cores("client's download")
    report.ratio(f"core-seconds, {rows:,}", share)
    report.finish()


if __name__ == "__main__":
    main()
