"""Lines for programs and for people: what they are about, and that no message forges one."""

import asyncio
import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from calve.control.kind import WrappedKind
from calve.http.store_threads import StoreThreads
from calve.metrics.wrappers import LoggedKind
from calve.model.errors import PermanentError
from calve.wire import logs

LOG = logging.getLogger("calve.control")
ID = "k7d2mqx9rftwa"


class Lines:
    def __init__(self, **options: Any) -> None:
        self._stream = io.StringIO()
        self.as_json = logs.start(stream=self._stream, **options)

    @property
    def text(self) -> str:
        return self._stream.getvalue()

    @property
    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text.splitlines()]


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    ours, everybody = logging.getLogger("calve"), logging.getLogger()
    before = list(ours.handlers), ours.level, ours.propagate, list(everybody.handlers)
    yield
    ours.handlers[:], level, ours.propagate, everybody.handlers[:] = before
    ours.setLevel(level)
    logging.captureWarnings(False)


def test_json_is_for_what_is_not_a_terminal() -> None:
    assert Lines().as_json
    assert not Lines(form="human").as_json

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert not logs.start(stream=Terminal())
    assert logs.start(stream=Terminal(), form="json")


def test_a_line_says_what_it_is_about() -> None:
    lines = Lines(worker="w-1")
    with logs.bound(process=ID, task=3), logs.bound(attempt=2):
        LOG.info("begun")
    LOG.info("ended")
    first, second = lines.records
    about = {"process": ID, "task": 3, "attempt": 2, "worker": "w-1"}
    assert about.items() <= first.items() and (first["level"], first["logger"]) == ("info", "calve.control")
    assert second.keys() == {"at", "level", "logger", "message", "worker"}


def test_a_message_that_names_its_process_is_about_it() -> None:
    lines = Lines()
    LOG.warning("process %s, task %d: attempt %d failed (1 of 5): x: y", ID, 4, 2)
    LOG.warning("Publish of %s failed", ID)
    LOG.info("a list of configurations")
    assert [(one.get("process"), one.get("task"), one.get("attempt")) for one in lines.records] == [
        (ID, 4, 2), (ID, None, None), (None, None, None),
    ]  # fmt: skip


def test_an_error_has_its_code_and_its_traceback() -> None:
    lines = Lines()
    for error in (PermanentError("no", code="denied"), ZeroDivisionError("no")):
        try:
            raise error
        except Exception:
            LOG.exception("failed")
    assert [one["error"]["code"] for one in lines.records] == ["denied", "internal"]
    assert "Traceback" in lines.records[1]["error"]["traceback"]


@pytest.mark.parametrize("form", ["json", "human"])
def test_no_message_forges_a_line(form: str) -> None:
    lines = Lines(form=form)
    for text in ("a\n2026-01-01 00:00:00+0000 INFO forged", "a\r{}", "a\u2028{}", "\x1b[2Ja", "\ud800"):
        LOG.info("%s", text)
        try:
            raise ValueError(text)
        except ValueError:
            LOG.exception("failed")
    if form == "json":
        assert len(lines.records) == 10
    else:
        begun = [line for line in lines.text.splitlines() if not line.startswith("  ")]
        assert len(begun) == 10, begun
        assert "\x1b" not in lines.text and "forged" in lines.text


def test_a_line_for_people_ends_with_what_the_message_does_not_say() -> None:
    lines = Lines(form="human", worker="w-1")
    with logs.bound(process=ID, request="r1"):
        LOG.info("process %s is planned", ID)
    assert lines.text.endswith(f"INFO process {ID} is planned (request r1)\n")


def test_a_message_whose_arguments_do_not_fit_is_still_a_line() -> None:
    lines = Lines()
    LOG.info("%d rows", "many")
    assert lines.records[0]["message"] == "%d rows (TypeError in the arguments)"


def test_the_level_holds_back_what_is_below_it() -> None:
    lines = Lines(level="warning")
    LOG.info("quiet")
    LOG.warning("loud")
    assert [one["message"] for one in lines.records] == ["loud"]


def test_what_a_kind_logs_is_about_its_process() -> None:
    lines = Lines()

    class Speaking(WrappedKind):
        name = "fake"

        def __init__(self) -> None: ...

        def around(self, call: str, of: str, work: Any) -> Any: ...

        def fence(self, process: Any, plan: str) -> Any:
            LOG.info("looking")

    class One:
        id = ID

    LoggedKind(Speaking()).fence(One(), "")  # type: ignore[arg-type]
    LOG.info("after")
    assert [one.get("process") for one in lines.records] == [ID, None]


def test_what_a_thread_logs_for_a_request_is_about_the_request() -> None:
    lines = Lines()

    async def scene() -> None:
        threads = StoreThreads(answer_seconds=30)
        with logs.bound(request="r1"):
            await threads.run(lambda: LOG.info("read"))
        threads.close()

    asyncio.run(scene())
    with ThreadPoolExecutor(1) as pool:
        pool.submit(LOG.info, "elsewhere").result()
    assert [one.get("request") for one in lines.records] == ["r1", None]


@pytest.mark.programs
def test_an_unknown_level_is_an_error_that_names_the_key(tmp_path: Path) -> None:
    (tmp_path / "calve.toml").write_text('[log]\nlevel = "loud"\n')
    command = [sys.executable, "-m", "calve.cli", "config"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and "log.level" in done.stderr
