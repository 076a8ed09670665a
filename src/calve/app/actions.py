"""Actions: commands that arrive as texts, are accepted together and carried out later, each once.

An accepted action is a row of the store, so it outlives the server that accepted it. Carrying one out is a call of
the desk with a key of its own: however often it is begun, what it submits is there once. The role is checked when
it is accepted and again when it is carried out.
"""

import logging
import shlex
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from calve.app.arguments import checked
from calve.app.desk import Desk, admitted
from calve.app.token_file import LOCAL
from calve.app.view import Json, time_json
from calve.control.registry import Registry
from calve.model.access import Action, ActionQuery, Caller, Role
from calve.model.errors import CalveError, UsageError
from calve.model.process import ProcessId
from calve.model.refusals import key_reused

MOST_LINES = 100
LONGEST = 4000  # characters of a command
LEASE_SECONDS = 120.0  # after which another server takes an action up whose server is silent
HOLD_SECONDS = LEASE_SECONDS / 4  # how often a server says that it still carries an action out
MOST_HELD = 200  # actions that a server has claimed and not begun
PATIENCE = timedelta(hours=1)  # with a service that is down
_KEYS = uuid.UUID("8c0a4e0e-6a5c-4b0e-9a39-2d6f6b0c8a51")
_READER = Caller(name="actions", role=Role.VIEWER)
_log = logging.getLogger("calve.actions")


@dataclass(frozen=True, kw_only=True)
class Command:
    """How a line is read: `named` takes the plain words; `spelled` has options that are called otherwise here.
    Options are those of the verb, with `-` for `_`, as on the command line."""

    verb: str
    named: str
    spelled: Mapping[str, str] = field(default_factory=dict)
    by_comma: bool = False  # lists may be given in one word
    defaults: Mapping[str, Any] = field(default_factory=dict)


_IN_EXPORT = {
    "plan": "plan_hash",
    "partition": "partitions",
    "part": "parts",
    "cast": "casts",
    "rename": "renames",
}
_TABLES = {"table": "tables", "t": "tables"}  # as clickhouse-backup has it
COMMANDS: Mapping[str, Command] = {
    "create": Command(
        verb="backup_create", named="name", by_comma=True, spelled=_TABLES, defaults={"tables": ["*.*"]}
    ),
    "restore": Command(
        verb="backup_restore",
        named="name",
        by_comma=True,
        spelled={"as": "into", "plan": "plan_hash", **_TABLES},
    ),
    "verify": Command(verb="backup_verify", named="name", spelled={"read-data": "read_share"}),
    "delete": Command(verb="backup_delete", named="name"),
    "export": Command(verb="export", named="table", spelled=_IN_EXPORT),
    "cancel": Command(verb="cancel", named="ids"),
    "kill": Command(verb="cancel", named="ids"),
    "retry": Command(verb="retry", named="ids"),
}


def parse(desk: Desk, line: str) -> tuple[str, dict[str, Any]]:
    """A line as a verb and its arguments. UsageError names what is wrong with it."""
    verb, given = read(desk, line)
    checked(given, desk.options(verb), required=desk.required(verb), choices=desk.choices(verb))
    return verb, given


def read(desk: Desk, line: str) -> tuple[str, dict[str, Any]]:
    """As `parse`, of a line that may lack something."""
    if len(line) > LONGEST:
        raise _wrong(f"the command is above {LONGEST} characters", "send a shorter one")
    if not line.isprintable():
        raise _wrong("the command has a character that cannot be shown", "write it in one line of plain text")
    try:
        words = shlex.split(line)
    except ValueError:
        raise _wrong("a quote of the command is not closed", "close it") from None
    command = COMMANDS.get(words[0]) if words else None
    if command is None:
        raise _wrong(
            f"unknown command {words[0]!r}" if words else "an empty command",
            f"there are {', '.join(COMMANDS)}",
        )
    options = desk.options(command.verb)
    given: dict[str, Any] = {}
    rest = words[1:]
    while rest:
        word = rest.pop(0)
        if not word.startswith("-"):
            _add(given, command, command.named, word, options)
            continue
        name, has_value, value = word.lstrip("-").partition("=")
        option, kind, off = _option(command, name, options)
        if kind is bool:
            if has_value and value not in ("true", "false"):
                raise _wrong(f"--{name} takes no value", "omit it")
            given[option] = (value != "false") != off
            continue
        if not has_value:
            if not rest:
                raise _wrong(f"--{name} needs a value", f"give --{name}=VALUE")
            value = rest.pop(0)
        _add(given, command, option, value, options)
    return command.verb, {**command.defaults, **given}


def _option(command: Command, name: str, options: Mapping[str, type]) -> tuple[str, type, bool]:
    """The verb's option, its type, and whether it is turned off (`--no-create`)."""
    plain = command.spelled.get(name, name.replace("-", "_"))
    if plain in options and plain != command.named:
        return plain, options[plain], False
    positive = plain.removeprefix("no_")
    if positive != plain and options.get(positive) is bool:
        return positive, bool, True
    shown = sorted(f"--{one.replace('_', '-')}" for one in options if one != command.named)
    raise _wrong(f"unknown option --{name[:40]}", f"there are {', '.join(shown) or 'none'}")


def _add(
    given: dict[str, Any], command: Command, option: str, value: str, options: Mapping[str, type]
) -> None:
    kind = options[option]
    if kind is list:
        words = value.split(",") if command.by_comma else [value]
        given.setdefault(option, []).extend(filter(None, (word.strip() for word in words)))
        return
    if kind is dict:
        name, parted, meant = value.partition("=")
        if not parted:
            raise _wrong(f"invalid {option} {value[:80]!r}", "give NAME=VALUE")
        given.setdefault(option, {})[name.strip()] = meant.strip()
        return
    if option in given:
        raise _wrong(f"{option} is there twice", "give it once")
    given[option] = _typed(option, kind, value)


def _typed(option: str, kind: type, value: str) -> Any:
    if kind not in (int, float):
        return value
    try:
        if kind is int:
            return int(value)
        return float(value.removesuffix("%")) / 100 if value.endswith("%") else float(value)
    except ValueError:
        raise _wrong(f"invalid {option} {value[:80]!r}", "give a number") from None


def _wrong(message: str, hint: str) -> UsageError:
    return UsageError(message, code="bad_command", hint=hint)


class Actions:
    """Of one server. May be shared by threads; calls block."""

    def __init__(self, desk: Desk, registry: Registry, *, now: Callable[[], datetime]) -> None:
        self._desk = desk
        self._registry = registry
        self._now = now

    def accept(self, caller: Caller, lines: Sequence[str], *, key: str = "") -> list[Action]:
        """All lines, or none: each is one that this caller may ask for. With a `key`, the same again is the
        same actions."""
        if len(lines) > MOST_LINES:
            raise _wrong(f"{len(lines)} commands at once", f"send up to {MOST_LINES}")
        for line in lines:
            asked = parse(self._desk, line)
            self._desk.check(caller, *asked)
            self._desk.check_names(*asked)
        made = [
            Action(id=_id(caller, key, at), who=caller.name, role=caller.role, command=line)
            for at, line in enumerate(lines)
        ]
        if not made:
            return []
        # If we die here, all are there or none; those that are there are carried out by any server.
        rows = self._registry.put_actions(made)
        if [row.command for row in rows] != list(lines):
            raise key_reused(key)
        return rows

    def claim(self, limit: int) -> list[Action]:
        return self._registry.claim_actions(limit=limit, lease_seconds=LEASE_SECONDS)

    def hold(self, ids: Sequence[str]) -> None:
        """They are still carried out here."""
        # If we die here, or the store stays away longer than the lease, another server begins them too: what submits
        # has its key, the rest may be done twice, and the first record stays.
        self._registry.hold_actions(ids, LEASE_SECONDS)

    def services(self, action: Action) -> tuple[str, ...]:
        """What it will ask, to bound how much waits for one of them."""
        try:
            return self._desk.services(*read(self._desk, action.command))
        except UsageError:  # of a newer version; carrying it out says so
            return ()

    def carry_out(self, action: Action) -> None:
        """Do it, and record how it went. A service that is down leaves it for later."""
        processes: list[str] = []
        said = ""
        try:
            self._refuse_revoked(action)
            verb, given = parse(self._desk, action.command)
            # If we die here, the action is taken up again, and its key finds what it had submitted.
            answer = self._desk.perform(
                Caller(name=action.who, role=action.role), verb, given, key=f"action-{action.id}"
            )
            processes, said = _outcome(verb, answer)
        except CalveError as error:
            young = action.made_at is None or self._now() - action.made_at < PATIENCE
            if error.info.retryable and young:
                _log.warning("action %s is tried again later: %s", action.id, error.message)
                return
            said = error.message
        except Exception:  # noqa: BLE001 - a defect; what it says may hold a secret
            _log.exception("action %s failed", action.id)
            said = "a bug in Calve; the server's log has it"
        # If we die here, it is begun again, and ends the same way.
        self._registry.record_action(action.id, [ProcessId(one) for one in processes], said)

    def rows(self, *, limit: int = 200, ids: Sequence[str] = ()) -> list[Json]:
        """Newest first, as clickhouse-backup shows them."""
        found = self._registry.actions(ActionQuery(ids=tuple(ids), limit=limit))
        named = list(dict.fromkeys(one for action in found for one in action.processes))
        known = (
            {one["id"]: one for one in self._desk.perform(_READER, "find", {"ids": named})} if named else {}
        )
        return [_row(action, [known[one] for one in action.processes if one in known]) for action in found]

    def _refuse_revoked(self, action: Action) -> None:
        """A token that was revoked, or has expired, stops what still waits."""
        if action.who == LOCAL:
            return
        token = next((one for one in self._registry.tokens() if one.name == action.who), None)
        if token is None or not token.valid(self._now()):
            raise UsageError(f"the token {action.who} has been revoked or has expired", code="token_wrong")


@dataclass(frozen=True, kw_only=True)
class _Held:
    """An action that this server has claimed and has not begun."""

    action: Action
    services: tuple[str, ...]
    since: float


class ActionThreads:
    """Carries actions out beside the requests of a server: its own at once, those of a server that died later.
    So many run for each service; the others of that service wait, and hold up nobody else's."""

    def __init__(
        self,
        actions: Actions,
        *,
        at_once: int = 16,
        per_service: int = 4,
        poll_seconds: float = 10.0,
        hold_seconds: float = HOLD_SECONDS,
    ) -> None:
        self._actions = actions
        self._hold = hold_seconds
        self._at_once = at_once
        self._per_service = per_service
        self._poll = poll_seconds
        self._lock = threading.Lock()
        self._running: dict[str, tuple[str, ...]] = {}  # services, by the id of an action
        self._woken = threading.Event()
        self._stopped = False
        self._pool = ThreadPoolExecutor(at_once, "action")
        self._thread = threading.Thread(target=self._run, name="actions", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """There is something to do."""
        self._woken.set()

    def close(self) -> None:
        """What has begun goes on to its end, or is taken up by another server."""
        self._stopped = True
        self._woken.set()
        self._thread.join(5.0)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _run(self) -> None:
        held: list[_Held] = []
        held_at = time.monotonic()
        while not self._stopped:
            self._woken.clear()
            with self._lock:
                running = list(self._running)
            claimed: list[Action] = []
            try:
                if running and time.monotonic() - held_at >= self._hold:
                    self._actions.hold(running)
                    held_at = time.monotonic()
                claimed = self._actions.claim(MOST_HELD - len(held)) if len(held) < MOST_HELD else []
            except CalveError as error:
                _log.warning("actions cannot be read: %s", error.message)
            at = time.monotonic()
            held += [_Held(action=one, services=self._actions.services(one), since=at) for one in claimed]
            # What waits for long is left to its lease: it is claimed again, after those that came meanwhile.
            held = [one for one in held if at - one.since < LEASE_SECONDS / 2 and not self._begun(one)]
            self._woken.wait(self._poll)

    def _begun(self, held: _Held) -> bool:
        """Whether it runs now: begun here, or begun before and taking longer than its lease."""
        with self._lock:
            if held.action.id in self._running:
                return True
            free = len(self._running) < self._at_once
            if not free or not admitted(self._running.values(), held.services, self._per_service):
                return False
            self._running[held.action.id] = held.services
        self._pool.submit(self._do, held.action)
        return True

    def _do(self, action: Action) -> None:
        try:
            self._actions.carry_out(action)
        except CalveError as error:
            _log.warning("action %s is tried again later: %s", action.id, error.message)
        finally:
            with self._lock:
                del self._running[action.id]
            self._woken.set()


def acknowledged(action: Action) -> Json:
    return {"status": "acknowledged", "operation": action.command, "operation_id": action.id}


def _id(caller: Caller, key: str, at: int) -> str:
    return str(uuid.uuid5(_KEYS, f"{caller.name}\n{key}\n{at}") if key else uuid.uuid4())


def _outcome(verb: str, answer: Any) -> tuple[list[str], str]:
    """The processes that an answer names, and what is wrong with it."""
    match verb:
        case "backup_verify":
            return [], "" if answer["whole"] else "the backup is damaged: calve backup verify says where"
        case "cancel":
            refused = [one["message"] for one in answer if not one["accepted"]]
            return [], "; ".join(refused)
        case "backup_delete":
            return [], ""
        case _:
            said = [one["message"] for one in answer.get("refused", ())]
            return [one["id"] for one in answer["processes"]], "; ".join(said)


def _row(action: Action, processes: Sequence[Json]) -> Json:
    states = {one["state"] for one in processes}
    failed = next((one["error"]["message"] for one in processes if one["error"]), "")
    ends = [one["finished_at"] for one in processes]
    done = action.done_at is not None and all(ends)
    if action.error or "FAILED" in states:
        status = "error"
    elif not done:
        status = "in progress"
    else:
        status = "cancel" if "CANCELLED" in states else "success"
    return {
        "command": action.command,
        "start": time_json(action.made_at),
        "finish": max([*ends, time_json(action.done_at)]) if done else None,
        "status": status,
        "error": action.error or failed,
        "operation_id": action.id,
    }
