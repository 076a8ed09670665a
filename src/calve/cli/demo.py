"""`calve demo`, stage by stage: make a table, export it, read it back twice, compare."""

import os
import shlex
import shutil
import socket
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from calve.cli import output
from calve.cli.command import CliSession, command
from calve.cli.installation import start_log
from calve.cli.serve import load_server
from calve.model.process import Process
from calve.model.states import ProcessState

if TYPE_CHECKING:
    from calve.app.demo.compare import Reading
    from calve.http.server import Endpoint

TABLE, DESTINATION = "demo.events", "lake.demo.events"


@command(
    "demo", examples=["calve demo", "calve demo --serve", "calve demo --rows 10000000 --dir /tmp/big-demo"]
)
@click.option(
    "--rows", default=2_000_000, show_default=True, metavar="N", type=click.IntRange(1), help="Rows to make."
)
@click.option(
    "--dir",
    "folder",
    default="calve-demo",
    show_default=True,
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="The folder to leave it in.",
)
@click.option("--serve", is_flag=True, help="Then open the dashboard, with live work in it, until Ctrl-C.")
@click.option(
    "--port",
    default=8180,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port of --serve; a free one if it is taken.",
)
def demo(session: CliSession, rows: int, folder: Path, serve: bool, port: int) -> int:
    """Run a whole export on embedded defaults, read it back with two engines, and compare every column.

    Needs no service and no configuration. Running it again starts over in the same folder. With --serve it goes on: a
    server with a worker, and exports, a backup, a failure and an outage to look at.
    """
    from calve.app.demo import folder as folders
    from calve.app.demo.compare import differences, readings
    from calve.app.demo.folder import statements

    session.only_here("demo")
    if serve:
        load_server()  # before the work: what is missing is said now
    began = time.monotonic()
    session = _of_the_demo(session, folders.prepare(folder))
    output.say(f"making {TABLE} with {output.counted(rows, 'row')} in an embedded ClickHouse")
    folders.fill(session.config.source("main").folder, statements(rows))
    output.say(f"exporting its partitions to the Iceberg table {DESTINATION}")
    exporting = time.monotonic()
    processes = _export(session)
    seconds = time.monotonic() - exporting
    failed = [process for process in processes if process.state is not ProcessState.COMPLETED]
    for process in failed:
        if process.error:
            output.error(process.error)
    if failed:
        return output.FAILED
    output.say(
        "reading it back with PyIceberg and with ClickHouse, and comparing every column with the source"
    )
    read = readings(session.config, processes[0].id)
    different = [line for other in read[1:] for line in differences(read[0], other)]
    document = _document(folder, processes, read, different, seconds, time.monotonic() - began)
    session.answer(document, _summary(document, read))
    if serve and not different:
        return _serve(session, folder, port)
    return _leave(session, folder, processes[0], different)


def _serve(session: CliSession, folder: Path, port: int) -> int:
    """Until Ctrl-C. Everything that it started has ended then."""
    from calve.app.token_file import read_token
    from calve.cli.live_demo import LiveWork

    serve_http, dashboard = load_server()
    config, work = session.config, list[LiveWork]()
    session.calve.close()  # its Spark: the worker has one of its own
    for name in [
        name for name in os.environ if name.startswith("CALVE_") and name not in (session.environ or {})
    ]:
        del os.environ[name]  # the worker, too, has the demo's configuration
    start_log(session, "warning")

    def ready(address: "Endpoint") -> None:
        output.say(f"\nopen {address.url}/ in a browser; Ctrl-C ends it")
        output.say(f"to change things there, sign in with the text of {address.token_file}")
        work.append(
            LiveWork(
                address.url,
                read_token(Path(address.token_file)),
                clickhouse=config.source("main").folder,
                catalog=Path(config.catalog("lake")["uri"].removeprefix("sqlite:///")),
            )
        )

    try:
        serve_http(
            replace(config, log=replace(config.log, level="warning")),
            replace(config.serve, port=_free(port)),
            with_worker=True,
            fronts=[dashboard],
            ready=ready,
        )
    finally:
        for one in work:
            one.close()
    output.say(f"the demo has ended; its results are in {folder}")
    return output.DONE


def _free(port: int) -> int:
    """The port, or any other if something listens there: the export before it took a minute."""
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("127.0.0.1", port))
        except OSError:
            return 0
    return port


def _of_the_demo(session: CliSession, file: Path) -> CliSession:
    """The demo has a configuration of its own: of the environment only Spark and limits count."""
    environ = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(("CALVE_SPARK__", "CALVE_LIMITS__"))
    }
    return CliSession(json=session.json, debug=session.debug, config_path=str(file), environ=environ)


def _export(session: CliSession) -> list[Process]:
    from calve.app.values import Selection
    from calve.cli.report import run_to_the_end, say_batch

    answer = session.calve.export(TABLE, DESTINATION, Selection(all=True))
    say_batch(session, answer.processes)
    return run_to_the_end(session, answer.processes)


def _document(
    folder: Path,
    processes: list[Process],
    readings: "list[Reading]",
    different: list[str],
    seconds: float,
    total_seconds: float,
) -> dict[str, Any]:
    from calve.app.view import process_json

    rows = sum(process.rows for process in processes)
    last = max(processes, key=lambda process: (process.finished_at or process.created_at, process.id))
    return {
        "folder": str(folder),
        "verified": not different,
        "rows": rows,
        "files": sum(process.files for process in processes),
        "bytes": sum(process.bytes for process in processes),
        "export_seconds": round(seconds, 1),
        "rows_per_second": round(rows / seconds),
        "total_seconds": round(total_seconds, 1),
        "snapshot_id": last.snapshot_id,
        "readers": {reading.reader: reading.rows for reading in readings},
        "columns": len(readings[0].checksums),
        "differences": different,
        "processes": [process_json(process) for process in processes],
    }


def _summary(document: dict[str, Any], readings: "list[Reading]") -> str:
    readers = " and ".join(reading.reader for reading in readings[1:])
    verdict = (
        f"{readers} read the same {output.counted(readings[0].rows, 'row')} as the source, "
        f"with the same checksum in each of {document['columns']} columns"
        if document["verified"]
        else "; ".join(document["differences"])
    )
    return output.facts(
        (
            ("rows", output.count(document["rows"])),
            ("files", f"{document['files']} ({output.size(document['bytes'])})"),
            ("export", f"{document['export_seconds']} s, {document['rows_per_second']:,} rows/s, Spark's start included"),
            ("all", f"{document['total_seconds']} s"),
            ("snapshot", str(document["snapshot_id"])),
            ("verified" if document["verified"] else "DIFFERENT", verdict),
        )
    )  # fmt: skip


def _leave(session: CliSession, folder: Path, process: Process, different: list[str]) -> int:
    if different:
        for line in different:
            output.say(f"error: {line}")
        output.hint(f"this is a bug in Calve: please report it, with {folder}")
        return output.FAILED
    if not session.json:
        calve = _program(folder)
        output.say("\nTry next:")
        output.say(f"  cd {shlex.quote(os.path.relpath(folder))}")
        output.say(f"  {calve} ps --all")
        output.say(f"  {calve} verify {process.id}")
        output.say(f"  {calve} export {TABLE} --partition 202401 --to lake.demo.january")
        output.say("\nSee it in a browser, at http://127.0.0.1:8180/, until Ctrl-C:")
        output.say(f"  {calve} serve --with-worker")
    return output.DONE


def _program(folder: Path) -> str:
    """What to type in the demo's folder: `calve` where the shell would find this very program."""
    here = Path(sys.argv[0]).absolute()
    found = shutil.which("calve")
    if found and Path(found).resolve() == here.resolve():
        return "calve"
    return shlex.quote(os.path.relpath(here, folder))
