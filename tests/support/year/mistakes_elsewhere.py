"""Rules of issue 16 that no year can break, because something else stops what they forbid, or because they are of a server. Each has an
ordinary test, which fails without it."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from importlib import import_module
from typing import Any
from unittest.mock import patch

from support.year.mistakes import mistake_elsewhere

Real = Callable[..., Any]
_OBSTACLES = "tests/tier/test_what_keeps_a_partition_in_its_table.py"
_MAY_NOT = "tests/policy/test_what_may_not_leave.py"
_DYING = "tests/policy/test_releases_dying_anywhere.py"
_DROPS = "tests/policy/test_drops_dying_anywhere.py"
_QUARANTINE = "tests/tier/test_partitions_in_quarantine.py"
_STANDS = "tests/policy/test_where_partitions_stand.py"
_KEYS = "tests/exactly_once/test_released_keys_are_never_replaced.py"
_COUNTS = "tests/exactly_once/test_released_rows_are_counted.py"
_TIME = f"{_MAY_NOT}::test_only_a_time_that_is_over_for_good_may_leave"
_VALUE = f"{_MAY_NOT}::test_only_a_whole_partition_that_is_proven_by_value_may_leave"


def _all(*patches: AbstractContextManager[Any]) -> Iterator[None]:
    with ExitStack() as stack:
        for one in patches:
            stack.enter_context(one)
        yield


def _at(module: str, name: str, made: Any) -> AbstractContextManager[Any]:
    of, _, attribute = name.rpartition(".")
    target: Any = import_module(module)
    return patch.object(getattr(target, of) if of else target, attribute, made)


def _silent(*_: Any, **__: Any) -> None:
    return None


# -- what may not leave -------------------------------------------------------------------------------


def _without(*codes: str) -> Iterator[None]:
    find: Real = import_module("calve.clickhouse.tier.obstacles").find

    def found(*given: Any) -> Any:
        return tuple(one for one in find(*given) if one.code not in codes)

    yield from _all(_at("calve.clickhouse.tier.obstacles", "find", found))


def _ever(*codes: str) -> Iterator[None]:
    over: Real = import_module("calve.policy.bounds").not_over

    def not_over(*given: Any) -> Any:
        found = over(*given)
        return None if found is None or found[0] in codes else found

    yield from _all(_at("calve.policy.bounds", "not_over", not_over))


def _surveyed(*codes: str) -> Iterator[None]:
    of_lake: Real = import_module("calve.policy.release.survey")._of_lake
    of_proof: Real = import_module("calve.policy.release.survey")._of_proof
    yield from _all(
        _at("calve.policy.release.survey", "_of_lake", lambda *given: (one for one in of_lake(*given) if one.code not in codes)),
        _at("calve.policy.release.survey", "_of_proof", lambda *given: (one for one in of_proof(*given) if one.code not in codes)),
    )  # fmt: skip


@mistake_elsewhere(
    "a table without partitions may be released from", f"{_OBSTACLES}::test_obstacles_of_tables"
)
def any_partitioning() -> Iterator[None]:
    yield from _without("unpartitioned")


@mistake_elsewhere("replicas may share their files", f"{_OBSTACLES}::test_what_only_servers_have")
def any_zero_copy() -> Iterator[None]:
    yield from _without("zero_copy")


@mistake_elsewhere("row policies may hide rows", f"{_OBSTACLES}::test_what_only_servers_have")
def any_row_policy() -> Iterator[None]:
    yield from _without("row_policies")


@mistake_elsewhere("updates by patches may be under way", f"{_OBSTACLES}::test_obstacles_of_tables")
def any_patch() -> Iterator[None]:
    yield from _without("lightweight_updates")


@mistake_elsewhere(
    "the replicas that answer are all",
    f"{_MAY_NOT}::test_all_replicas_are_there_and_done_and_not_only_those_that_answer",
)
def reachable_replicas() -> Iterator[None]:
    real: Real = import_module("calve.clickhouse.tier.replicas").obstacles
    yield from _all(
        _at("calve.clickhouse.tier.replicas", "obstacles", lambda seen: (one for one in real(seen) if "names" not in one.words))
    )  # fmt: skip


@mistake_elsewhere(
    "queues of replicas may have entries of the partition",
    f"{_MAY_NOT}::test_all_replicas_are_there_and_done_and_not_only_those_that_answer",
)
def any_queue() -> Iterator[None]:  # fmt: skip
    real: Real = import_module("calve.clickhouse.tier.replicas").obstacles
    yield from _all(
        _at("calve.clickhouse.tier.replicas", "obstacles", lambda seen: real([replace(one, queued=0) for one in seen]))
    )  # fmt: skip


@mistake_elsewhere("a key that repeats says a time", _TIME)
def any_cycle() -> Iterator[None]:
    yield from _ever("cyclic_key")


@mistake_elsewhere("a key without a time may be released", _TIME)
def any_key() -> Iterator[None]:
    yield from _ever("no_time_key")


@mistake_elsewhere("partitions of 1970 may leave", _TIME)
def any_epoch() -> Iterator[None]:
    yield from _ever("no_bounds")


@mistake_elsewhere("rows may lie outside of the time of their partition", _VALUE)
def any_bounds() -> Iterator[None]:
    yield from _surveyed("rows_outside_bounds")


@mistake_elsewhere("a sample, a cast or a part of the rows permits a release", _VALUE)
def any_proof() -> Iterator[None]:
    yield from _surveyed("not_by_value")


@mistake_elsewhere("the destination may have rows of another table", _VALUE)
def any_identity() -> Iterator[None]:
    yield from _surveyed("other_identity")


@mistake_elsewhere("a partition that was exported in pieces, or with others, may leave", _VALUE)
def any_pieces() -> Iterator[None]:
    yield from _surveyed("several_exports", "shared_export")


@mistake_elsewhere("two policies release from a table", _STANDS)
def any_rival() -> Iterator[None]:
    stand: Real = import_module("calve.policy.stand").stand
    yield from _all(
        _at("calve.policy.stand", "stand", lambda facts: stand(replace(facts, release=replace(facts.release, rival=False))))
    )  # fmt: skip


# -- steps --------------------------------------------------------------------------------------------


@mistake_elsewhere("a move that wakes up late finds its place", _QUARANTINE)
def no_close() -> Iterator[None]:
    yield from _all(_at("calve.clickhouse.tier.quarantine", "MovingQuarantine.close", _silent))


@mistake_elsewhere("a deletion that wakes up late finds its place", _QUARANTINE)
def no_spare() -> Iterator[None]:
    yield from _all(_at("calve.clickhouse.tier.quarantine", "MovingQuarantine.spare", _silent))


@mistake_elsewhere("what is in quarantine keeps its TTL, and is merged", _QUARANTINE)
def ttl_goes_along() -> Iterator[None]:
    def create(table: Any, made: Any, *_: Any, comment: str = "", **__: Any) -> str:
        return f"CREATE TABLE {made.sql} AS {table.sql} COMMENT '{comment}'"

    yield from _all(
        _at("calve.clickhouse.still", "create", create),
        _at("calve.clickhouse.still", "strip_column_ttls", _silent),
        _at("calve.clickhouse.still", "stop_merges", _silent),
        _at("calve.clickhouse.tier.quarantine", "MovingQuarantine._refuse_ttl", _silent),
    )


@mistake_elsewhere("the lake may be rewritten while rows leave", _DYING)
def any_files() -> Iterator[None]:
    yield from _all(_at("calve.policy.proof.lake_read", "LakeRead.same", lambda _self, cold: cold.scan()))


@mistake_elsewhere(
    "the view's own way of reading the lake is not compared",
    f"{_DYING}::test_a_view_that_shows_other_rows_makes_them_go_back",
)
def view_uncompared() -> Iterator[None]:  # fmt: skip
    departure = import_module("calve.policy.release.kind")._Departure
    real: Real = departure._prove

    def prove(self: Any, release: Any) -> None:
        shown, self._shown = self._shown, None
        try:
            real(self, release)
        finally:
            self._shown = shown

    yield from _all(patch.object(departure, "_prove", prove))


@mistake_elsewhere(
    "a hold and a step may miss each other", "tests/contract/test_memory_store.py -k announcement_by_an_older"
)
def guard_unread() -> Iterator[None]:
    check: Real = import_module("calve.model.tier").check_intent
    yield from _all(
        _at(
            "calve.testing.memory_tier",
            "check_intent",
            lambda process, intend, found: check(process, replace(intend, version=found.version), found),
        )
    )


@mistake_elsewhere("a hold that cannot be read is none", "tests/policy/test_intents_fail_closed.py")
def holds_fail_open() -> Iterator[None]:
    check: Real = import_module("calve.model.tier").check_intent
    yield from _all(
        _at(
            "calve.store.guards",
            "check_intent",
            lambda process, intend, found: check(process, intend, replace(found, holds=())),
        )
    )


@mistake_elsewhere("a backup that is to have the rows is not asked", _DROPS)
def backup_unasked() -> Iterator[None]:
    drop = import_module("calve.policy.release.drop")._Departed
    real: Real = import_module("calve.policy.release.drop").DropKind.__init__

    def init(self: Any, ports: Any) -> None:
        patch.object(type(ports), "check_backup", _silent).start()
        real(self, ports)

    assert drop
    yield from _all(_at("calve.policy.release.drop", "DropKind.__init__", init))
    patch.stopall()


@mistake_elsewhere("a drop goes by marks that are gone", _DROPS)
def marks_unread() -> Iterator[None]:
    scene: Any = import_module("calve.policy.release.drop")
    real: Real = scene._Departed.__init__

    def init(self: Any, *given: Any) -> None:
        real(self, *given)
        self._cold.is_marked = lambda _id: True

    yield from _all(patch.object(scene._Departed, "__init__", init))


# -- the lake -----------------------------------------------------------------------------------------


@mistake_elsewhere(
    "a mark that arrives after the way back stands",
    f"{_KEYS}::test_D2_a_mark_that_arrives_after_its_return_is_refused",
)
def late_mark() -> Iterator[None]:  # fmt: skip
    released = import_module("calve.iceberg.released")
    yield from _all(patch.object(released.ReleasedTable, "unmark", _silent))


@mistake_elsewhere(
    "what is not known to be guarded expires",
    f"{_KEYS}::test_without_the_tag_nothing_expires_and_no_file_is_an_orphan",
)
def unguarded_expires() -> Iterator[None]:
    no: Real = lambda *_: False  # noqa: E731
    yield from _all(
        _at("calve.iceberg.health.due", "is_unguarded", no),
        _at("calve.iceberg.health.orphans", "is_unguarded", no),
    )


@mistake_elsewhere("released rows are not counted", _COUNTS)
def uncounted() -> Iterator[None]:
    guard = import_module("calve.iceberg.guard")
    real: Real = guard.recount

    def recount(*given: Any) -> Any:
        found = real(*given)
        return (
            None
            if found is None
            else replace(found, faults=(), keys=tuple(replace(one, missing=0) for one in found.keys))
        )

    yield from _all(patch.object(guard, "recount", recount))


# -- late rows, and the view --------------------------------------------------------------------------


@mistake_elsewhere("rows that are gone are replaced", _STANDS)
def replace_shrunk() -> Iterator[None]:
    stand: Real = import_module("calve.policy.stand").stand

    def stood(facts: Any) -> Any:
        return stand(
            facts if facts.export is None else replace(facts, export=replace(facts.export, grows=True))
        )

    yield from _all(_at("calve.policy.stand", "stand", stood))


@mistake_elsewhere(
    "a view without its residency answers",
    "tests/tier/test_views_over_hot_and_cold.py -k without_its_residency",
)
def no_throw() -> Iterator[None]:
    view = import_module("calve.clickhouse.tier.view")
    real: Real = view.scalar

    def scalar(uuid: str, shown: str) -> str:
        made: str = real(uuid, shown)
        return made[: made.index("HAVING")] + ")"

    yield from _all(patch.object(view, "scalar", scalar))


@mistake_elsewhere(
    "each half of a view reads the residency for itself, by IN",
    "tests/tier/test_views_at_servers.py::test_the_set_is_computed_once_a_query",
)
def set_by_in() -> Iterator[None]:
    view = import_module("calve.clickhouse.tier.view")
    real: Real = view.ViewText.create

    def create(text: Any) -> str:
        made: str = real(text)
        ids = f"tupleElement({view.scalar(text.table.uuid, f'{text.table.database}.{text.table.name}')}, 1)"
        newest = (
            f"(SELECT id FROM {view.residency_table(text.table.uuid).sql} GROUP BY id"
            " HAVING argMax(cold, (generation, writer)))"
        )
        made = made.replace(f"NOT has({ids}, h._partition_id)", f"h._partition_id NOT IN {newest}")
        return made.replace(f"has({ids}, {text.id})", f"{text.id} IN {newest}")

    yield from _all(patch.object(view.ViewText, "create", create))
