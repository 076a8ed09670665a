"""Real exports, started, watched, cancelled and run again from pages that are never reloaded."""

import re

import pytest
from playwright.sync_api import Page, expect
from scene import ROWS, OpenAs, Scene

from calve.model.access import Role
from support.browser import axe_finds

pytestmark = pytest.mark.programs


def mark(page: Page) -> None:
    """Lost with the page: it proves that nothing was loaded anew."""
    expect(page.locator("#status")).to_have_text("live")
    page.evaluate("() => { window.same = true }")


def is_same(page: Page) -> bool:
    return bool(page.evaluate("() => window.same === true"))


def reload_until(page: Page, selector: str) -> None:
    """What somebody does who has no script."""
    while not page.locator(selector).count():  # the test's own time limit ends it
        page.reload()


def test_an_export_is_started_from_the_matrix_and_watched_to_its_end(scene: Scene, open_as: OpenAs) -> None:
    scene.table("clicks")
    scene.finish(scene.export("clicks", "0"))
    person = open_as(Role.OPERATOR)
    page = person.page("tables/new")
    expect(page.get_by_role("heading", level=1)).to_have_text("Tables of main")
    assert axe_finds(page) == []
    page = person.page(scene.address("clicks"))
    mark(page)
    # Nobody has looked yet. A server does as soon as the page is open, and the page shows what it finds.
    boxes = page.locator("#matrix tbody input[type=checkbox]")
    expect(boxes).to_have_count(3)
    assert is_same(page)
    boxes.nth(0).click()
    boxes.nth(2).click(modifiers=["Shift"])
    expect(page.locator("[data-chosen]")).to_contain_text("3 partitions, 300 rows")
    page.get_by_role("button", name="Select all not yet exported").click()
    expect(page.locator("[data-chosen]")).to_contain_text("2 partitions, 200 rows")
    page.get_by_role("button", name="See the plan").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("This would be exported")
    assert axe_finds(page) == []
    with scene.runner.holding():
        page.get_by_role("button", name="Start").click()
        page.wait_for_url(re.compile(r"/processes\?batch="))
        mark(page)
        rows = page.locator("tbody tr")
        expect(rows).to_have_count(2)
        expect(rows.locator(".state.run")).not_to_have_count(0)
    expect(rows.locator(".state", has_text="completed")).to_have_count(2)
    expect(page.locator("#said")).to_have_text(re.compile("export .* completed"))
    assert is_same(page)
    page.goto(scene.at("clicks"))
    expect(page.locator("#matrix .state.ok")).to_have_count(3)


def test_a_table_that_was_never_exported_is_started_without_a_script(scene: Scene, open_as: OpenAs) -> None:
    scene.table("fresh")
    page = open_as(Role.OPERATOR, java_script_enabled=False).page("tables")
    page.get_by_role("link", name="New export…").click()
    page.get_by_role("link", name="Look again").click()  # somebody may have looked before the table was there
    page.get_by_label("Name").fill("db.fresh")
    page.get_by_role("button", name="Filter").click()
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_role("link", name="Export…").click()
    expect(page.get_by_label("Destination")).to_have_value("far.db.fresh")
    page.get_by_label("Destination").fill("lake.ns.fresh")
    page.get_by_role("button", name="Look at its partitions").click()
    page.wait_for_url(re.compile("/tables/of"))
    expect(page.locator("#matrix tbody tr")).to_have_count(3)
    page.get_by_label("Select 1").check()
    page.get_by_role("button", name="See the plan").click()
    page.get_by_role("button", name="Start exactly this").click()
    page.wait_for_url(re.compile(r"/processes/[a-z0-9]{13}"))
    reload_until(page, "h1 .state.ok")
    assert scene.perform("partitions", table="db.fresh", to="lake.ns.fresh")[1]["exported"] == "unchanged"


def test_a_cancelled_export_is_run_again(scene: Scene, open_as: OpenAs) -> None:
    scene.table("stopped")
    person = open_as(Role.OPERATOR)
    with scene.runner.holding():
        (started,) = scene.export("stopped", "1")
        page = person.page(f"processes/{started}")
        mark(page)
        expect(page.locator("h1 .state")).to_have_text("running")
        page.get_by_role("link", name="Cancel…").click()
        dialog = page.get_by_role("dialog", name="Cancel")
        expect(dialog).to_contain_text("nothing is published")
        assert axe_finds(page) == []
        assert is_same(page)
        dialog.get_by_role("link", name="Back").click()
        expect(dialog).to_have_count(0)
        expect(page.get_by_role("link", name="Cancel…")).to_be_focused()
        page.keyboard.press("Enter")
        page.get_by_role("dialog").get_by_role("button", name="Cancel", exact=True).click()
        page.wait_for_url(re.compile(started))
        expect(page.locator("h1 .state")).to_have_text("cancelled")
    page.get_by_role("link", name="Retry…").click()
    page.get_by_role("dialog").get_by_role("button", name="Retry").click()
    page.wait_for_url(lambda url: "/processes/" in url and started not in url)
    mark(page)
    expect(page.locator("h1 .state")).to_have_text("completed")
    expect(page.get_by_role("link", name=started)).to_be_visible()
    assert is_same(page)


def test_two_people_see_the_same_and_one_joins_the_other(scene: Scene, open_as: OpenAs) -> None:
    scene.table("shared")
    first, second = open_as(Role.OPERATOR), open_as(Role.OPERATOR)
    plan = "tables/plan?source=main:db.shared&to=lake.ns.shared&partition=1"
    pages = [first.page(plan), second.page(plan)]
    with scene.runner.holding():
        for page in pages:
            expect(page.get_by_role("button", name="Start")).to_be_visible()
        pages[0].get_by_role("button", name="Start").click()
        pages[0].wait_for_url(re.compile("/processes/"))
        pages[1].get_by_role("button", name="Start").click()
        expect(pages[1].locator("main")).to_contain_text("was under way already: this request joined it.")
        pages[1].locator("main ul.list a").click()
        pages[1].wait_for_url(pages[0].url)
        for page in pages:
            mark(page)
        pages[0].get_by_role("link", name="Cancel…").click()
        pages[0].get_by_role("dialog").get_by_role("button", name="Cancel", exact=True).click()
        expect(pages[1].locator("h1 .state")).to_have_text("cancelled")
        assert is_same(pages[1])


def test_a_viewer_sees_it_live_and_may_not(scene: Scene, open_as: OpenAs) -> None:
    scene.table("looked_at")
    person = open_as(Role.VIEWER)
    with scene.runner.holding():
        (started,) = scene.export("looked_at", "1")
        page = person.page(f"processes/{started}")
        mark(page)
        expect(page.locator(".button.off", has_text="Cancel")).to_have_attribute(
            "title", "Needs operator: sign in"
        )
        assert page.get_by_role("link", name="Cancel…").count() == 0
        page.goto(person.at(f"confirm/cancel?ids={started}"))
        expect(page.locator("main")).to_contain_text("Needs operator.")
        assert page.locator("main form").count() == 0
        page.goto(person.at(f"processes/{started}"))
        mark(page)
    expect(page.locator("h1 .state")).to_have_text("completed")
    assert is_same(page)


def test_a_backup_is_restored_under_another_name(scene: Scene, open_as: OpenAs) -> None:
    scene.table("saved")
    made = scene.perform("backup_create", name="nightly", tables=["db.saved"])
    scene.finish([one["id"] for one in made["processes"]])
    page = open_as(Role.ADMIN).page("backups")
    page.get_by_role("row", name=re.compile("nightly")).get_by_role("link", name="Restore…").click()
    page.get_by_label("Into the database").fill("again")
    assert axe_finds(page) == []
    page.get_by_role("button", name="See the plan").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("This would be restored")
    assert axe_finds(page) == []
    expect(page.locator("main")).to_contain_text("Nothing that exists is changed")
    page.get_by_role("button", name="Start exactly this").click()
    page.wait_for_url(re.compile("/processes/"))
    mark(page)
    expect(page.locator("h1 .state")).to_have_text("completed")
    assert is_same(page)
    assert scene.rows("SELECT count() AS n FROM again.saved") == [{"n": ROWS}]


def test_all_of_it_without_a_script(scene: Scene, open_as: OpenAs) -> None:
    scene.table("plain")
    scene.finish(scene.export("plain", "0"))
    person = open_as(Role.OPERATOR, java_script_enabled=False)
    page = person.page(scene.address("plain"))
    expect(page.locator("#status")).to_contain_text("Loaded")
    assert page.locator(".needs-script:visible").count() == 0
    page.get_by_role("button", name="Look now").click()
    reload_until(page, "#matrix tbody th:has-text('2')")
    page.get_by_role("checkbox", name="Select 1").check()
    page.get_by_role("button", name="See the plan").click()
    with scene.runner.holding():
        page.get_by_role("button", name="Start").click()
        page.wait_for_url(re.compile("/processes/"))
        page.get_by_role("link", name="Cancel…").click()
        page.wait_for_url(re.compile("/confirm/cancel"))
        page.get_by_role("button", name="Cancel", exact=True).click()
        page.wait_for_url(re.compile("/processes/"))
        (stopped,) = re.findall(r"processes/(\w+)", page.url)
        reload_until(page, "h1 .state:has-text('cancelled')")
    page.get_by_role("link", name="Retry…").click()
    page.get_by_role("button", name="Retry").click()
    page.wait_for_url(lambda url: "/processes/" in url and stopped not in url)
    (again,) = re.findall(r"processes/(\w+)", page.url)
    reload_until(page, "h1 .state:has-text('completed')")
    page.get_by_label("Search").first.fill(again[:6])
    page.get_by_label("Search").first.press("Enter")
    page.wait_for_url(re.compile(again))


def test_by_keyboard_alone(scene: Scene, open_as: OpenAs) -> None:
    page = open_as(Role.OPERATOR).page("")
    mark(page)
    keys = page.keyboard
    keys.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    assert axe_finds(page) == []
    keys.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert is_same(page)
    keys.press("/")
    expect(page.locator("#q")).to_be_focused()
    keys.type("db.events")
    found = page.locator("#found a")
    expect(found).to_have_count(1)
    keys.press("ArrowDown")
    expect(found).to_be_focused()
    assert axe_finds(page) == []
    keys.press("Enter")
    page.wait_for_url(re.compile("tables/of"))
    boxes = page.locator("#matrix tbody input[type=checkbox]")
    expect(boxes).to_have_count(3)
    mark(page)
    keys.press("j")
    page.locator("#matrix").get_by_role("checkbox").first.focus()
    keys.press("Space")
    keys.press("Shift+ArrowDown")
    expect(page.locator("[data-chosen]")).to_contain_text("2 partitions")
    keys.press("ArrowDown")
    expect(boxes.nth(2)).to_be_focused()
    keys.press("x")
    expect(page.locator("[data-chosen]")).to_contain_text("3 partitions")
    assert is_same(page)
    keys.press("g")
    keys.press("p")
    page.wait_for_url(re.compile("processes$"))
    mark(page)
    keys.press("j")
    expect(page.locator("tbody tr").first.locator("a.id")).to_be_focused()
    keys.press("j")
    expect(page.locator("tbody tr").nth(1).locator("a.id")).to_be_focused()
    keys.press("x")
    expect(page.locator("[data-chosen]")).to_have_text("1 selected.")
    keys.press("t")
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    keys.press("t")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    keys.press("p")
    expect(page.locator("#status")).to_have_text("paused")
    keys.press("p")
    expect(page.locator("#status")).to_have_text("live")
    keys.press("Enter")
    page.wait_for_url(re.compile(r"processes/\w+"))
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
