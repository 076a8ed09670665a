"""What a person must do something about now (T17): cards, the most urgent first, equal ones as one.

Read from the store as it is at this moment, in a bounded number of statements; counts in memory are for the throughput
alone. A failure stays until it is retried, until its partitions are published by another process, or for 14 days.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta

from calve.app import view
from calve.app.commands import command
from calve.app.pages.cards import expectations, policies, work
from calve.app.pages.cards.card import Card, Glance
from calve.app.pages.counts import QUARTER_SECONDS
from calve.app.pages.document import head, with_why
from calve.app.pages.overview import QUARTERS, Overview
from calve.app.view import Json
from calve.app.wiring import App
from calve.model.process import Process
from calve.model.states import ProcessState

CARDS = 20
# In order of urgency.
CARD_KINDS: tuple[Callable[[Glance], Iterator[Card]], ...] = (
    policies.released, work.unknown, work.damaged, work.failed, work.down, work.workers, policies.halfway_cards,
    policies.kept_out_cards, work.stuck, expectations.late, policies.approvals, work.pins, work.halts, policies.drops,
    work.versions,
)  # fmt: skip
# By webhooks: no process says so.
_TOLD = (
    policies.released,
    policies.halfway_cards,
    policies.kept_out_cards,
    expectations.late,
    policies.approvals,
)
_SAID = {
    "released_rows_missing": ("table lacks released rows", "tables lack released rows"),
    "released_rows_uncounted": ("table is not counted", "tables are not counted"),
    "unknown": ("outcome is unknown", "outcomes are unknown"),
    "damaged": ("row is damaged", "rows are damaged"),
    "failed": ("failure waits for a retry", "failures wait for a retry"),
    "down": ("service is down", "services are down"),
    "silent": ("worker fell silent", "workers fell silent"),
    "no_worker": ("process has no worker", "processes have no worker"),
    "halfway": ("partition is half-way", "partitions are half-way"),
    "late": ("process does not move", "processes do not move"),
    "overdue": ("table is late", "tables are late"),
    "unproven": ("table is unproven", "tables are unproven"),
    "approval": ("approval is wanted", "approvals are wanted"),
    "held": ("freeze is held too long", "freezes are held too long"),
    "drops": ("table has partitions to drop", "tables have partitions to drop"),
    "halted": ("halt is older than a day", "halts are older than a day"),
}


def told(app: App) -> list[Card]:
    """What webhooks receive."""
    look = Glance(app)
    return [card for found in _TOLD for card in found(look)]


def attention(app: App, overview: Overview) -> Json:
    document = head(app)
    look = Glance(app)
    cards = [
        card.to_json(urgency) for urgency, found in enumerate(CARD_KINDS, start=1) for card in found(look)
    ]
    counts = overview.counts()
    rows, size = [0] * QUARTERS, [0] * QUARTERS
    completed = failed = 0
    for done in counts.quarters:
        age = counts.this_quarter - done.piece
        if 0 <= age < QUARTERS:
            rows[QUARTERS - 1 - age] += done.rows
            size[QUARTERS - 1 - age] += done.bytes
            completed, failed = completed + done.completed, failed + done.failed
    begin = counts.at - timedelta(seconds=QUARTERS * QUARTER_SECONDS)
    return document | {
        "sentence": sentence(cards, len(look.alive)),
        "cards": cards[:CARDS],
        "more": max(0, len(cards) - CARDS),
        "throughput": {
            "from": view.time_json(begin),
            "step_seconds": QUARTER_SECONDS,
            "rows": rows,
            "bytes": size,
        },
        "day": {"rows": sum(rows), "bytes": sum(size), "completed": completed, "failed": failed},
        "live": with_why(look.reader, sorted(look.live, key=_waits)[:10]),
        "first_steps": _first_steps() if not counts.totals.tallies and not look.live else None,
        "expectations": len(app.config.expect),
        "overview_seconds": round(overview.seconds, 1),
        "subjects": [],
        "commands": {},
    }


def _waits(process: Process) -> bool:
    return process.state is ProcessState.PENDING


def sentence(cards: Sequence[Json], alive: int) -> str:
    """The worst first, then the workers."""
    workers = (
        f"{alive} {'worker is' if alive == 1 else 'workers are'} alive" if alive else "no worker is running"
    )
    counts: dict[str, int] = {}
    for card in cards:
        counts[card["kind"]] = counts.get(card["kind"], 0) + (
            card["count"] if card["kind"] in ("failed", "no_worker", "held") else 1
        )
    said = [f"{count} {_SAID[kind][count > 1]}" for kind, count in counts.items() if kind in _SAID]
    text = ", ".join([*said[:3], workers]) if said else f"nothing needs attention, and {workers}"
    return f"{text[0].upper()}{text[1:]}."


def _first_steps() -> list[Json]:
    """For a store without a process."""
    steps = (
        ("Check the installation", command("doctor")),
        ("Glance at a table's partitions", "calve partitions TABLE"),
        ("Export some of them", "calve export TABLE --to DESTINATION --all --dry-run"),
    )
    return [{"title": title, "command": line, "done": False} for title, line in steps]
