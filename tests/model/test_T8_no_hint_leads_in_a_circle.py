"""T8: the command that a hint names does not end with the error that the hint belongs to.

The hints are read from the source: every error that is made with a code and a hint. A new hint that names a
command which can meet the same error fails here until somebody has said why it does not.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

import calve

ROOT = Path(calve.__file__).parent
COMMAND = re.compile(r"\bcalve (backup [a-z]+|[a-z]+)")

# They run processes, and so can end with whatever ends one.
RUN_WORK = {"retry", "export", "optimize", "backup create", "backup restore", "worker"}

# Errors whose hint names such a command, and why it does not meet the same error.
NO_CIRCLE = {
    ("attempts_used", "retry"): "a new process has a new budget",
    ("deadline", "retry"): "a new process has a new deadline, and keeps what is done",
    ("destination_replaced", "optimize"): "a new process plans for the table that is there now",
    ("plan_missing", "retry"): "a new process writes a plan of its own",
    ("publish_fenced", "retry"): "the fence is for one process, and a retry is another",
    (
        "receipts_incomplete",
        "retry",
    ): "a retry adopts only receipts that pass the recount, and exports the rest",
    ("disk_not_seen", "export"): "said by backup create: an export reads such disks through the server",
    ("disk_not_linked", "export"): "the same: it reads parts by their names where it cannot hold them",
    ("objects_not_told", "export"): "the same",
    ("source_changed", "export"): "said by verify --deep",
    ("not_exported", "export"): "said by view",
    ("no_longer_there", "export"): "said by view; an export says that --force puts it back",
    ("disk_full", "retry"): "once there is room, as the hint says first",
    ("spark_connect", "worker"): "with the cluster's own master, as the hint says",
}


@dataclass(frozen=True)
class Hint:
    module: str
    code: str
    commands: tuple[str, ...]


@cache
def hints() -> tuple[Hint, ...]:
    return tuple(_hints())


def _hints() -> Iterator[Hint]:
    for path in sorted(ROOT.rglob("*.py")):
        module = path.relative_to(ROOT).as_posix()
        if module.startswith("testing/"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            given = {keyword.arg: keyword.value for keyword in node.keywords}
            if "code" in given and "hint" in given:
                commands = tuple(COMMAND.findall(_text(given["hint"])))
                yield Hint(module, _text(given["code"]) or "disk_full", commands)  # that one is handed in


def _text(node: ast.expr) -> str:
    """All that is written in an expression, whichever branch is taken."""
    parts = (part.value for part in ast.walk(node) if isinstance(part, ast.Constant))
    return "".join(part for part in parts if isinstance(part, str))


def test_the_hints_are_found() -> None:
    assert len(hints()) > 200
    assert {hint.code for hint in hints() if "retry" in hint.commands} >= {"receipts_incomplete", "deadline"}


def test_T8_a_hint_that_names_a_command_which_does_work_is_known_to_lead_out() -> None:
    found = {(hint.code, command) for hint in hints() for command in hint.commands if command in RUN_WORK}
    assert found == set(NO_CIRCLE)


def test_T8_a_hint_about_the_configuration_names_no_command_that_reads_it() -> None:
    said_by_init = {"config_exists"}  # a file that can be read
    mine = [hint for hint in hints() if hint.module.startswith("app/config/")]
    assert mine
    assert not [hint for hint in mine if hint.code not in said_by_init and set(hint.commands) - {"init"}]


def test_T8_a_hint_about_the_store_names_no_command_that_fails_without_it() -> None:
    mine = [hint for hint in hints() if hint.module.startswith("store/")]
    assert mine
    assert not [hint for hint in mine if set(hint.commands) - {"doctor"}]  # which makes a finding of it


# What a command that takes an id can refuse by itself, and the commands that do.
OF_IDS = {
    "process_not_found": {"show", "events", "why", "wait", "cancel", "retry", "verify"},
    "completed": {"retry"},
    "not_ended": {"retry"},
    "outcome_unknown": {"retry"},
    "not_verifiable": {"verify"},
    "no_backup": {"backup show", "backup verify", "backup restore", "backup delete"},
    "backup_deleted": {"backup show", "backup verify", "backup restore", "backup delete"},
    "locked": {"retry", *RUN_WORK},
    "backup_in_use": {"backup delete", "backup prune"},
}


@pytest.mark.parametrize("code", OF_IDS)
def test_T8_a_refusal_never_names_the_command_that_was_refused(code: str) -> None:
    mine = [hint for hint in hints() if hint.code == code]
    assert mine
    for hint in mine:
        assert not OF_IDS[code] & set(hint.commands), hint
