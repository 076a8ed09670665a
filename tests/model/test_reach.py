"""Services by their names, and which processes a reach has."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

import pytest

from calve.model import reach
from calve.model.reach import Service, ServiceType
from calve.testing.contracts.contract import new


@pytest.mark.parametrize(
    ("made", "text", "type"),
    [
        (partial(reach.source, "main"), "source:main", ServiceType.SOURCE),
        (partial(reach.catalog, "lake"), "catalog:lake", ServiceType.CATALOG),
        (partial(reach.storage, "s3://b"), "storage:s3://b", ServiceType.STORAGE),
        (partial(reach.backup, "s3://b/p/"), "backup:s3://b/p", ServiceType.BACKUP),
        (partial(reach.spark, "local[*]"), "spark:local[*]", ServiceType.SPARK),
    ],
)
def test_a_service_is_its_type_and_its_name(
    made: Callable[[], Service], text: str, type: ServiceType
) -> None:
    service = made()
    assert service == text
    assert (service.type, service.name) == (type, text.partition(":")[2])
    assert (service.is_source, service.is_spark) == (type is ServiceType.SOURCE, type is ServiceType.SPARK)


def test_people_are_shown_services_and_no_kinds() -> None:
    found = reach.with_kinds(frozenset({"source:b", "source:a"}), ["export"])
    assert reach.without_kinds(found) == ["source:a", "source:b"]


def test_a_process_is_reached_by_needs_and_kind_and_never_if_it_is_damaged() -> None:
    needy = new(kind="export", needs=("source:a",)).accepted(
        adopted=False, now=datetime(2026, 1, 1, tzinfo=UTC)
    )
    assert reach.reaches({"source:a"}, needy)
    assert not reach.reaches({"source:b"}, needy)
    assert not reach.reaches(reach.with_kinds(frozenset({"source:a"}), ["backup"]), needy)
    assert not reach.reaches({"source:a"}, replace(needy, damaged="the column `needs`"))
