"""Whatever stands in a plan, a receipt, a note, a table's property, a commit object, a manifest or an index: it is read, or
there is one clear error. These are data from outside: whoever can write to the storage or the catalog can write anything."""

import copy
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from calve.archive.manifest import Manifest
from calve.archive.parts import PartIndex
from calve.destination.plan import ExportPlan
from calve.destination.receipt import Receipt, recount, sound
from calve.iceberg.publish import marks
from calve.model.errors import CalveError, DamagedError, RefusedError
from calve.parquet import commits

FIXTURES = Path(__file__).parents[1] / "fixtures" / "plans"
PLAN = json.loads((FIXTURES / "v1-export.json").read_text())
RECEIPT = {
    "process_id": "p", "task": 0, "attempt": 1, "rows": 2, "bytes": 10, "seconds": 1.0, "spent": {"read": 0.5},
    "files": [{"path": "s3://b/calve-p-0-1-0.parquet", "rows": 2, "bytes": 10, "partition": [1],
               "lower_bounds": {"1": "00"}, "split_offsets": [4]}],
}  # fmt: skip
PROPERTY = {"process": "p", "snapshot": "7", "content": "c1-a", "input": ["i", "1", ""], "rows": 2, "files": 1,
            "tasks": "0-3,7", "adopted": {"q": "1"}, "sequence": 3, "top": 9}  # fmt: skip
COMMIT = {"key": "ab", "generation": 1, "process": "p", "input": ["i", "1", ""], "rows": 2, "bytes": 3,
          "files": [{"path": "s3://b/x.parquet", "rows": 2, "bytes": 3, "sha256": "", "partition": [1]}]}  # fmt: skip
INDEX = {
    "address": "a" * 40,
    "files": [{"name": "data.bin", "bytes": 3, "sha256": "x", "object": 0, "data": ""}],
}
MANIFEST = {"name": "b", "number": 1, "process_id": "p", "location_id": "l", "source": "main", "created_at": "2026-01-01T00:00:00+00:00",
            "calve_version": "1", "tables": [], "databases": [], "order": [], "schemas": []}  # fmt: skip
ODD = st.sampled_from(
    [None, True, False, 0, -1, 1e308, float("inf"), float("nan"), 2**80, "", "..", "/", "\0", "x" * 1000, "0-99999999999",
     "9-0", "1,,2", [], [[]], ["a"], ["a"] * 4, {}, {"a": {}}, "\ud800", [None]]
)  # fmt: skip


def places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = (
        document.items()
        if isinstance(document, dict)
        else enumerate(document)
        if isinstance(document, list)
        else ()
    )
    for key, value in items:
        yield from places(value, (*path, key))


def damaged(draw: Callable[..., Any], document: Any) -> Any:
    """One or two places of it hold something else, or nothing."""
    made = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 2))):
        path = draw(st.sampled_from(list(places(made))))
        if not path:
            made = copy.deepcopy(draw(ODD))
            continue
        holder = made
        for key in path[:-1]:
            holder = holder[key]
        if isinstance(holder, dict) and draw(st.booleans()):
            del holder[path[-1]]
        else:
            holder[path[-1]] = copy.deepcopy(draw(ODD))
    return made


def plan(text: str) -> None:
    ExportPlan.from_json(text)


def receipt(text: str) -> None:
    found = Receipt.from_json(text)
    whole = ExportPlan.from_json(json.dumps(PLAN))
    assert isinstance(sound(whole, [found]), list)
    recount(whole, [found])


def note(text: str) -> None:
    marks.read_note(text)


def key_property(text: str) -> None:
    marks.read_property("ab", text)


def commit(text: str) -> None:
    found = commits.parse("s3://b/_calve/commits/ab.1.json", text.encode("utf-8", "replace"))
    assert found.export.key_hash == found.key
    commits.refuse_foreign("s3://b", [found])


def index(text: str) -> None:
    PartIndex.from_json(text)


def manifest(text: str) -> None:
    """With a checksum that holds."""
    data = json.loads(text)
    body = json.dumps(data, separators=(",", ":"), sort_keys=True)
    Manifest.from_json(
        json.dumps({"sha256": hashlib.sha256(body.encode()).hexdigest(), "manifest": data}), "b@1"
    )


DOCUMENTS: dict[Callable[[str], None], Any] = {
    plan: PLAN,
    receipt: RECEIPT,
    note: {"sent": [{"snapshot_id": "7", "timestamp_ms": 1, "manifests": 1}]},
    key_property: PROPERTY,
    commit: COMMIT,
    index: INDEX,
    manifest: MANIFEST,
}


@pytest.mark.parametrize("read", DOCUMENTS, ids=lambda read: read.__name__)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_damaged_document_is_read_or_is_one_clear_error(
    read: Callable[[str], None], data: st.DataObject
) -> None:
    try:
        read(json.dumps(damaged(data.draw, DOCUMENTS[read])))
    except CalveError as error:
        assert error.message


@pytest.mark.parametrize("read", DOCUMENTS, ids=lambda read: read.__name__)
@pytest.mark.parametrize(
    "text",
    ["", "{", "[" * 5000, '"\\ud800"', "nul", "\0"],
    ids=["empty", "open", "deep", "half a letter", "cut", "zero"],
)
def test_what_is_no_document_is_one_clear_error(read: Callable[[str], None], text: str) -> None:
    if read is manifest:
        with pytest.raises(CalveError):
            Manifest.from_json(text, "b@1")
    elif read is key_property:
        assert marks.read_property("ab", text) is None
    elif text or read is not note:  # nothing noted is no damage
        with pytest.raises(CalveError):
            read(text)


@pytest.mark.parametrize("tasks", ["0-99999999999", "-5", "3-", "a", "1-2-3"])
def test_the_tasks_of_a_property_never_fill_the_memory(tasks: str) -> None:
    assert marks.read_property("ab", json.dumps(PROPERTY | {"tasks": tasks})) in (
        None,
        marks.read_property("ab", json.dumps(PROPERTY | {"tasks": "3"})),
    )


@pytest.mark.parametrize("damage", [{"input": ["i"]}, {"input": ["i", "1", "", "x"]}, {"rows": float("inf")}])
def test_a_commit_object_of_another_form_is_refused_by_name(damage: dict[str, Any]) -> None:
    with pytest.raises(RefusedError, match=r"ab\.1\.json cannot be read"):
        commit(json.dumps(COMMIT | damage))


@pytest.mark.parametrize("body", [None, [], "x", 7])
def test_a_manifest_that_is_no_object_is_damaged(body: object) -> None:
    with pytest.raises(DamagedError, match="b@1 is damaged"):
        manifest(json.dumps(body))
