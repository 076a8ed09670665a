"""A real browser for tests: Debian's Chromium, headless, driven by Playwright.

One browser for a test program, a context (cookies, storage, window) for each person in a test. Whatever a page writes
to the console as an error, throws, or does against its policy is collected: a test that ends with such a word fails.
"""

import asyncio
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib.resources import files
from typing import Any

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect, sync_playwright

from calve.model.errors import UsageError

PROGRAMS = ("chromium-headless-shell", "chromium")
FLAGS = (
    "--no-sandbox",  # tests may run as root
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-quic",
)
MILLISECONDS = 20_000  # for what a test waits for; on a busy machine a second is not long
_AXE = "axe.min.js"
# The browser's own word about an answer that is no success: tests of refusals say that they expect it.
ANSWERS = r"Failed to load resource"
_NOT_NOW = "503 (Service Unavailable)"  # a server on a busy machine may say so; a page asks again
_LISTEN = """
addEventListener("securitypolicyviolation", (e) => console.error("policy: " + e.violatedDirective + " " + e.blockedURI));
"""


def executable() -> str:
    for name in PROGRAMS:
        if found := shutil.which(name):
            return found
    raise UsageError(
        "no Chromium, which the tests of the dashboard drive", code="no_browser",
        hint=f"apt-get install {PROGRAMS[0]}",
    )  # fmt: skip


class Chromium:
    """One browser. Between tests Playwright's loop must not count as running: other tests of this program use
    asyncio too, hence `in_use`."""

    def __init__(self) -> None:
        with ExitStack() as opening:
            self._playwright = opening.enter_context(sync_playwright())
            self.browser: Browser = self._playwright.chromium.launch(
                executable_path=executable(), args=list(FLAGS)
            )
            expect.set_options(timeout=MILLISECONDS)
            self._loop = asyncio.get_running_loop()
            asyncio._set_running_loop(None)
            self._open = opening.pop_all()

    @contextmanager
    def in_use(self) -> Iterator["Chromium"]:
        asyncio._set_running_loop(self._loop)
        try:
            yield self
        finally:
            asyncio._set_running_loop(None)

    def close(self) -> None:
        with self.in_use():
            self.browser.close()
            self._open.close()


class Person:
    """A context: somebody with a window and cookies of his own."""

    def __init__(self, chromium: Chromium, url: str, **options: Any) -> None:
        self.url = url
        self.errors: list[str] = []
        self.context: BrowserContext = chromium.browser.new_context(
            **{"base_url": url, "viewport": {"width": 1280, "height": 900}, "reduced_motion": "reduce"}
            | options
        )
        self.context.set_default_timeout(MILLISECONDS)
        self.context.add_init_script(_LISTEN)
        self.context.on("console", self._said)
        self.context.on("weberror", lambda error: self.errors.append(str(error.error)))

    def page(self, address: str | None = None) -> Page:
        """A new tab, at an address below the server's."""
        page = self.context.new_page()
        if address is not None:
            page.goto(self.at(address))
        return page

    def at(self, address: str) -> str:
        return f"{self.url.rstrip('/')}/{address.lstrip('/')}"

    def give_cookie(self, cookie: tuple[str, str]) -> None:
        name, value = cookie
        self.context.add_cookies([{"name": name, "value": value, "url": self.url, "sameSite": "Strict"}])

    def forgive(self, pattern: str) -> None:
        """What the test has caused on purpose."""
        self.errors = [one for one in self.errors if not re.search(pattern, one)]

    def close(self) -> None:
        self.context.close()
        assert not self.errors, self.errors

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not message.text.endswith(_NOT_NOW):
            self.errors.append(f"{message.page.url if message.page else ''}: {message.text}")


def axe_finds(page: Page, only: Sequence[str] = ()) -> list[str]:
    """What keeps people from using the page as it is now, each with the first places where it does. `only`: these rules."""
    if not page.evaluate("() => Boolean(window.axe)"):
        page.evaluate(_axe())
    options: dict[str, Any] = {"resultTypes": ["violations"]}
    if only:
        options["runOnly"] = {"type": "rule", "values": list(only)}
    found = page.evaluate("(options) => axe.run(document, options)", options)
    return [
        f"{one['id']}: {node['html'][:200]} {' '.join(node['failureSummary'].split())[:200]}"
        for one in found["violations"]
        for node in one["nodes"][:3]
    ]


@cache
def _axe() -> str:
    return files("axe_playwright_python").joinpath(_AXE).read_text()
