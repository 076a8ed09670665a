"""A page that a test writes itself, with the real script in it: for what no installation shows a thousand times."""

from playwright.sync_api import Page, Route

from calve.web.assets import Assets
from calve.web.frame import HEADERS
from support.browser import Person

ADDRESS = "of-a-test"
_PAGE = """<!doctype html><html lang="en"{stream} data-search="search"><head><title>Test</title>
<script src="{script}"></script></head><body><p id="status" role="status"></p>
<form role="search"><label for="q">Search</label><input id="q" name="q"><ul id="found" hidden></ul></form>{main}</body></html>"""
NOW = "2026-11-16T12:00:00Z"


def main(content: str, wants: str = "{}", now: str = NOW) -> str:
    version = HEADERS["X-Calve-Version"]
    return (
        f'<main id="main" tabindex="-1" data-title="Test" data-page="test" data-cursor="" data-now="{now}" '
        f"data-version=\"{version}\" data-wants='{wants}'>{content}</main>"
    )


def fixture_page(
    person: Person, content: str, *, stream: str = "", wants: str = "{}", page: Page | None = None
) -> Page:
    """With `stream` and `wants` it is live."""
    text = _PAGE.format(
        script=Assets().target("calve.js"),
        main=main(content, wants),
        stream=f' data-stream="{stream}"' if stream else "",
    )

    def answer(route: Route) -> None:
        route.fulfill(body=text, content_type="text/html; charset=utf-8")

    page = page or person.context.new_page()
    page.route(f"**/{ADDRESS}", answer)
    page.goto(person.at(ADDRESS))
    return page
