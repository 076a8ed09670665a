"""Pictures of every screen of the dashboard, for docs/images: `make screenshots`.

A whole installation is made in a folder of its own, worked on by a real server with its worker, and looked at with
Chromium. Nothing is painted: every export, failure, outage and backup happened. Only time is helped: what ended is moved
back over some weeks, in the store's own rows, so that charts of 30 days have something to show.
"""

import json
import os
import shutil
import socket
import sqlite3
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

ROOT = Path(__file__).resolve().parent.parent
CALVE = Path(sys.executable).with_name("calve")
MONTHS = [f"{2024 + at // 12}-{at % 12 + 1:02}" for at in range(30)]
_ALIKE = 100  # squares of differences of red, green and blue, below which two colours look the same
EVENTS = "main:shop.events", "lake.shop.events"
SETTINGS = """
[source.main]
url = "chdb://clickhouse"
[catalog.lake]
type = "sql"
uri = "sqlite:///lake/catalog.db"
warehouse = "lake/warehouse"
[catalog.archive]
type = "rest"
uri = "http://127.0.0.1:9"
[expect.orders]
kind = "export"
table = "main:shop.orders"
within = "26h"
proven_within = "7d"
[expect.nightly]
kind = "backup"
table = "main:shop.*"
within = "30h"
proven_within = "7d"
[limits]
task_bytes_mb = 1
task_attempts = 2
lease_seconds = 5
"""
POLICIES = ("events", "orders", "devices")
RULES = """
[policy.events]
source = "main:shop.events"
to = "lake.shop.events"
export_after = "3d"
quiet = "1h"
on_late_rows = "hold"
window = "03:00-05:00 Europe/Berlin"
release = "quarantine"
[policy.orders]
source = "main:shop.orders"
to = "lake.shop.orders"
export_after = "10d"
window = "03:00-05:00 Europe/Berlin"
partitions_per_run = 2
[policy.devices]
source = "main:shop.measurements_*"
to = "lake.telemetry.{table}"
window = "03:00-05:00 Europe/Berlin"
on_late_rows = "append"
"""
_ROW = """SELECT toDateTime('{month}-01 00:00:00', 'UTC') + h % 2419200 AS at, h AS id, h % 5000 AS customer,
 ['BR', 'DE', 'FR', 'IN', 'JP', 'KE', 'NZ', 'US'][1 + h % 8] AS country, toDecimal64(h % 100000 / 100, 2) AS price,
 {note} AS note FROM (SELECT cityHash64(number, '{month}', '{table}', {part}) AS h FROM numbers({rows}))"""


class Place:
    """An installation, and the commands that are run in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "calve.toml").write_text(SETTINGS)
        (folder / "calve.toml").chmod(0o600)
        self.url = ""

    def run(self, *words: str, fails: bool = False) -> str:
        found = subprocess.run(
            [CALVE, *words], cwd=self.folder, capture_output=True, text=True, timeout=300, check=False
        )
        if found.returncode and not fails:
            raise SystemExit(f"calve {' '.join(words)}: {found.stderr[-2000:]}")
        return found.stdout

    def processes(self, *words: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.run("ps", "--all", "--json", *words))
        return found

    def statements(self, *texts: str) -> None:
        from calve.clickhouse.embedded.source import EmbeddedSource

        with EmbeddedSource("main", self.folder / "clickhouse", create=True).visit() as session:
            for text in texts:
                session.execute(text, what="making the pictures' tables")

    @contextmanager
    def served(self, *, worker: bool = True, **settings: str) -> Iterator[None]:
        """A server and its worker, in a process group of their own."""
        port = _free_port()
        words = [CALVE, "serve", "--port", str(port), *(["--with-worker"] if worker else [])]
        log = (self.folder / "serve.log").open("ab")
        child = subprocess.Popen(
            words,
            cwd=self.folder,
            stdout=log,
            stderr=log,
            env={**os.environ, **settings},
            start_new_session=True,
        )
        self.url = f"http://127.0.0.1:{port}"
        try:
            _until(lambda: _answers(port), "the server does not answer")
            yield
        finally:
            child.terminate()
            try:
                child.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, 9)
            log.close()


def tables() -> Iterator[str]:
    yield "CREATE DATABASE IF NOT EXISTS shop"
    for table, months, rows, parts in (
        ("orders", MONTHS, 4_000, 1), ("events", MONTHS[-8:], 60_000, 4), ("order_items", MONTHS[-12:], 9_000, 1),
        ("measurements_by_device_and_minute", MONTHS[-6:], 20_000, 2), ("notes", MONTHS[-3:], 2_000, 1),
    ):  # fmt: skip
        yield (
            f"CREATE TABLE shop.{table} (at DateTime('UTC'), id UInt64, customer UInt32, country LowCardinality(String), price Decimal(12, 2),"
            " note String) ENGINE = MergeTree PARTITION BY toYYYYMM(at) ORDER BY (country, at) SETTINGS max_bytes_to_merge_at_max_space_in_pool = 1"
        )
        for month in months:
            for part in range(parts):
                bad = table == "notes" and month == months[-1]
                note = "if(h % 1000 = 7, unhex('ff'), 'x')" if bad else "hex(h)"
                yield f"INSERT INTO shop.{table} " + _ROW.format(
                    month=month, note=note, table=table, part=part, rows=rows
                )


def work(place: Place) -> None:
    """What a shop does in some weeks, and what goes wrong there."""
    place.run("backup", "create", "nightly-1", "--tables", "shop.*")
    place.run("export", "shop.events", "--to", EVENTS[1], "--all")
    older = [word for month in MONTHS[:24] for word in ("--partition", month.replace("-", ""))]
    place.run("export", "shop.orders", "--to", "lake.shop.orders", *older)
    place.run("export", "shop.order_items", "--to", "lake.shop.order_items", "--all")
    place.run("export", "shop.measurements_by_device_and_minute", "--to", "lake.telemetry.measurements_by_device_and_minute", "--all")  # fmt: skip
    place.run("export", "shop.notes", "--to", "lake.shop.notes", "--all", fails=True)
    place.run("verify", *[one["id"] for one in place.processes("--to", EVENTS[1])][:3])
    place.run("backup", "create", "nightly-2", "--tables", "shop.*")
    place.run("backup", "verify", "nightly-2", "--read-data", "100%")
    place.run("backup", "restore", "nightly-1", "--as", "shop_restored")
    place.run("optimize", "lake.shop.order_items", fails=True)


def changed(place: Place) -> None:
    place.statements(
        *(
            "INSERT INTO shop.events "
            + _ROW.format(month=month, note="hex(h)", table="events", part=9, rows=500)
            for month in (MONTHS[-1], MONTHS[-3])
        )
    )


def looked(place: Place) -> None:
    """What a server finds out by itself in a quarter of an hour."""
    for table in ("orders", "events", "order_items"):
        place.run("partitions", f"shop.{table}", "--to", f"lake.shop.{table}", "--server", place.url)
        place.run("health", f"lake.shop.{table}", "--server", place.url)
    for policy in POLICIES:
        place.run("policy", "run", policy, "--dry-run", "--server", place.url, fails=True)
    place.run(
        "hold",
        "add",
        "shop.order_items",
        "202601",
        "--reason",
        "audit 2026",
        "--until",
        "90d",
        "--server",
        place.url,
    )
    place.run("doctor", "--server", place.url, fails=True)


def aged(place: Place) -> None:
    """Move what has ended back: each pair's processes over the last weeks, in the order in which they were made."""
    day = 86_400_000_000
    with sqlite3.connect(place.folder / "calve.db") as store:
        rows = store.execute(
            "SELECT id, kind, state FROM processes WHERE finished_at IS NOT NULL ORDER BY created_at DESC"
        ).fetchall()
        for at, (id_, kind, state) in enumerate(rows):
            back = (
                int((0.06 * at + (at % 7) * (at % 5) * 0.7) * day)
                if state == "COMPLETED" and kind == "export"
                else 0
            )
            if kind == "backup":
                back = int((1.2 + 2 * at) * day)
            for table, columns, key in (
                ("processes", ("created_at", "finished_at"), "id"),
                ("attempts", ("started_at", "ended_at"), "process_id"),
                ("events", ("at",), "process_id"),
                ("tasks", ("started_at", "finished_at"), "process_id"),
            ):
                changes = ", ".join(f"{name} = {name} - {back}" for name in columns)
                store.execute(f"UPDATE {table} SET {changes} WHERE {key} = ?", (id_,))


def screens(place: Place) -> dict[str, str]:
    """Each picture's address."""
    ended = place.processes("--to", EVENTS[1])
    running = [one for one in place.processes() if one["state"] == "RUNNING" and one["kind"] == "export"]
    pair = urlencode({"source": EVENTS[0], "to": EVENTS[1]})
    return {
        "attention": "/", "tables": "/tables", "table": f"/tables/of?{pair}", "processes": "/processes",
        "policies": "/policies",
        "process": f"/processes/{max(running or ended, key=lambda one: one['tasks']['done'])['id']}",
        "backups": "/backups", "system": "/system", "search": "/search?q=order",
    }  # fmt: skip


def pictures(place: Place, folder: Path) -> None:
    """One screenful of each, in both themes, signed in as an operator."""
    from playwright.sync_api import sync_playwright

    folder.mkdir(parents=True, exist_ok=True)
    program = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    if not program:
        raise SystemExit("no Chromium: apt-get install chromium-headless-shell")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox"] if os.getuid() == 0 else []
        )
        for theme in ("light", "dark"):
            context = browser.new_context(viewport={"width": 1280, "height": 800}, color_scheme=theme)  # type: ignore[arg-type]
            page = context.new_page()
            page.goto(f"{place.url}/sign-in")
            page.fill("input[type=password]", (place.folder / "calve.token").read_text().strip())
            page.click("main button[type=submit]")
            for name, address in screens(place).items():
                page.goto(place.url + address)
                if name != "search":  # which nothing changes
                    page.locator("#status", has_text="live").wait_for()
                (folder / f"{name}-{theme}.png").write_bytes(smaller(page.screenshot()))
            context.close()
        browser.close()


def smaller(png: bytes) -> bytes:
    """The same picture with at most 256 colours: the most frequent ones that are not alike, and for each other one the
    nearest of them. A page has few colours; the rest are edges of letters."""
    import numpy as np

    pixels = decoded(png)
    packed = pixels.astype(np.uint32) @ np.array([65536, 256, 1], dtype=np.uint32)
    colours, where, counts = np.unique(packed, return_inverse=True, return_counts=True)
    rgb = np.stack([colours >> 16, colours >> 8 & 255, colours & 255], axis=1).astype(np.int32)
    found: list[Any] = []
    for one in rgb[np.argsort(counts)[::-1]]:
        if len(found) < 256 and (not found or ((np.array(found) - one) ** 2).sum(axis=1).min() >= _ALIKE):
            found.append(one)
    kept_rgb = np.array(found)
    nearest = np.empty(len(colours), dtype=np.uint8)
    for start in range(0, len(rgb), 4096):
        apart = ((rgb[start : start + 4096, None, :] - kept_rgb[None]) ** 2).sum(axis=2)
        nearest[start : start + 4096] = apart.argmin(axis=1)
    rows = nearest[where].reshape(packed.shape)
    height, width = rows.shape
    raw = b"".join(b"\0" + row.tobytes() for row in rows)
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    palette = kept_rgb.astype(np.uint8).tobytes()
    chunks = ((b"IHDR", header), (b"PLTE", palette), (b"IDAT", zlib.compress(raw, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        for kind, body in chunks
    )


def decoded(png: bytes) -> Any:
    """Height, width, three colours: of a PNG of 8 bits without interlacing, as Chromium writes it."""
    import numpy as np

    at, data, width, height, channels = 8, b"", 0, 0, 3
    while at < len(png):
        length, kind = struct.unpack(">I4s", png[at : at + 8])
        body = png[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            width, height, _, colour = struct.unpack(">IIBB", body[:10])
            channels = {2: 3, 6: 4}[colour]
        data += body if kind == b"IDAT" else b""
        at += 12 + length
    lines = np.frombuffer(zlib.decompress(data), dtype=np.uint8).reshape(height, 1 + width * channels)
    made = np.zeros((height + 1, width, channels), dtype=np.uint8)
    for row in range(height):
        kind, line = int(lines[row, 0]), lines[row, 1:].reshape(width, channels)
        up = made[row]
        if kind in (0, 2):
            made[row + 1] = line + (up if kind == 2 else 0)
        elif kind == 1:
            made[row + 1] = np.cumsum(line, axis=0, dtype=np.uint8)
        else:
            _left_to_right(kind, line, up, made[row + 1])
    return made[1:, :, :3]


def _left_to_right(kind: int, line: Any, up: Any, out: Any) -> None:
    """The filters Average and Paeth, which need what is left of them."""
    for channel in range(line.shape[1]):
        left = corner = 0
        for at, (one, above) in enumerate(
            zip(line[:, channel].tolist(), up[:, channel].tolist(), strict=True)
        ):
            if kind == 3:
                guess = (left + above) // 2
            else:
                base = left + above - corner
                guess = min(
                    (abs(base - left), 0, left),
                    (abs(base - above), 1, above),
                    (abs(base - corner), 2, corner),
                )[2]
            left, corner = (one + guess) & 255, above
            out[at, channel] = left


def _fonts(folder: Path) -> None:
    """`system-ui` is the desktop's font; a machine without a desktop has none, so that it is named here."""
    (folder / "fonts.conf").write_text(
        '<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "fonts.dtd"><fontconfig><dir>/usr/share/fonts</dir>'
        f'<cachedir>{folder}/fonts</cachedir><alias binding="strong"><family>system-ui</family><prefer>'
        "<family>Inter</family><family>Noto Sans</family><family>Liberation Sans</family></prefer></alias></fontconfig>"
    )
    os.environ["FONTCONFIG_FILE"] = str(folder / "fonts.conf")


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _answers(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


def _until(fits: Callable[[], bool], what: str, seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not fits():
        if time.monotonic() > end:
            raise SystemExit(what)
        time.sleep(0.2)


def shown(place: Place, out: Path) -> None:
    """What is at work while the pictures are taken: a slow export, and one whose catalog is down."""
    with (place.folder / "calve.toml").open("a") as settings:
        settings.write(RULES)
    for policy in POLICIES:  # what a policy begins would hold the source while it is looked at
        place.run("policy", "pause", policy, "--reason", "sensors are recalibrated")
    with place.served(CALVE_LIMITS__UPLOAD_MB_PER_SECOND="1"):
        looked(place)
        place.run(
            "export", "shop.order_items", "--to", "archive.shop.order_items", "--all", "--no-wait=queued"
        )
        place.run("export", "shop.events", "--to", "lake.shop.events_by_day", "--all", "--no-wait=queued")
        _until(lambda: any(one["tasks"]["done"] >= 3 and one["state"] == "RUNNING" for one in place.processes()), "no export runs")  # fmt: skip
        for policy in POLICIES[:2]:
            place.run("policy", "resume", policy, "--server", place.url)
        _fonts(place.folder)
        pictures(place, out)


def main(folder: Path, out: Path) -> None:
    place = Place(folder)
    sys.stderr.write("making tables\n")
    place.statements(*tables())
    sys.stderr.write("exports, backups, a restore, a failure: about two minutes\n")
    with place.served():
        work(place)
    changed(place)
    aged(place)
    sys.stderr.write(f"pictures of it, in {out}\n")
    shown(place, out)


if __name__ == "__main__":
    OUT = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "images"
    with tempfile.TemporaryDirectory(prefix="calve-demo-") as made:
        main(Path(made), OUT.resolve())
