"""docs/clickhouse-server.md, "The rights it needs": its statements, read from the page, at an engine that
holds an account to them."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from served import COLUMNS, PASSWORD, WITH_UUID, Served, in_the_lake, insert

from calve.app.backups.requests import BackupReach
from calve.app.doctor.examine import examine
from calve.app.doctor.work import pins
from calve.backup import submit as backing_up
from calve.clickhouse.sql.tokens import string
from calve.destination.plan import ExportPlan
from calve.model.errors import PermanentError
from calve.model.process import Pin, PinState, Process
from calve.model.states import ProcessState
from calve.restore import submit as restoring
from support.clickhouse_front import FrontOptions, FrontUser, clickhouse_front
from support.local_runner import LocalRunner
from support.server_place import ServerPlace

pytestmark = pytest.mark.services

PAGE = Path(__file__).parents[2] / "docs" / "clickhouse-server.md"
BLOCKS = re.findall(r"^```sql\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
STATEMENTS = [re.findall(r"^([A-Z][^;]+);", block, re.MULTILINE) for block in BLOCKS]
CLONING, FREEZING, RESTORING = (
    [text.removesuffix(" TO calve") for text in texts if text.startswith("GRANT ")] for texts in STATEMENTS
)
TABLE, SYSTEM, POLICIES, PINS, MERGES, REPLICA = CLONING
FREEZE, UPDATE = FREEZING
PIN_RIGHTS = PINS.removeprefix("GRANT ").partition(" ON ")[0].split(", ")


def pins_without(right: str) -> str:
    return f"GRANT {', '.join(one for one in PIN_RIGHTS if one != right)} ON calve_pins.*"


def user_without(right: str) -> str:
    return f"without_{right.lower().replace(' ', '_')}"


ACCOUNTS = {
    "calve": CLONING,
    "reading": [TABLE, SYSTEM],
    "freezing": [TABLE, SYSTEM, POLICIES, FREEZE],
    "patching": [TABLE, SYSTEM, POLICIES, FREEZE, UPDATE],
    "backing_up": [TABLE, SYSTEM, POLICIES, FREEZE],
    "restoring": [TABLE, SYSTEM, POLICIES, *RESTORING],
    "without_table": [one for one in CLONING if one != TABLE],
    "without_system": [one for one in CLONING if one != SYSTEM],
    "without_policies": [one for one in CLONING if one != POLICIES],
    "needed_alone": [TABLE, SYSTEM, POLICIES, PINS],
    "two_columns": ["GRANT SELECT(id, day) ON shop.events", *CLONING[1:]],
    "some_system_tables": [TABLE, "GRANT SELECT ON system.parts", "GRANT SELECT ON system.tables", PINS],
    **{user_without(right): [TABLE, SYSTEM, POLICIES, pins_without(right)] for right in PIN_RIGHTS},
}


@pytest.fixture(scope="module")
def granting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server of today that knows each account by its grants alone."""
    users = {name: FrontUser(password=PASSWORD, grants=tuple(grants)) for name, grants in ACCOUNTS.items()}
    users["default"] = FrontUser(password=PASSWORD)
    users["reading_settings_too"] = FrontUser(password=PASSWORD, grants=(TABLE, SYSTEM), readonly=1)
    stand_ins = {"serverUUID()": WITH_UUID["serverUUID()"]}
    options = FrontOptions(users=users, stand_ins=stand_ins)
    with clickhouse_front(tmp_path_factory.mktemp("granting"), options) as front:
        yield Served(url=front.url, data=front.data, modern=True, kill=front.kill, start=front.start)


class Shop:
    """A table `shop.events`, made anew, and one account's way to it."""

    def __init__(self, granting: Served, folder: Path, runner: LocalRunner) -> None:
        self._granting, self._folder, self._runner = granting, folder, runner
        self.place = self.by("default")
        self.place.execute(
            "DROP DATABASE IF EXISTS shop SYNC",
            "DROP DATABASE IF EXISTS calve_pins SYNC",
            "DROP DATABASE IF EXISTS restored SYNC",
            "CREATE DATABASE shop",
            f"CREATE TABLE shop.events ({COLUMNS}) ENGINE = MergeTree PARTITION BY toYYYYMM(day)"
            " ORDER BY (day, id) SETTINGS enable_block_number_column = 1, enable_block_offset_column = 1",
            insert("shop.events", 1, 0),
        )

    def by(self, user: str, **options: object) -> ServerPlace:
        folder = self._folder / user
        folder.mkdir(exist_ok=True)
        return self._granting.place(folder, self._runner, user=user, **options)

    @property
    def disks(self) -> dict[str, str]:
        return {"default": str(self._granting.data)}


@pytest.fixture
def shop(granting: Served, tmp_path: Path, runner: LocalRunner) -> Shop:
    return Shop(granting, tmp_path, runner)


def exported(place: ServerPlace, **asked: object) -> Process:
    [process] = place.export("shop.events", "202401", **asked)
    return process


def looked_at(place: ServerPlace, process: Process) -> tuple[ExportPlan, Pin]:
    with place.app() as app:
        text = app.store.plan(process.id)
        [pin] = app.store.pins(process.id)
    assert text is not None
    return ExportPlan.from_json(text), pin


def parses(place: ServerPlace, statement: str) -> bool:
    [found] = place.select(f"SELECT formatQuerySingleLineOrNull({string(statement)}) AS text")
    return found["text"] is not None


@pytest.mark.parametrize("statement", [text for texts in STATEMENTS for text in texts])
def test_every_statement_of_the_page_is_one_of_clickhouse(
    granting: Served, tmp_path: Path, statement: str
) -> None:
    assert parses(granting.place(tmp_path, None), statement)


@pytest.mark.parametrize("user", ["calve", "needed_alone"])
def test_with_the_rights_of_the_page_an_export_is_pinned_and_leaves_nothing(shop: Shop, user: str) -> None:
    place = shop.by(user)
    process = exported(place)
    assert process.state is ProcessState.COMPLETED, process.error
    assert len(in_the_lake(place)) == 200
    plan, pin = looked_at(place, process)
    assert plan.relation.detail["pinned"] is True
    assert pin.state is PinState.RELEASED and place.pins == []


@pytest.mark.parametrize("user", ["reading", "reading_settings_too"])
def test_with_select_alone_an_export_works_without_a_pin_and_says_so(shop: Shop, user: str) -> None:
    place = shop.by(user)
    process = exported(place)
    assert process.state is ProcessState.COMPLETED, process.error
    plan, pin = looked_at(place, process)
    assert plan.relation.detail["pinned"] is False
    assert "nothing holds the parts of source main still" in plan.notes[0]
    assert pin.state is PinState.RELEASED


@pytest.mark.parametrize("right", [one for one in PIN_RIGHTS if one not in ("SELECT", "DROP TABLE")])
def test_without_a_right_to_make_the_clone_there_is_no_pin_and_the_note_names_it(
    shop: Shop, right: str
) -> None:
    place = shop.by(user_without(right))
    process = exported(place)
    assert process.state is ProcessState.COMPLETED, process.error
    plan, pin = looked_at(place, process)
    assert plan.relation.detail["pinned"] is False
    assert f"it's necessary to have the grant {right}" in plan.notes[0] or f"{right} " in plan.notes[0]
    assert pin.state is PinState.RELEASED and place.pins == []


def test_without_a_right_to_read_the_clone_the_export_fails_and_names_it(shop: Shop) -> None:
    place = shop.by(user_without("SELECT"))
    process = exported(place)
    assert process.state is ProcessState.FAILED and process.error is not None
    assert "it's necessary to have the grant SELECT(" in process.error.message
    assert process.error.hint == "grant it to the user of [source.main]"
    assert place.pins == []


def test_without_a_right_to_drop_the_clone_its_pin_stays_journaled_and_names_it(shop: Shop) -> None:
    place = shop.by(user_without("DROP TABLE"))
    process = exported(place)
    assert process.state is ProcessState.COMPLETED, process.error
    _, pin = looked_at(place, process)
    assert pin.state is PinState.RELEASING and pin.error is not None
    assert "it's necessary to have the grant DROP TABLE ON calve_pins." in pin.error.message
    assert place.pins == [pin.name]
    with place.app() as app:
        [finding, _] = pins(app)
    assert finding.part == f"pin:{pin.name}" and not finding.ok
    assert "the grant DROP TABLE" in finding.words
    assert finding.remedy == "grant it to the user of [source.main]"


def test_without_a_right_to_see_row_policies_they_must_be_ignored_by_name(shop: Shop) -> None:
    place = shop.by("without_policies")
    process = exported(place)
    assert process.state is ProcessState.FAILED and process.error is not None
    assert process.error.code == "row_policies" and "may not see them" in process.error.message
    process = exported(place, ignore_row_policies=True)
    assert process.state is ProcessState.COMPLETED, process.error


@pytest.mark.parametrize(
    ("user", "hidden", "hint"),
    [
        (
            "without_table",
            "may not read column id, day,",
            "GRANT SELECT ON `shop`.`events` TO `without_table`",
        ),
        ("two_columns", "may not read column at, score,", "GRANT SELECT ON `shop`.`events` TO `two_columns`"),
        ("without_system", "system.parts", "GRANT SELECT ON system.* TO `without_system`"),
        ("some_system_tables", "system.row_policies", "GRANT SELECT ON system.* TO `some_system_tables`"),
    ],
)
def test_what_a_user_is_not_shown_is_not_taken_for_absent(
    shop: Shop, user: str, hidden: str, hint: str
) -> None:
    with pytest.raises(PermanentError) as failed:
        exported(shop.by(user))
    assert hidden in failed.value.message
    assert failed.value.hint == hint


def test_doctor_finds_system_tables_that_are_hidden(shop: Shop) -> None:
    with shop.by("without_system").app() as app:
        [finding] = [one for one in examine(app, spark=False) if one.part == "source:main"]
    assert not finding.ok and "may not read system." in finding.words
    assert finding.remedy.startswith("GRANT SELECT ON system.*")


def test_the_hint_s_own_statement_is_one_of_clickhouse(shop: Shop) -> None:
    with pytest.raises(PermanentError) as failed:
        exported(shop.by("two_columns"))
    assert parses(shop.place, failed.value.hint)
    assert not parses(shop.place, failed.value.hint.replace(" ON ", " AT "))


def test_with_the_right_to_freeze_parts_are_read_as_files(shop: Shop) -> None:
    place = shop.by("freezing", disks=shop.disks)
    process = exported(place)
    assert process.state is ProcessState.COMPLETED, process.error
    plan, pin = looked_at(place, process)
    assert plan.relation.mode == "frozen"
    assert pin.state is PinState.RELEASED


def test_without_the_right_to_freeze_the_export_fails_and_names_it(shop: Shop) -> None:
    process = exported(shop.by("reading", disks=shop.disks), ignore_row_policies=True)
    assert process.state is ProcessState.FAILED and process.error is not None
    assert "it's necessary to have the grant ALTER FREEZE PARTITION ON shop.events" in process.error.message


def test_with_the_right_to_freeze_tables_are_backed_up_and_with_those_to_restore_restored(
    shop: Shop, tmp_path: Path
) -> None:
    location = {"disks": shop.disks, "CALVE_BACKUP__URL": str(tmp_path / "backups")}
    place = shop.by("backing_up", **location)
    with place.app() as app:
        reach = BackupReach(app)
        wanted = backing_up.request_of(reach, "one", "main", ("shop.*",))
        [process] = place.finish(app, [backing_up.submit(reach, app.store, wanted).process.id])
        assert process.state is ProcessState.COMPLETED, process.error
        assert [pin.state for pin in app.store.pins(process.id)] == [PinState.RELEASED]
    refused = restored_by(place)
    assert refused.state is ProcessState.FAILED and refused.error is not None
    assert "the grant CREATE DATABASE ON restored.*" in refused.error.message
    restored = restored_by(shop.by("restoring", **location))
    assert restored.state is ProcessState.COMPLETED, restored.error
    assert shop.place.select("SELECT count() AS n FROM restored.events") == [{"n": 200}]


def restored_by(place: ServerPlace) -> Process:
    with place.app() as app:
        reach = BackupReach(app)
        wanted = restoring.request_of(reach, "one", "main", restoring.RestoreOptions(into="restored"))
        [process] = place.finish(app, [restoring.submit(reach, app.store, wanted).process.id])
        return process


def test_patches_are_applied_by_who_may_update_and_refused_by_name_to_others(shop: Shop) -> None:
    shop.place.execute("UPDATE shop.events SET note = 'patched' WHERE id = 7")
    refused = exported(shop.by("freezing", disks=shop.disks), mutations="wait")
    assert refused.state is ProcessState.FAILED and refused.error is not None
    assert "it's necessary to have the grant ALTER UPDATE ON shop.events" in refused.error.message
    place = shop.by("patching", disks=shop.disks)
    process = exported(place, mutations="wait")
    assert process.state is ProcessState.COMPLETED, process.error
    assert next(row["note"] for row in in_the_lake(place) if row["id"] == 7) == "patched"
