"""The instruments of one program, in a registry of its own. `prometheus_client` is used in this room only.

Labels are bounded: codes of errors are ours, and beyond `CODES` of them counted as `other`.
"""

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.registry import Collector

from calve import __version__
from calve.metrics.names import METRICS, Metric, MetricType, Told

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
CODES = 200
STORE_UP = "calve_store_up"  # the collector's
disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each, that nobody asks for
Instrument = Counter | Gauge | Histogram


class Meters:
    """`told`: which metrics this program has."""

    def __init__(self, *told: Told) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._made: dict[str, Instrument] = {}
        for metric in METRICS:
            if metric.told not in (Told.PROGRAM, *told) or metric.name == STORE_UP:
                continue
            self._made[metric.name] = _instrument(metric, self.registry)
        self._codes: set[str] = set()
        self.set("calve_build_info", 1, version=__version__)

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        made = self._labelled(name, labels)
        assert isinstance(made, Counter)
        made.inc(amount)

    def observe(self, name: str, seconds: float, **labels: str) -> None:
        made = self._labelled(name, labels)
        assert isinstance(made, Histogram)
        made.observe(max(seconds, 0.0))

    def set(self, name: str, value: float, **labels: str) -> None:
        made = self._labelled(name, labels)
        assert isinstance(made, Gauge)
        made.set(value)

    def follow(self, name: str, value: Callable[[], float], **labels: str) -> None:
        """A gauge that is asked at each scrape. It must not block."""
        made = self._labelled(name, labels)
        assert isinstance(made, Gauge)
        made.set_function(value)

    def replace(self, name: str, values: Iterable[tuple[Mapping[str, str], float]]) -> None:
        """All series of a gauge: what is not among them is gone."""
        made = self._made[name]
        assert isinstance(made, Gauge)
        made.clear()
        for labels, value in values:
            made.labels(**labels).set(value)

    def code(self, code: str) -> str:
        """The label of an error's code."""
        if code in self._codes or len(self._codes) < CODES:
            self._codes.add(code)
            return code
        return "other"

    def collect_also(self, collector: Collector) -> None:
        self.registry.register(collector)

    def text(self) -> bytes:
        """What a scrape answers."""
        return generate_latest(self.registry)

    def _labelled(self, name: str, labels: Mapping[str, str]) -> Instrument:
        made = self._made[name]
        return made.labels(**labels) if labels else made


def _instrument(metric: Metric, registry: CollectorRegistry) -> Instrument:
    match metric.type:
        case MetricType.COUNTER:
            return Counter(metric.name, metric.about, metric.labels, registry=registry)
        case MetricType.GAUGE:
            return Gauge(metric.name, metric.about, metric.labels, registry=registry)
        case MetricType.HISTOGRAM:
            return Histogram(
                metric.name, metric.about, metric.labels, buckets=metric.buckets, registry=registry
            )
