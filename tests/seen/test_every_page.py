"""Every page, with data and without, in both themes, wide and narrow: axe finds nothing, nothing is wider than its window,
and no page breaks its own policy."""

import pytest
from playwright.sync_api import Page, expect
from scene import OpenAs, Scene

from calve.model.access import Role
from support.browser import ANSWERS, axe_finds

pytestmark = pytest.mark.programs


def settled(page: Page) -> None:
    if page.locator("#main:not([data-wants='{}'])").count():
        expect(page.locator("#status")).to_have_text("live")


@pytest.mark.parametrize("width", [1280, 360])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nothing_keeps_people_out(scene: Scene, open_as: OpenAs, theme: str, width: int) -> None:
    person = open_as(Role.OPERATOR, color_scheme=theme, viewport={"width": width, "height": 900})
    page = person.page()
    wrong: dict[str, list[str]] = {}
    for address in scene.addresses():
        page.goto(person.at(address))
        settled(page)
        wide = page.evaluate("() => document.documentElement.scrollWidth - innerWidth")
        found = axe_finds(page) + ([f"{wide} px too wide"] if wide > 0 else [])
        if found:
            wrong[address] = found
    person.forgive(f"nowhere: {ANSWERS}")
    assert not wrong, "\n".join(f"{address}: {one}" for address, found in wrong.items() for one in found)
