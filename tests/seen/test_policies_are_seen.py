"""A policy from its page: what it may release is allowed, leaves, comes back and is dropped, each by a button that said
what it would do."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect
from scene import OpenAs, Scene

from calve.model.access import Role
from support.browser import ANSWERS, axe_finds
from support.local_runner import LocalRunner
from support.watched_runner import WatchedRunner

pytestmark = pytest.mark.programs
RULES = """
[policy.moves]
source = "main:tier.events"
to = "lake.tier.events"
export_after = "1s"
quiet = "0s"
release = "quarantine"
release_after = "0s"
only_copy = "accepted"
look_every = "10s"
"""
MOVES = "policies/of?name=moves"


@pytest.fixture(scope="module")
def ruled(tmp_path_factory: pytest.TempPathFactory, runner: LocalRunner) -> Iterator[Scene]:
    """Two months that are over, and the newest, which stays."""
    made = Scene(tmp_path_factory.mktemp("ruled"), WatchedRunner(runner), "sqlite://", rules=RULES)
    made.execute(
        "CREATE DATABASE tier",
        "CREATE TABLE tier.events (id UInt64, day Date) ENGINE = MergeTree PARTITION BY toYYYYMM(day) ORDER BY id",
        "INSERT INTO tier.events SELECT number, toDate('2024-01-10') + toIntervalMonth(number % 3) FROM numbers(90)",
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("calve.app.rules._TICK_SECONDS", 0.5)
        with made:
            yield made


def confirm(page: Page, button: str, **typed: str) -> None:
    """Press a button that asks first, and say yes."""
    page.get_by_role("link", name=button, exact=True).first.click()
    dialog = page.locator("#asked")
    expect(dialog.locator(".consequence")).not_to_be_empty()
    for label, text in typed.items():
        dialog.get_by_label(re.compile(label)).fill(text)
    dialog.locator("button[type=submit]").click()


def left(page: Page, partition: str) -> str:
    return f"[aria-labelledby=left] tbody tr:has(th:has-text('{partition}'))"


def test_partitions_leave_come_back_and_are_dropped_by_buttons(ruled: Scene, open_as: OpenAs) -> None:
    person = open_as(url=ruled.url)
    person.give_cookie(ruled.session(Role.ADMIN))
    page = person.page(MOVES)
    expect(page.locator(".counts")).to_contain_text("held 2", timeout=90_000)
    assert axe_finds(page) == []
    # Live: what a worker does shows without a reload.
    expect(page.locator(".notice.warn")).to_contain_text("2 partitions wait for it")
    page.get_by_role("link", name="Approve…").click()
    expect(page.locator("#asked tbody th")).to_have_text(["202401", "202402"])
    page.locator("#asked button[type=submit]").click()
    page.wait_for_url(re.compile(re.escape(MOVES)))
    expect(page.locator("[aria-labelledby=left] .state", has_text="in quarantine")).to_have_count(
        2, timeout=90_000
    )
    assert axe_finds(page) == []

    page.locator(left(page, "202401")).get_by_role("link", name="Bring back…").click()
    page.locator("#asked button[type=submit]").click()
    page.wait_for_url(re.compile("/processes/"))
    expect(page.locator("h1 ~ *, .state", has_text="completed").first).to_be_visible(timeout=60_000)

    page.goto(person.at(""))
    card = page.locator(".card", has_text="1 partition of main:tier.events may be dropped")
    expect(card).to_be_visible()
    assert axe_finds(page) == []
    expect(card.locator("h2 a")).to_have_attribute("href", MOVES)
    confirm(page, "See the plan…")
    expect(page.locator(".lead")).to_have_text("Nothing was deleted. This is what would be, for good.")
    assert axe_finds(page) == []
    confirm(page, "Drop exactly this…", Type="202402")
    expect(page.locator(".lead")).to_contain_text("1 drop was begun")
    page.get_by_role("link", name=re.compile("^[a-z0-9]{13}$")).click()
    expect(page.locator(".diagram")).to_contain_text("Completed", ignore_case=True, timeout=60_000)
    page.goto(person.at(MOVES))
    expect(page.locator(left(page, "202402"))).to_contain_text("dropped")
    expect(page.locator(left(page, "202401"))).to_have_count(0)
    assert ruled.rows("SELECT toYYYYMM(day) AS m, count() AS n FROM tier.events GROUP BY m ORDER BY m") == [
        {"m": 202401, "n": 30}, {"m": 202403, "n": 30},
    ]  # fmt: skip


def test_a_policy_is_paused_and_rows_are_held_without_a_script(ruled: Scene, open_as: OpenAs) -> None:
    person = open_as(url=ruled.url, java_script_enabled=False)
    person.give_cookie(ruled.session(Role.ADMIN))
    page = person.page(MOVES)
    page.get_by_role("link", name="Pause…").click()
    page.get_by_label("Reason").fill("a migration")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator(".notice.wait")).to_contain_text("a migration")
    page.get_by_role("button", name="Resume").click()
    expect(page.locator(".notice.wait")).to_have_count(0)
    page.get_by_role("link", name="Hold…").click()
    page.get_by_label("Partition").fill("202403")
    page.get_by_label("Reason").fill("an audit")
    page.get_by_role("button", name="Hold").click()
    expect(page.locator(".lead")).to_contain_text("is held", timeout=60_000)
    page.get_by_role("link", name="Back", exact=True).click()
    row = page.locator("[aria-labelledby=holds] tbody tr", has_text="an audit")
    row.get_by_role("link", name="Release…").click()
    page.get_by_role("button", name="Release").click()
    expect(page.locator("[aria-labelledby=holds] tbody tr", has_text="an audit")).to_have_count(0)


def test_the_keyboard_leads_to_policies_and_a_viewer_may_only_look(ruled: Scene, open_as: OpenAs) -> None:
    person = open_as(url=ruled.url)
    page = person.page("")
    expect(page.locator("#status")).to_have_text("live")
    page.keyboard.press("g")
    page.keyboard.press("o")
    page.wait_for_url(re.compile("/policies$"))
    assert axe_finds(page) == []
    page.get_by_role("link", name="moves", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_have_text("moves")
    assert not page.locator("main a[data-confirm]").count(), "what a viewer may not do is no link"
    page.get_by_role("button", name="What is due?").click()
    answered = page.locator(".lead, [role=alert]")
    expect(answered).to_be_visible(timeout=60_000)
    while page.get_by_role(
        "alert"
    ).count():  # a worker looks at this moment; the test's own time limit ends it
        page.get_by_role("button", name="Look now").click()
        expect(answered).to_be_visible(timeout=60_000)
    person.forgive(ANSWERS)
    expect(page.locator(".lead")).to_contain_text("due")
