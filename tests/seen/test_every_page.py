"""Every page, with data and without, in both themes, wide and narrow: axe finds nothing, nothing is wider than its window,
and no page breaks its own policy."""

from typing import Literal

import pytest
from playwright.sync_api import Page, expect
from scene import OpenAs, Scene

from calve.model.access import Role
from support.browser import ANSWERS, axe_finds

pytestmark = pytest.mark.programs


def settled(page: Page) -> None:
    if page.locator("#main:not([data-wants='{}'])").count():
        expect(page.locator("#status")).to_have_text("live")


THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
COLOURS = ("color-contrast", "link-in-text-block")  # nothing else is left to differ
EMPTY = ("", "tables", "policies", "processes", "backups", "backups/restore", "system", "search", "sign-in")


@pytest.mark.parametrize("data", ["data", "no_data"])
def test_nothing_keeps_people_out(scene: Scene, empty: str, open_as: OpenAs, data: str) -> None:
    person = open_as(Role.OPERATOR) if data == "data" else open_as(url=empty)
    page = person.page()
    wrong: list[str] = []
    for address in scene.addresses() if data == "data" else EMPTY:
        page.goto(person.at(address))
        settled(page)
        for width in (1280, 360):
            page.set_viewport_size({"width": width, "height": 900})
            for theme in THEMES:
                page.emulate_media(color_scheme=theme)
                wide = page.evaluate("() => document.documentElement.scrollWidth - innerWidth")
                found = axe_finds(page, only=COLOURS if (width, theme) == (360, "dark") else ())
                found += [f"{wide} px too wide"] if wide > 0 else []
                wrong += [f"{address or '/'} {width} {theme}: {one}" for one in found]
    person.forgive(f"nowhere: {ANSWERS}")
    assert not wrong, "\n".join(wrong)
