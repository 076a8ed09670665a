"""A real Prometheus scrapes a real server, with the rules of `deploy/`."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from calve.metrics.names import METRICS, Told
from support.prometheus import Prometheus, prometheus
from support.served import Served

pytestmark = [pytest.mark.programs, pytest.mark.services]

ROOT = Path(__file__).parents[2]
SETTINGS = """
[source.main]
url = "chdb://clickhouse"
[expect.events]
table = "main:db.events"
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    made = Served(tmp_path_factory.mktemp("scraped"), settings=SETTINGS)
    yield made
    made.close()


@pytest.fixture(scope="module")
def scraper(served: Served, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    folder = tmp_path_factory.mktemp("prometheus")
    rules = ROOT / "deploy" / "prometheus" / "calve.rules.yml"
    address = served.url.removeprefix("http://")
    with prometheus(folder, {"calve": address}, rules) as made:
        yield made


def test_it_reads_what_the_server_tells(scraper: Prometheus) -> None:
    assert [value for _, value in scraper.wait_for("calve_store_up")] == [1]
    ((labels, value),) = scraper.values("calve_expected")
    assert (labels["kind"], labels["table"], value) == ("export", "main:db.events", 1)
    scraper.wait_for('calve_http_requests_total{route="/metrics",status="200"} > 0')
    scraper.wait_for('calve_store_call_seconds_count{call="totals",outcome="ok"} > 0')


def test_it_runs_the_rules_and_one_of_them_waits_for_work_that_never_ran(scraper: Prometheus) -> None:
    scraper.wait_for('ALERTS{alertname="CalveNeverRan",alertstate="pending",table="main:db.events"}')
    (group,) = scraper.ask("rules")["groups"]
    assert [rule["name"] for rule in group["rules"] if rule["health"] == "err"] == []
    assert len(group["rules"]) > 10


def test_names_and_labels_are_those_of_the_list_and_nothing_else_is_told(served: Served) -> None:
    with served.client("") as client:
        answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    wanted = {metric.name: set(metric.labels) for metric in METRICS if metric.told is not Told.WORKER}
    for family in text_string_to_metric_families(answer.text):
        if family.name.startswith("process_"):
            continue
        name = family.name if family.name in wanted else f"{family.name}_total"
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == wanted[name], sample


def test_a_path_that_nobody_serves_is_one_series_however_often_it_is_spelled(served: Served) -> None:
    with served.client("") as client:
        for n in range(3):
            client.get(f"/nowhere/{n}")
        client.get("/v1/processes/abcdefghjkmnp/why")
        text = client.get("/metrics").text
    assert 'route="other",status="404"} 3.0' in text.replace('method="GET",', "")
    assert 'route="/v1/processes/{ids}/why"' in text
    assert "nowhere" not in text and "abcdefghjkmnp" not in text


def test_a_wrong_token_is_refused_and_counted(served: Served) -> None:
    with served.client("calve_x_" + "A" * 43) as client:
        assert client.get("/metrics").status_code == 401
    with served.client("") as client:
        assert 'calve_auth_failures_total{reason="token_wrong"} 1.0' in client.get("/metrics").text


def test_selects_and_streams_are_told_of(served: Served) -> None:
    with served.client("") as client:
        assert client.get("/", params={"query": "SELECT count() FROM calve.processes"}).text == "0\n"
        assert client.get("/", params={"query": "SELECT file('x')"}).status_code >= 400
        with client.stream("GET", "/v1/events/stream") as stream:
            lines = stream.iter_lines()  # held: the stream ends with it
            next(lines)
            text = httpx.get(f"{served.url}/metrics", trust_env=False).text
    assert 'calve_select_seconds_count{outcome="done"} 1.0' in text
    assert 'calve_select_seconds_count{outcome="refused"} 1.0' in text
    assert [line for line in text.splitlines() if line.startswith("calve_streams")] == ["calve_streams 1.0"]
