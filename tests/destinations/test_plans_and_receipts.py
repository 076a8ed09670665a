import json
from dataclasses import MISSING, fields
from pathlib import Path

import pytest

from calve.destination import plan as plans
from calve.destination.plan import ExportPlan
from calve.destination.receipt import FileReceipt, Receipt

FIXTURES = Path(__file__).parent.parent / "fixtures" / "plans"


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*.json")), ids=lambda path: path.stem)
def test_L12_a_plan_of_an_older_version_is_read(path: Path) -> None:
    plan = ExportPlan.from_json(path.read_text())
    assert plan.rows == 3_000_008_192
    assert plan.tasks[1][1].part == 1
    assert plan.parts[0].disk == "default"
    assert plan.destination.identifier == ("ns", "events")
    assert plan.columns[1].select == "`id`::Decimal(20,0)"
    assert plan.version == 1
    assert ExportPlan.from_json(plan.to_json()) == plan


def test_L12_fields_that_did_not_exist_then_get_defaults() -> None:
    plan = ExportPlan.from_json((FIXTURES / "v1-oldest.json").read_text())
    assert (plan.replace, plan.memory_mb, plan.notes) == (False, 1000, ())
    assert (plan.parts[0].content, plan.keys[0].rows, plan.destination.spec) == ("", 0, ())
    assert plan.destination.properties == {}


def test_L12_no_field_was_added_to_version_1_without_a_default() -> None:
    """What `v1-oldest.json` lacks must have a default for ever; a new required field breaks here."""
    data = json.loads((FIXTURES / "v1-oldest.json").read_text())
    samples = {
        plans.ExportPlan: data,
        plans.Relation: data["relation"],
        plans.PartPlan: data["parts"][0],
        plans.ColumnPlan: data["columns"][0],
        plans.KeyPlan: data["keys"][0],
        plans.DestinationPlan: data["destination"],
        plans.Slice: data["tasks"][0][0],
    }
    for kind, sample in samples.items():
        required = {
            item.name for item in fields(kind) if item.default is MISSING and item.default_factory is MISSING
        }
        assert required <= set(sample), kind


def test_a_plan_of_a_newer_version_keeps_what_is_known() -> None:
    data = json.loads((FIXTURES / "v1-export.json").read_text())
    data["invented_later"] = {"x": 1}
    data["parts"][0]["invented_later"] = 1
    data["destination"]["invented_later"] = 1
    expected = ExportPlan.from_json((FIXTURES / "v1-export.json").read_text())
    assert ExportPlan.from_json(json.dumps(data)) == expected


def test_a_receipt_round_trips_with_large_counters_and_typed_keys() -> None:
    file = FileReceipt(
        path="s3://bucket/warehouse/ns/events/data/calve-a-1-1-1.parquet",
        rows=2**33,
        bytes=2**40,
        partition=(648, None, "a/../\x00"),
        column_sizes={1: 2**32},
        value_counts={1: 2**33},
        null_counts={3: 0},
        nan_counts={4: 1},
        lower_bounds={1: "00ff"},
        upper_bounds={1: "ff00"},
        split_offsets=(4, 2**32),
        sort_order_id=1,
        sha256="ab" * 32,
    )
    receipt = Receipt(
        process_id="a",
        task=1,
        attempt=2,
        rows=2**33,
        bytes=2**41,
        files=(file,),
        checksums={"id": "123"},
        seconds=1.5,
    )
    assert Receipt.from_json(receipt.to_json()) == receipt


def test_a_receipt_of_another_version_is_read() -> None:
    text = json.dumps(
        {
            "process_id": "a",
            "task": 1,
            "attempt": 1,
            "rows": 1,
            "bytes": 2,
            "files": [{"path": "p", "rows": 1, "bytes": 2, "later": 1}],
            "later": 1,
        }
    )
    receipt = Receipt.from_json(text)
    assert receipt.files == (FileReceipt(path="p", rows=1, bytes=2),)
