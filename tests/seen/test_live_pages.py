"""Pages that stay open: through outages, restarts, sleep, many tabs, many events, and the end of a session."""

import re
import time
from contextlib import ExitStack

import pytest
from fixture_page import fixture_page, main
from playwright.sync_api import Page, Request, expect
from scene import OpenAs, Scene

from calve.model.access import Role
from support.browser import ANSWERS, MILLISECONDS, Person
from support.network_proxy import Fault, Mode, NetworkProxy
from support.programs import free_ports

pytestmark = [pytest.mark.programs, pytest.mark.services]

STATE = "h1 .state"


def live(page: Page) -> Page:
    """Marked, once it is live: the mark is lost with the page."""
    expect(page.locator("#status")).to_have_text("live")
    page.evaluate("() => { window.same = true }")
    return page


def is_same(page: Page) -> bool:
    return bool(page.evaluate("() => window.same === true"))


def test_an_outage_and_its_end_are_seen(scene: Scene, open_as: OpenAs, far: NetworkProxy) -> None:
    scene.table("cut_off")
    person = open_as()
    attention = live(person.page(""))
    with scene.runner.holding():
        (started,) = scene.export("cut_off", "1", catalog="far")
        sheet = live(person.page(f"processes/{started}"))
        expect(sheet.locator(STATE)).to_have_text("running")
        far.set(Fault(mode=Mode.REFUSE))
    try:
        expect(sheet.locator(".why")).to_contain_text("catalog:far", timeout=60_000)
        expect(attention.locator(".card", has_text="catalog:far")).to_be_visible(timeout=60_000)
    finally:
        far.heal()
    expect(sheet.locator(STATE)).to_have_text("completed")
    expect(attention.locator(".card", has_text="catalog:far")).to_have_count(0, timeout=60_000)
    assert is_same(sheet)
    assert is_same(attention)


def test_a_server_that_comes_back_is_found_again(scene: Scene, open_as: OpenAs) -> None:
    scene.table("restarted")
    (port,) = free_ports(1)
    with ExitStack() as first, scene.runner.holding():
        url = first.enter_context(scene.served(port=port))
        person = open_as(url=url)
        (started,) = scene.export("restarted", "1")
        page = live(person.page(f"processes/{started}"))
        expect(page.locator(STATE)).to_have_text("running")
        first.close()
        expect(page.locator("#status")).to_have_text("reconnecting")
    scene.finish([started])
    expect(page.locator(STATE)).to_have_text("running")
    with scene.served(port=port):
        expect(page.locator(STATE)).to_have_text("completed", timeout=60_000)
        expect(page.locator("#status")).to_have_text("live", timeout=60_000)
        assert is_same(page)
        person.forgive(ANSWERS)
        person.context.close()


def test_under_a_path_of_a_proxy(scene: Scene, open_as: OpenAs) -> None:
    scene.table("below")
    with scene.served(root_path="/a/b") as url, scene.runner.holding():
        assert url.rstrip("/").endswith("/a/b")
        person = open_as(Role.OPERATOR, url=url)
        page = live(person.page(""))
        page.keyboard.press("/")
        page.keyboard.type("db.events")
        page.locator("#found a").click()
        page.wait_for_url(re.compile(r"/a/b/tables/of\?"))
        (started,) = scene.export("below", "1")
        page.goto(person.at(f"processes/{started}"))
        live(page)
        expect(page.locator(STATE)).to_have_text("running")
        page.get_by_role("link", name="Cancel…").click()
        page.get_by_role("dialog").get_by_role("button", name="Cancel", exact=True).click()
        page.wait_for_url(re.compile(f"/a/b/processes/{started}"))
        live(page)
        expect(page.locator(STATE)).to_have_text("cancelled")
        assert is_same(page)
        person.context.close()


def test_seven_tabs_have_one_stream(scene: Scene, open_as: OpenAs) -> None:
    scene.table("seven")
    person = open_as()
    streams: list[str] = []

    def asked(request: Request) -> None:
        if "/events/stream" in request.url:
            streams.append(request.url)

    person.context.on("request", asked)
    with scene.runner.holding():
        (started,) = scene.export("seven", "1")
        tabs = [live(person.page(f"processes/{started}")) for _ in range(7)]
        for tab in tabs:
            expect(tab.locator(STATE)).to_have_text("running")
        assert len(streams) == 1
        tabs.pop(0).close()  # it had the stream: another takes it over
        for tab in tabs:
            live(tab)
    for tab in tabs:
        expect(tab.locator(STATE)).to_have_text("completed")
        assert is_same(tab)
    assert len(streams) == 2


def test_who_is_signed_out_is_told(scene: Scene, open_as: OpenAs) -> None:
    person = open_as()
    person.give_cookie(scene.new_session(Role.OPERATOR, name="soon-revoked"))
    page = live(person.page("processes"))
    scene.perform("token_revoke", names=["soon-revoked"])
    # A server remembers a session for seconds, and asks every ten whether the stream's is still good.
    expect(page.locator("#status")).to_have_text("signed out: reload", timeout=60_000)
    page.locator("#status button").click()
    expect(page.get_by_role("link", name="Sign in")).to_be_visible()  # on this host everybody may read


def test_what_somebody_reads_is_not_pushed_away(scene: Scene, open_as: OpenAs) -> None:
    scene.table("pushed")
    page = live(open_as().page("processes"))
    row = page.locator("tbody tr").first
    link = row.locator("a.id")
    name = link.inner_text()
    link.focus()
    (started,) = scene.export("pushed", "1")
    scene.finish([started])
    status = page.locator("#status button")
    expect(status).to_have_text("1 new: show")
    expect(page.locator("tbody tr").first.locator("a.id")).to_have_text(name)
    status.click()
    expect(page.locator(f"#p-{started}")).to_be_visible()
    expect(page.locator("#status")).to_have_text("live")
    expect(page.locator(f"#p-{name}")).to_be_visible()
    assert is_same(page)


def test_selected_text_stays_until_it_is_let_go(scene: Scene, open_as: OpenAs) -> None:
    scene.table("selected")
    person = open_as()
    with scene.runner.holding():
        (started,) = scene.export("selected", "1")
        page = live(person.page(f"processes/{started}"))
        expect(page.locator(STATE)).to_have_text("running")
        page.evaluate("() => getSelection().selectAllChildren(document.querySelector('h1 .id'))")
    expect(page.locator("#status")).to_have_text("changes wait: show")
    expect(page.locator(STATE)).to_have_text("running")
    assert page.evaluate("() => getSelection().toString()") == started
    page.evaluate("() => getSelection().removeAllRanges()")
    expect(page.locator(STATE)).to_have_text("completed")
    expect(page.locator("#status")).to_have_text("live")
    assert is_same(page)


# In place of the browser's: the test says when it opens, fails and speaks. Fetches of the page are counted, and answered.
FAKE = """
window.streams = []; window.fetched = []; window.answer = () => Promise.reject(new Error("no server"));
window.fetch = (url, options) => { window.fetched.push(String(url)); return window.answer(url, options); };
window.EventSource = class extends EventTarget {
  constructor(url) { super(); this.url = String(url); window.streams.push(this); setTimeout(() => this.onopen?.()); }
  close() { this.closed = true; }
};
window.tell = (name, data, id = "") => {
  const event = new MessageEvent(name, { data: JSON.stringify(data), lastEventId: id });
  window.streams.at(-1).dispatchEvent(event);
};
window.pages = (content, version) => { window.answer = () => Promise.resolve(new Response(content, { headers: { "X-Calve-Version": version, "Server-Timing": "store;dur=10" } })); };
"""
VERSION = re.findall(r'data-version="([^"]+)"', main(""))[0]


def fake(open_as: OpenAs, content: str) -> Page:
    return fake_tab(open_as(), content)


def fake_tab(person: Person, content: str) -> Page:
    page = person.context.new_page()
    page.add_init_script(FAKE)
    page.clock.install(time=1_800_000_000)
    fixture_page(person, content, stream="v1/events/stream", wants='{"all": true}', page=page)
    page.evaluate(
        "([html, version]) => window.pages(html, version)", [main(content, '{"all": true}'), VERSION]
    )
    page.clock.run_for(50)
    expect(page.locator("#status")).to_have_text("live")
    return page


EVENTS = """(turn) => { for (let n = 0; n < 100; n++) window.tell("process",
  { event: {}, process: { id: "x" + turn + n, kind: "export", state: "COMPLETED", tasks: { done: n, total: 100 } } }, "s." + (turn * 1000 + n) + ".0"); }"""


def rows(turn: int) -> str:
    made = "".join(
        f'<tr id="p-{turn % 7 + one}"><td class="pick"><input type="checkbox" value="{turn + one}"></td>'
        f'<td><a href="#">{turn} {one}</a></td><td><time datetime="2026-11-16T11:00:00Z">an hour</time></td></tr>'
        for one in range(50)
    )
    return f"<form><table><tbody>{made}</tbody></table><p data-chosen></p></form>"


def counted(page: Page) -> int:
    return int(page.evaluate("() => window.fetched.length"))


def becomes(page: Page, script: str, value: object) -> None:
    """What the browser does in its own time, also where the page's clock stands."""
    end = time.monotonic() + MILLISECONDS / 1000
    while (found := page.evaluate(script)) != value:
        assert time.monotonic() < end, found
        page.wait_for_timeout(50)


def run_until(page: Page, status: str) -> None:
    """Minutes of the page's own time."""
    for _ in range(300):
        if page.locator("#status").inner_text().strip() == status:
            return
        page.clock.run_for(1000)
    raise AssertionError(page.locator("#status").inner_text())


def test_a_thousand_events_a_second_are_few_requests(open_as: OpenAs) -> None:
    rows = "".join(f'<tr id="p-{one}"><td><a href="#">{one}</a></td></tr>' for one in range(50))
    page = fake(open_as, f"<table><tbody>{rows}</tbody></table>")
    began = page.evaluate("() => Date.now()")
    for second in range(10):
        page.evaluate(
            """(second) => { for (let n = 0; n < 1000; n++) window.tell("process",
              { event: {}, process: { id: "x" + (second * 1000 + n), kind: "export", state: "RUNNING", tasks: { done: n, total: 1000 } } }, "s." + (second * 1000 + n) + ".0"); }""",
            second,
        )
        page.clock.run_for(1000)
    passed = (page.evaluate("() => Date.now()") - began) / 1000  # the page's clock goes on between our steps
    assert 2 <= counted(page) <= passed / 2 + 1


def test_a_service_that_goes_down_makes_the_page_load_again(open_as: OpenAs) -> None:
    page = fake(open_as, "<p>here</p>")
    page.clock.run_for(5000)
    assert counted(page) == 0
    page.evaluate("""() => window.tell("down", { services: ["catalog:lake"] })""")
    page.clock.run_for(5000)
    assert counted(page) == 1


def test_a_page_that_is_hidden_rests_and_comes_back(open_as: OpenAs) -> None:
    page = fake(open_as, "<p>here</p>")
    hide = "(is) => { Object.defineProperty(document, 'hidden', { value: is, configurable: true }); document.dispatchEvent(new Event('visibilitychange')); }"
    page.evaluate(hide, True)
    assert not page.evaluate("() => window.streams.at(-1).closed"), "it rests after five seconds"
    page.clock.run_for(6000)
    becomes(page, "() => window.streams.at(-1).closed", True)
    expect(page.locator("#status")).to_have_text("paused")
    before = counted(page)
    page.clock.run_for(3_600_000)
    assert counted(page) == before
    page.evaluate(hide, False)
    page.clock.run_for(500)
    expect(page.locator("#status")).to_have_text("live")
    assert counted(page) == before + 1


def test_a_machine_that_slept_loads_the_page_and_hears_from_there(open_as: OpenAs) -> None:
    page = fake(open_as, "<p>here</p>")
    streams = page.evaluate("() => window.streams.length")
    page.clock.fast_forward(8 * 3_600_000)
    page.clock.run_for(1500)
    becomes(page, "() => window.streams.length", streams + 1)
    assert counted(page) == 1
    expect(page.locator("#status")).to_have_text("live")


def test_a_server_that_is_away_for_minutes_is_asked_seldom(open_as: OpenAs) -> None:
    page = fake(open_as, "<p>here</p>")
    page.evaluate(
        "() => { window.answer = () => Promise.reject(new Error('away')); window.streams.at(-1).onerror(); }"
    )
    expect(page.locator("#status")).to_have_text("reconnecting")
    for _ in range(60):
        page.clock.run_for(10_000)
    assert 10 <= counted(page) <= 60  # in ten minutes
    page.evaluate(
        "([html, version]) => window.pages(html, version)", [main("<p>again</p>", '{"all": true}'), VERSION]
    )
    run_until(page, "live")
    expect(page.locator("main")).to_have_text("again")


def test_a_stream_that_is_held_back_becomes_looks_at_intervals(open_as: OpenAs) -> None:
    """A proxy that buffers: it opens, and nothing comes."""
    page = fake(open_as, "<p>here</p>")
    run_until(page, "live, every 10 s")
    while page.evaluate("() => window.streams.at(-1).closed"):
        page.clock.run_for(500)
    page.evaluate("() => window.tell('ping', {}, 's.1.0')")
    page.clock.run_for(500)
    expect(page.locator("#status")).to_have_text("live")


def test_a_tab_that_hangs_loses_the_stream(open_as: OpenAs) -> None:
    person = open_as()
    first, second = fake_tab(person, "<p>first</p>"), fake_tab(person, "<p>second</p>")
    assert [len(one.evaluate("() => window.streams")) for one in (first, second)] == [1, 0]
    # The first one has the stream and says nothing more.
    first.evaluate("() => { BroadcastChannel.prototype.postMessage = () => {} }")
    second.clock.run_for(90_000)
    becomes(second, "() => window.streams.length", 1)
    becomes(first, "() => window.streams.at(-1).closed", True)
    expect(second.locator("#status")).to_have_text("live")
    second.evaluate("() => window.tell('stalled', {}, 's.7.0')")
    second.clock.run_for(500)
    expect(first.locator("#status")).to_have_text("the store does not answer")


def test_without_locks_each_tab_has_a_stream(open_as: OpenAs) -> None:
    """Browsers have locks only where the connection is secure."""
    person = open_as()
    person.context.add_init_script(
        "Object.defineProperty(Navigator.prototype, 'locks', { value: undefined })"
    )
    tabs = [fake_tab(person, "<p>here</p>") for _ in range(2)]
    assert [one.evaluate("() => window.streams.length") for one in tabs] == [1, 1]
    for one in tabs:
        one.evaluate(
            "([html, version]) => window.pages(html, version)",
            [main("<p>newer</p>", '{"all": true}'), VERSION],
        )
        one.evaluate("() => window.tell('reset', { cursor: 's.5.0' }, 's.5.0')")
        one.clock.run_for(3000)
        expect(one.locator("main")).to_have_text("newer")


def test_a_page_that_is_open_over_night_keeps_nothing(open_as: OpenAs) -> None:
    page = fake(open_as, rows(0))
    session = page.context.new_cdp_session(page)

    def hour(number: int) -> None:
        """What happens in one: events, and the page changes with each look. The hours are short."""
        for minute in range(30):
            page.evaluate(
                "([html, version]) => window.pages(html, version)",
                [main(rows(number * 60 + minute), '{"all": true}'), VERSION],
            )
            page.evaluate(EVENTS, number * 60 + minute)
            page.clock.run_for(5_000)

    def least() -> dict[str, float]:
        """What is in use. One collection does not free all that nobody holds: the least of several counts."""
        counts = []
        for _ in range(10):
            page.clock.run_for(100)
            session.send("HeapProfiler.collectGarbage")
            metrics = session.send("Performance.getMetrics")["metrics"]
            counts.append({one["name"]: one["value"] for one in metrics})
        return {name: min(count[name] for count in counts) for name in counts[0]}

    session.send("Performance.enable")
    hour(1)
    before = least()
    for number in range(2, 6):
        hour(number)
    after = least()
    assert counted(page) > 100
    # A page that kept a row with each of its 120 looks would have 800 more nodes.
    assert after["Nodes"] <= before["Nodes"] + 300
    assert after["JSEventListeners"] <= before["JSEventListeners"] + 20
    assert after["JSHeapUsedSize"] <= before["JSHeapUsedSize"] * 1.5


def test_another_version_asks_for_a_reload(open_as: OpenAs) -> None:
    page = fake(open_as, "<p>here</p>")
    page.evaluate("(html) => window.pages(html, '99.0')", main("<p>newer</p>", '{"all": true}'))
    page.evaluate("() => window.tell('reset', { cursor: 's.5.0' }, 's.5.0')")
    page.clock.run_for(3000)
    expect(page.locator("#status")).to_have_text("Calve was upgraded: reload")
    expect(page.locator("main")).to_have_text("here")
    assert page.evaluate("() => window.streams.at(-1).closed")
