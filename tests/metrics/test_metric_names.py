"""The dashboard, the rules and the page of the docs speak of metrics that exist, with the labels they have."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from calve.metrics.meters import Meters
from calve.metrics.names import BY_NAME, METRICS, Metric, Told

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "prometheus" / "calve.rules.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "calve.json"
PAGE = ROOT / "docs" / "metrics.md"
SERIES = {series: metric for metric in METRICS for series in metric.series}
_OWN_LABELS = {"le", "job", "instance"}


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def queries() -> Iterator[tuple[str, str]]:
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"]
    for rule in rules():
        yield rule["alert"], rule["expr"]


def used(query: str) -> Iterator[tuple[Metric, set[str]]]:
    """Each metric of a query, and the labels that the query expects of it."""
    grouped = {
        label.strip()
        for found in re.findall(r"\b(?:by|on) \(([^)]*)\)", query)
        for label in found.split(",")
        if label.strip()
    }
    for name, selected in re.findall(r"\b(calve_\w+)(?:\{([^}]*)\})?", query):
        labels = set(re.findall(r"(\w+)\s*[=!]", selected))
        yield SERIES[name], labels | (grouped - _OWN_LABELS)


@pytest.mark.parametrize(("title", "query"), list(queries()))
def test_a_query_asks_for_metrics_and_labels_that_exist(title: str, query: str) -> None:
    found = list(used(query))
    assert found, f"{title} asks for nothing of ours"
    for metric, labels in found:
        assert labels <= set(metric.labels), (title, metric.name, labels)


def test_every_metric_is_on_the_dashboard() -> None:
    shown = {metric for title, query in queries() for metric, _ in used(query)}
    assert {metric.name for metric in METRICS} == {metric.name for metric in shown}


def test_the_page_lists_every_metric_with_its_labels_and_every_rule() -> None:
    text = PAGE.read_text()
    listed = dict(re.findall(r"^\| `(calve_\w+)(?:\{([\w,]*)\})?` \|", text, re.MULTILINE))
    assert {name: tuple(filter(None, labels.split(","))) for name, labels in listed.items()} == {
        metric.name: metric.labels for metric in METRICS
    }
    assert set(re.findall(r"^\| `(Calve\w+)` \|", text, re.MULTILINE)) == {rule["alert"] for rule in rules()}


def test_programs_have_the_instruments_of_their_kind_and_no_others() -> None:
    for told in (Told.WORKER, Told.SERVER):
        names = {
            family.name for family in Meters(told).registry.collect() if family.name.startswith("calve_")
        }
        wanted = {metric for metric in METRICS if metric.told in (Told.PROGRAM, told)}
        assert names == {metric.name.removesuffix("_total") for metric in wanted} - {"calve_store_up"}


def test_no_label_can_hold_an_id_or_free_text() -> None:
    labels = {label for metric in METRICS for label in metric.labels}
    assert labels == {
        "version", "call", "outcome", "kind", "code", "state", "route", "method", "status", "service_type", "reason",
        "type", "table",
    }  # fmt: skip
    assert [
        name for name, metric in BY_NAME.items() if "table" in metric.labels and metric.told is not Told.STORE
    ] == []
