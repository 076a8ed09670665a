"""calve.js by itself, on pages that a test writes: what it keeps when a page changes, and its words."""

import random
import re
from datetime import UTC, datetime, timedelta
from urllib.parse import urljoin

import pytest
from fixture_page import fixture_page, main
from playwright.sync_api import expect
from scene import OpenAs

from calve.web import words

pytestmark = pytest.mark.programs

# Gives the page one main after another, as the server would, and says after each what differs from it.
ROUNDS = """async (rounds) => {
  const wrong = [];
  for (const [number, { html, focus }] of rounds.entries()) {
    const before = focus ? document.getElementById(focus) : null;
    before?.focus();
    const top = before?.parentElement.id === "main";
    const typed = [...document.querySelectorAll("#main input[type=text]")];
    for (const one of typed) one.value = "typed in " + one.id;
    const answer = new Response(html, { headers: { "X-Calve-Version": document.getElementById("main").dataset.version } });
    window.fetch = () => Promise.resolve(answer);
    document.dispatchEvent(new KeyboardEvent("keydown", { key: "r", bubbles: true }));
    for (let turn = 0; turn < 20 && document.getElementById("main").dataset.round !== String(number); turn++)
      await new Promise((done) => setTimeout(done));
    const shape = (node) => node.nodeType !== 1 ? node.nodeValue : [node.nodeName, [...node.attributes].map((a) => a.name + "=" + a.value).sort(), [...node.childNodes].map(shape)];
    const fresh = new DOMParser().parseFromString(html, "text/html").getElementById("main");
    if (JSON.stringify(shape(document.getElementById("main"))) !== JSON.stringify(shape(fresh))) wrong.push(number + ": another tree");
    for (const one of typed) if (one.isConnected && one.value !== "typed in " + one.id) wrong.push(number + ": what was typed is lost");
    const after = focus ? document.getElementById(focus) : null;
    // Of what stands at the top the node itself stays; further below it may be in another element now.
    const stays = top && after?.parentElement.id === "main" && before.nodeName === after.nodeName;
    if (stays && before !== after) wrong.push(number + ": another node for " + focus);
    if (before && after && document.activeElement !== after) wrong.push(number + ": the focus is lost from " + focus);
  }
  return wrong;
}"""


def tree(chance: random.Random, depth: int, names: list[str]) -> str:
    """Keyed and plain elements, texts, fields; `names` are those still free."""
    made = []
    for _ in range(chance.randint(0, 5)):
        kind = chance.random()
        if kind < 0.2:
            made.append(chance.choice(["one", "two &lt;three", "  ", "four\n"]))
        elif kind < 0.35 and names:
            name = names.pop()
            made.append(f'<input type="text" id="{name}" name="{name}" aria-label="a">')
        elif kind < 0.8 and names and depth:
            name = names.pop()
            tag = chance.choice(["div", "div", "section"])
            made.append(f'<{tag} id="{name}" tabindex="0">{tree(chance, depth - 1, names)}</{tag}>')
        elif depth:
            tag, look = (
                chance.choice(["span", "div", "li"]),
                chance.choice(["", ' class="a"', ' title="b" class="c"']),
            )
            made.append(f"<{tag}{look}>{tree(chance, depth - 1, names)}</{tag}>")
    return "".join(made)


def test_a_page_becomes_the_next_one_and_what_has_the_focus_keeps_it(open_as: OpenAs) -> None:
    chance = random.Random(15)
    rounds = []
    for number in range(400):
        names = [f"n{one}" for one in range(12)]
        chance.shuffle(names)
        html = main(tree(chance, 4, names)).replace("<main ", f'<main data-round="{number}" ', 1)
        rounds.append({"html": html, "focus": f"n{chance.randrange(12)}"})
    page = fixture_page(open_as(), "")
    assert page.evaluate(ROUNDS, rounds) == []


def test_what_was_ticked_stays_ticked_when_rows_come_before_it(open_as: OpenAs) -> None:
    def rows(*names: str) -> str:
        made = "".join(
            f'<tr id="m-{one}"><td class="pick"><input type="checkbox" name="partition" value="{one}" aria-label="{one}"></td></tr>'
            for one in names
        )
        return f"<form><table><tbody>{made}</tbody></table></form>"

    page = fixture_page(open_as(), rows("a", "b", "c"))
    page.get_by_label("b").check()
    page.get_by_label("b").focus()
    html = main(rows("new", "a", "b")).replace("<main ", '<main data-round="0" ', 1)
    page.evaluate(ROUNDS, [{"html": html, "focus": ""}])
    ticked = page.evaluate("() => [...document.querySelectorAll(':checked')].map((one) => one.value)")
    assert ticked == ["b"]
    assert page.evaluate("() => document.activeElement.value") == "b"


def test_what_was_opened_stays_open_and_scrolled(open_as: OpenAs) -> None:
    lines = "<br>".join(["line"] * 200)
    content = f'<details><summary>More</summary><div id="scroller" tabindex="0">{lines}</div></details>'
    page = fixture_page(open_as(), content)
    page.add_style_tag(content="#scroller { height: 100px; overflow: auto }")
    page.get_by_text("More").click()
    page.evaluate("() => { document.getElementById('scroller').scrollTop = 500 }")
    html = main("<p>New</p>" + content + "<p>New</p>").replace("<main ", '<main data-round="0" ', 1)
    page.evaluate(ROUNDS, [{"html": html, "focus": ""}])
    assert page.evaluate("() => document.querySelector('details').open")
    assert page.evaluate("() => document.getElementById('scroller').scrollTop") == 500
    assert page.locator("#main > p").count() == 2


def test_a_view_is_kept_until_it_is_forgotten(open_as: OpenAs) -> None:
    page = open_as().page("processes?state=FAILED&since=7d")
    views = page.locator("[data-saved-views] a")
    page.get_by_text("Save this view").click()
    page.keyboard.press("Tab")
    page.get_by_label("Name of the view").fill("  ")
    page.keyboard.press("Enter")
    expect(views).to_have_count(0)
    page.get_by_label("Name of the view").fill("<b>night & day's")
    page.keyboard.press("Enter")
    expect(views).to_have_text("<b>night & day's")
    expect(views).to_have_attribute("aria-current", "page")
    expect(page.get_by_label("Name of the view")).to_be_hidden()
    page.get_by_role("link", name="All", exact=True).click()
    expect(views).to_have_count(1)
    views.click()
    page.wait_for_url("**/processes?state=FAILED&since=7d")
    page.get_by_role("button", name="Forget the view").click()
    expect(views).to_have_count(0)
    page.reload()
    expect(views).to_have_count(0)


@pytest.mark.parametrize("clipboard", ["clipboard", "selection"])
def test_a_command_is_copied(open_as: OpenAs, clipboard: str) -> None:
    """Over plain HTTP browsers have no clipboard for pages: then the text is selected and copied."""
    page = open_as().page("system")
    page.evaluate(
        """(has) => { window.copied = [];
          document.addEventListener("copy", () => window.copied.push(String(getSelection())));
          const value = has ? { writeText: async (text) => { window.copied.push(text); } } : undefined;
          Object.defineProperty(Navigator.prototype, "clipboard", { value }); }""",
        clipboard == "clipboard",
    )
    button = page.locator(".command", has_text="calve support").get_by_role("button", name="Copy")
    button.click()
    expect(button).to_have_class(re.compile("copied"))
    assert page.evaluate("() => window.copied") == ["calve support"]
    assert page.evaluate("() => String(getSelection())") == ""


def test_hits_of_a_search_look_as_on_its_page(open_as: OpenAs) -> None:
    page = open_as().page("backups/restore")
    hit = '<li><a href="tables/of?source=a&amp;to=b"><svg><use href="#i-tables"/></svg><span>a table</span></a></li>'
    answer = main(f'<ul class="hits">{hit * 2}</ul>').replace('data-page="test"', 'data-page="search"')
    page.route("**/search?q=*", lambda route: route.fulfill(body=answer, content_type="text/html"))
    page.locator("#q").press_sequentially("a t")
    found = page.locator("#found a")
    expect(found).to_have_count(2)
    assert found.first.get_attribute("href") == urljoin(page.url, "../tables/of?source=a&to=b")
    expect(found.first.locator("use")).to_have_attribute("href", "#i-tables")
    for step in ("ArrowDown", "ArrowDown", "ArrowDown"):  # to the last, and around
        page.keyboard.press(step)
    expect(page.locator("#q")).to_be_focused()
    page.keyboard.press("ArrowUp")
    expect(found.last).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#found")).to_be_hidden()


def test_words_are_those_of_the_server(open_as: OpenAs) -> None:
    chance = random.Random(15)
    now = datetime(2026, 11, 16, 12, tzinfo=UTC)
    seconds = [0, 1, 59, 60, 61, 3599, 3600, 86_399, 86_400, 604_800, 2_592_000, 31_536_000, 40_000_000]
    seconds += [round(10 ** chance.uniform(0, 8)) for _ in range(100)]
    numbers = [0, 1, 999, 1000, 1023, 1024, 10**6 - 1, 10**6, 1024**2 - 1, 10**9, 1024**4, 10**15]
    numbers += [round(10 ** chance.uniform(0, 16)) for _ in range(100)]
    moments = [(now + timedelta(seconds=sign * one)).isoformat() for one in seconds for sign in (-1, 1)]
    times = "".join(f'<time datetime="{at}" title="">?</time>' for at in moments)
    spans = "".join(f'<b data-since="{(now - timedelta(seconds=one)).isoformat()}">?</b>' for one in seconds)
    forms = "".join(
        f'<form><table><tbody><tr data-rows="{one}" data-bytes="{one}"><td class="pick">'
        f'<input type="checkbox" checked></td></tr></tbody></table><i data-chosen></i></form>'
        for one in numbers
    )
    page = fixture_page(open_as(), times + spans + forms)
    # The clock goes on: what is exactly at an edge may be a moment further.
    said = page.evaluate("() => [...document.querySelectorAll('time')].map((one) => one.textContent)")
    later = now + timedelta(seconds=1)
    for at, text in zip(moments, said, strict=True):
        assert text in (words.ago(at, now), words.ago(at, later)), at
    shown = page.evaluate("() => [...document.querySelectorAll('b')].map((one) => one.textContent)")
    for length, text in zip(seconds, shown, strict=True):
        if length >= 10:
            assert text in (words.span(length), words.span(length + 1))
    sums = page.evaluate(
        "() => [...document.querySelectorAll('[data-chosen]')].map((one) => one.textContent)"
    )
    assert sums == [f"1 partition, {words.count(one)} rows, {words.size(one)}." for one in numbers]
