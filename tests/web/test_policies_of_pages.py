"""Policies on pages: where partitions stand by what was last seen, who may do what, and however many there are."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from calve.app.policies.look import WHAT, PartitionLook, TableLook
from calve.model.access import Asked, Role
from calve.model.seen import Sighting
from calve.model.tier import Hold, new_hold_id
from support.html import Html
from web.conftest import SETTINGS, Place, page
from web.test_forms import press

RULES = """
[policy.events]
source = "main:db.events"
to = "lake.ns.events"
export_after = "3d"
quiet = "0s"
release = "quarantine"
[policy.idle]
source = "main:db.idle_*"
to = "lake.ns.{{table}}"
[backup.schedule.nightly]
every = "1d"
at = "02:00"
tables = "db.*"
"""
MANY = 1000


@pytest.fixture(scope="module")
def ruled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    made = Place(tmp_path_factory.mktemp("ruled"), looks=False, settings=SETTINGS + RULES)
    with made.calve, made.served() as made.url:
        yield made


def seen(place: Place, partitions: tuple[PartitionLook, ...]) -> None:
    now = datetime.now(UTC)
    table = TableLook(
        database="db", table="events", source="main:db.events", destination="lake.ns.events", identity="i", uuid="u",
        looked_at=now, partitions=partitions,
    )  # fmt: skip
    look = Sighting(subject="events", what=WHAT, summary='{"tables": 1}', seen_by="test")
    place.store.put_sighting(look, [table.to_json()])
    # What people say shows at once, and everything with it.
    place.store.add_hold(
        Hold(
            id=new_hold_id(),
            name="main:db.other",
            identity="",
            uuid="",
            partition="",
            who="ann",
            reason="other",
        ),
        Asked(who="ann", verb="hold_add"),
    )


def day(number: int) -> PartitionLook:
    """The day that ended so many days ago."""
    end = datetime.now(UTC) - timedelta(days=number)
    return PartitionLook(
        id=f"p{number}", value=f"day {number}", rows=10, bytes=100, content="c", changed_at=end,
        lower=end - timedelta(days=1), closed_at=end,
    )  # fmt: skip


@pytest.fixture
def days(ruled: Place) -> Place:
    """Two that are due, and two that are soon."""
    seen(ruled, tuple(day(number) for number in (9, 5, 2, 1)))
    return ruled


def test_a_page_says_where_partitions_stand_and_what_comes(days: Place) -> None:
    with days.browser() as client:
        policies = {one["name"]: one for one in client.get("/policies.json").json()["policies"]}
        one = client.get("/policies/of.json?name=events").json()["policy"]
        html = page(client, "/policies")
        detail = page(client, "/policies/of?name=events")
    assert policies["events"]["states"] == {"DUE": 2, "HOT": 2} and policies["idle"]["states"] == {}
    assert [each["partition"] for each in one["forecast"]] == ["p9", "p5", "p2", "p1"]
    assert sum(each["starts"] for each in one["days"]) == 4 and len(one["days"]) == 31
    assert one["days"][0]["starts"] == 2, "what is due begins today"
    assert one["asks"], "nobody has approved it"
    assert "asks for approval" in html.text and "not seen yet" in html.text
    assert "calve policy approve --dry-run events" in detail.text


def test_an_approval_shows_what_would_leave_and_is_an_admins(days: Place) -> None:
    with days.signed_in(Role.OPERATOR) as operator:
        html = page(operator, "/confirm/policy_approve?name=events")
        assert "Needs admin." in html.text and "No partition is proven yet" in html.text
    with days.signed_in(Role.ADMIN) as admin:
        assert press(admin, "/confirm/policy_approve?name=events").status_code == 303
        assert "asks for approval" not in page(admin, "/policies").text
    assert {one.policy for one in days.store.approvals()} == {"events"}


def test_an_operator_pauses_and_resumes_policies_and_schedules(days: Place) -> None:
    with days.signed_in(Role.OPERATOR) as operator:
        for kind, name, shown in (("policy", "idle", "/policies"), ("schedule", "nightly", "/backups")):
            answer = press(operator, f"/confirm/{kind}_pause?name={name}", reason="a migration")
            assert answer.status_code == 303
            assert "paused" in page(operator, shown).text
            assert any(one.source == name and one.reason == "a migration" for one in days.store.halts())
            form = page(operator, shown).form(f"do/{kind}_resume").filled()
            assert operator.post(f"/do/{kind}_resume", data=form).status_code == 303
            assert not [one for one in days.store.halts() if one.source == name]


def test_a_hold_is_shown_and_released_by_an_admin(days: Place) -> None:
    hold = Hold(
        id=new_hold_id(),
        name="main:db.events",
        identity="i",
        uuid="u",
        partition="p9",
        who="ann",
        reason="case 7",
    )
    days.store.add_hold(hold, Asked(who="ann", verb="hold_add"))
    with days.signed_in(Role.OPERATOR) as operator:
        for address in ("/policies", "/policies/of?name=events"):
            assert "case 7" in page(operator, address).text
        assert "Needs admin." in page(operator, f"/confirm/hold_release?id={hold.id}").text
    with days.signed_in(Role.ADMIN) as admin:
        assert press(admin, f"/confirm/hold_release?id={hold.id}").status_code == 303
        assert "case 7" not in page(admin, "/policies").text


def test_a_drop_is_typed(days: Place) -> None:
    address = "/confirm/policy_drop?table=db.events&partitions=p9&approve=00"
    with days.signed_in(Role.ADMIN) as admin:
        answer = press(admin, address, typed="p8")
        assert answer.status_code == 409 and "nothing was done" in answer.text
        assert Html(answer.text).form("do/policy_drop").filled()["partitions"] == ["p9"]


def test_a_policy_of_many_partitions_has_a_small_page(ruled: Place) -> None:
    seen(ruled, tuple(day(number) for number in range(MANY)))
    with ruled.browser() as client:
        answer = client.get("/policies/of?name=events")
        one = json.loads(client.get("/policies/of.json?name=events").text)["policy"]
    assert answer.status_code == 200
    assert one["forecast_total"] > len(one["forecast"]) == 200
    assert len(answer.content) < 200_000


@pytest.mark.parametrize("address", ["/policies/of", "/policies/of?name=nobody"])
def test_a_policy_that_is_not_there_is_said(ruled: Place, address: str) -> None:
    with ruled.browser() as client:
        answer: httpx.Response = client.get(address)
    assert answer.status_code in (400, 404) and 'class="' in answer.text
