"""Every page of the dashboard, over a store with 100,000 processes, one of which has 100,000 tasks and 120,000
attempts, on SQLite and on PostgreSQL: time and core-seconds of the server, bytes, requests, memory, and what it costs
while nobody asks. Each page is made anew for one viewer, and the first of each kind is shared by 20 who have its stream
open, while events are written. Against a list of the API in the same run."""

import re
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode

import httpx

from calve.app.config import load_config
from calve.store import open_store
from calve.web.pages import PAGES
from kit.large_store import BIG, destination, fill, name, source
from kit.report import Report, Run, core_seconds, peak_mb, tree
from serve import Viewers, writing
from support.postgres import postgres
from support.served import Served

PROCESSES, TASKS = 100_000, 100_000
VIEWERS, VIEWER_SECONDS = 20, 2.0  # the script asks no sooner
BUDGET_MS, MOST_REQUESTS, MOST_KB = 100, 2, 50
MOST_MB, IDLE_CORES = 300, 0.02
LIST = "/v1/processes?limit=50"
SETTINGS = """
[source.main]
url = "chdb://clickhouse"
[catalog.lake]
type = "sql"
uri = "sqlite:///lake.db"
warehouse = "lake"
[policy.events]
source = "main:db.events_*"
to = "lake.ns.{{table}}"
release = "quarantine"
[storage."s3://kept"]
endpoint = "http://127.0.0.1:1"  # nobody there: what was seen of the backups stays
access_key_id = "x"
secret_access_key = "x"
[backup]
url = "s3://kept/backups"
[limits]
requests_per_second = 100000
look_minutes = 0
answer_seconds = 30
[store]
url = "{url}"
"""
_NEWEST = {"X-Calve-After": f"x.{10**17}.0"}  # no document that is kept is so new
_TIMING = re.compile(r"dur=([0-9.]+)")
_LOADED = re.compile(
    r'<(?:script|img)[^>]* src="([^"]+)"|<link[^>]* rel="(?:stylesheet|icon)"[^>]* href="([^"]+)"'
)


def addresses() -> dict[str, str]:
    """Of every page there is; a new page without an address here is an error."""
    table = urlencode({"source": source(3), "to": destination(3)})
    known = {
        "attention": ["/"],
        "tables": ["/tables", "/tables?q=events_3&sort=hot"],
        "table": [f"/tables/of?{table}"],
        "page": ["/processes", "/processes?view=failed", f"/processes?table={source(3)}"],
        "sheet": [f"/processes/{BIG}", f"/processes/{name(9_000)}"],
        "vault": ["/backups"],
        "backup": ["/backups/of?name=nightly-0001"],
        "policies": ["/policies"],
        "policy": ["/policies/of?name=events"],
        "system": ["/system"],
        "search": ["/search?q=events", "/search?q=202401"],
    }
    return {
        f"{page} {number}" if number else page: address
        for page in PAGES
        for number, address in enumerate(known[page])
    }


def browser(served: Served) -> httpx.Client:
    """Reads without a token, as anybody on this host."""
    return httpx.Client(base_url=served.url, headers={"Accept": "text/html"}, timeout=30, trust_env=False)


@dataclass(kw_only=True)
class Asked:
    """What some requests for one address took: seconds on the server, and until the answer was there."""

    server: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    bytes: int = 0
    requests: int = 1

    def get(self, client: httpx.Client, address: str, **headers: str) -> None:
        began = time.perf_counter()
        answer = client.get(address, headers=headers)
        self.whole.append(time.perf_counter() - began)
        assert answer.status_code == 200, (address, answer.status_code, answer.text[:500])
        timing = sum(map(float, _TIMING.findall(answer.headers.get("Server-Timing", "")))) / 1000
        self.server.append(timing or self.whole[-1])
        self.bytes = int(answer.headers["Content-Length"])

    def run(self, cores: float) -> Run:
        p99 = statistics.quantiles(self.server, n=100, method="inclusive")[98]
        detail = {
            "p50_ms": round(statistics.median(self.server) * 1000, 1),
            "p99_ms": round(p99 * 1000, 1),
            "answered_p50_ms": round(statistics.median(self.whole) * 1000, 1),
            "core_ms": round(cores * 1000, 1),
            "kb": round(self.bytes / 1000, 1),  # as they are sent, packed
        }
        return Run(seconds=round(p99, 4), core_seconds=round(cores, 5), detail=detail)


def one_viewer(report: Report, client: httpx.Client, pids: Sequence[int], where: str, rounds: int) -> None:
    """Each page made anew. `pids`: the server's, and the database's."""
    for page, address in {"list of the API": LIST, **addresses()}.items():
        client.get(address)
        asked, used = Asked(), [tree(pid) for pid in pids]
        for _ in range(rounds):
            asked.get(client, address, **_NEWEST)
        cores = sum(core_seconds(before, tree(pid)) for pid, before in zip(pids, used, strict=True)) / rounds
        report.note(f"{page}, {where}", asked.run(cores))


def requests_of(client: httpx.Client, address: str) -> tuple[int, int]:
    """Requests that a browser makes for a page and its stream: the first time, and with the files that it keeps."""
    page = client.get(address)
    files = [client.get(page.url.join(script or link)) for script, link in _LOADED.findall(page.text)]
    assert files, address
    again = [one for one in files if "immutable" not in one.raise_for_status().headers["Cache-Control"]]
    return 2 + len(files), 2 + len(again)


def shared_pages() -> dict[str, str]:
    return {page: address for page, address in addresses().items() if page in PAGES}


def many_viewers(report: Report, served: Served, pids: Sequence[int], where: str, seconds: float) -> None:
    """All look at one page and ask for it again as often as the script does."""
    with closing(Viewers(served.port, VIEWERS)):
        _shown(report, served, pids, where, seconds)


def _shown(report: Report, served: Served, pids: Sequence[int], where: str, seconds: float) -> None:
    for page, address in shared_pages().items():
        found = [Asked() for _ in range(VIEWERS)]
        until, used = time.monotonic() + seconds, [tree(pid) for pid in pids]
        threads = [
            threading.Thread(target=_look, args=(served, one, address, number, until))
            for number, one in enumerate(found)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        cores = sum(core_seconds(before, tree(pid)) for pid, before in zip(pids, used, strict=True))
        every = Asked(
            server=[one for asked in found for one in asked.server],
            whole=[one for asked in found for one in asked.whole],
            bytes=found[0].bytes,
        )
        run = every.run(cores / len(every.server))
        run.detail["cores"] = round(cores / seconds, 2)
        report.note(f"{page}, {where}, {VIEWERS} viewers", run)


def _look(served: Served, asked: Asked, address: str, number: int, until: float) -> None:
    with browser(served) as client:
        time.sleep(VIEWER_SECONDS * number / VIEWERS)
        while True:
            began = time.monotonic()
            asked.get(client, address)
            if began + VIEWER_SECONDS >= until:
                return
            time.sleep(max(0.0, began + VIEWER_SECONDS - time.monotonic()))


def run_store(report: Report, home: Path, url: str, where: str, database: Callable[[], int] | None) -> None:
    rounds, seconds = (8, 2.0) if report.quick else (30, 4.0)
    count, tasks = (10_000, 10_000) if report.quick else (PROCESSES, TASKS)
    home.mkdir()
    (home / "calve.toml").write_text(SETTINGS.format(url=url))
    backups = load_config(home / "calve.toml", environ={}).backup_url
    with open_store(url) as store, report.timed(f"filled, {where}"):
        fill(store, count=count, tasks_of_big=tasks, backups=backups)
    with ExitStack() as stack:
        served = Served(home)
        stack.callback(served.close)
        store = stack.enter_context(open_store(url))
        client = stack.enter_context(browser(served))
        pids = [served.program.pid, *([database()] if database else [])]
        started(served.program.pid)
        one_viewer(report, client, pids, where, rounds)
        for page, address in shared_pages().items():
            first, again = requests_of(client, address)
            report.ratio(f"{page}, {where}: requests, the first time", first)
            report.ratio(f"{page}, {where}: requests", again, MOST_REQUESTS)
        with writing(store):
            many_viewers(report, served, pids, where, seconds)
        nobody_asks(report, served.program.pid, where, seconds if report.quick else 60.0)
        report.ratio(f"memory in MB, {where}", peak_mb(served.program.pid), MOST_MB)


def started(pid: int) -> None:
    """Once the server has loaded what it loads beside the first requests."""
    for _ in range(60):
        used = tree(pid)
        time.sleep(1)
        if core_seconds(used, tree(pid)) < 0.05:
            return


def nobody_asks(report: Report, pid: int, where: str, seconds: float) -> None:
    """Once what the last viewer had asked for is done. Some work comes once a minute."""
    time.sleep(2)
    used, began = tree(pid), time.monotonic()
    time.sleep(seconds)
    cores = core_seconds(used, tree(pid)) / (time.monotonic() - began)
    report.ratio(f"cores while nobody asks, {where}", cores, IDLE_CORES)


def main() -> None:
    from kit.world import folder

    report = Report("dashboard", __doc__)
    places = list(run_everywhere(report, folder))
    for where in places:
        for page in addresses():
            p99 = report.best(f"{page}, {where}") * 1000
            report.ratio(f"{page}, {where}: p99 of the server in ms", p99, BUDGET_MS)
            report.ratio(f"{page}, {where}: core-ms", report.cores(f"{page}, {where}") * 1000, BUDGET_MS)
            if page in PAGES:
                shared = report.best(f"{page}, {where}, {VIEWERS} viewers") * 1000
                report.ratio(f"{page}, {where}: p99 in ms with {VIEWERS} viewers", shared, BUDGET_MS)
            size = report.runs[f"{page}, {where}"][0].detail["kb"]
            report.ratio(f"{page}, {where}: KB", size, MOST_KB)
            times = report.cores(f"{page}, {where}") / report.cores(f"list of the API, {where}")
            report.ratio(f"{page}, {where}: core-seconds against a list of the API", times)
    report.finish()


def run_everywhere(report: Report, folder: Callable[[], object]) -> Iterator[str]:
    with ExitStack() as stack:
        home: Path = stack.enter_context(folder())  # type: ignore[arg-type]
        run_store(report, home / "sqlite", f"sqlite:///{home}/store.db", "SQLite", None)
        yield "SQLite"
        server = stack.enter_context(postgres())
        run_store(report, home / "postgres", server.new_database(), "PostgreSQL", lambda: server.pid)
        yield "PostgreSQL"


if __name__ == "__main__":
    main()
