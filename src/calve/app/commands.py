"""A verb with its arguments as a command line that a person can paste into a shell.

The law: the shell splits the line, and the command line parses it, to the same arguments. Names are arbitrary text, so
everything is quoted that a shell would read.
"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class _Line:
    """`given`: arguments without a flag, in order. `flags`: those whose flag is not their name with hyphens."""

    words: str
    given: tuple[str, ...] = ()
    flags: Mapping[str, str] = field(default_factory=dict)


_EXPORT = {
    "partitions": "--partition", "parts": "--part", "casts": "--cast", "renames": "--rename", "plan_hash": "--plan",
}  # fmt: skip
_RESTORE = {"into": "--as", "plan_hash": "--plan"}
_LINES: Mapping[str, _Line] = {
    "show": _Line(words="show", given=("ids",)),
    "why": _Line(words="why", given=("ids",)),
    "events": _Line(words="events", given=("ids",)),
    "cancel": _Line(words="cancel", given=("ids",)),
    "retry": _Line(words="retry", given=("ids",)),
    "verify": _Line(words="verify", given=("ids",)),
    "partitions": _Line(words="partitions", given=("table",)),
    "health": _Line(words="health", given=("table",)),
    "export": _Line(words="export", given=("table",), flags=_EXPORT),
    "export_preview": _Line(words="export --dry-run", given=("table",), flags=_EXPORT),
    "optimize": _Line(words="optimize", given=("table",)),
    "optimize_preview": _Line(words="optimize --dry-run", given=("table",)),
    "backup_list": _Line(words="backup list"),
    "backup_show": _Line(words="backup show", given=("name",)),
    "backup_create": _Line(words="backup create", given=("name",)),
    "backup_verify": _Line(words="backup verify", given=("name",), flags={"read_share": "--read-data"}),
    "backup_drill": _Line(words="backup drill", given=("name",), flags={"restore_bytes": "--bytes"}),
    "backup_restore": _Line(words="backup restore", given=("name",), flags=_RESTORE),
    "restore_preview": _Line(words="backup restore --dry-run", given=("name",), flags=_RESTORE),
    "backup_delete": _Line(words="backup delete", given=("name",)),
    "policy_list": _Line(words="policy list"),
    "policy_show": _Line(words="policy show", given=("name",)),
    "policy_explain": _Line(words="policy explain", given=("table", "partition")),
    "policy_run": _Line(words="policy run", given=("name",)),
    "policy_pause": _Line(words="policy pause", given=("name",)),
    "policy_resume": _Line(words="policy resume", given=("name",)),
    "policy_approve": _Line(words="policy approve", given=("name",)),
    "policy_undo": _Line(words="policy undo", given=("table", "partition")),
    "policy_drop": _Line(words="policy drop", given=("table", "partitions")),
    "untier": _Line(words="untier", given=("table", "partition"), flags={"to": "--from"}),
    "hold_add": _Line(words="hold add", given=("table", "partition")),
    "hold_list": _Line(words="hold list"),
    "hold_release": _Line(words="hold release", given=("id",)),
    "schedule_run": _Line(words="backup schedule run", given=("name",)),
    "schedule_pause": _Line(words="backup schedule pause", given=("name",)),
    "schedule_resume": _Line(words="backup schedule resume", given=("name",)),
    "doctor": _Line(words="doctor"),
}


def command(verb: str, **arguments: Any) -> str:
    """The line; arguments that are None, false or empty are left out. KeyError for a verb that has none."""
    if verb in ("halt", "lift"):
        return _halting(verb, **arguments)
    line = _LINES[verb]
    words = ["calve", *line.words.split()]
    for name, value in arguments.items():
        if name not in line.given:
            words += _option(line.flags.get(name, f"--{name.replace('_', '-')}"), value)
    given = [text for name in line.given for text in _texts(arguments.get(name))]
    if any(text.startswith("-") for text in given):
        words.append("--")
    return " ".join(quoted(word) for word in [*words, *given])


def quoted(text: str) -> str:
    """As one word of a shell. What a terminal would not show is spelled out."""
    if all(sign.isprintable() for sign in text):
        return shlex.quote(text)
    spelled = "".join(_spelled(sign) for sign in text)
    return f"$'{spelled}'"


def _spelled(sign: str) -> str:
    if sign in "\\'":
        return f"\\{sign}"
    if sign.isprintable():
        return sign
    # A byte that is no UTF-8 is itself again; half of a surrogate pair, which nobody can type, is only shown.
    errors = "surrogateescape" if "\udc80" <= sign <= "\udcff" else "surrogatepass"
    return "".join(f"\\x{byte:02x}" for byte in sign.encode("utf-8", errors))


def _option(flag: str, value: Any) -> Iterator[str]:
    if value is True:
        yield flag
        return
    for text in _texts(value):
        if text.startswith("-"):
            yield f"{flag}={text}"
        else:
            yield from (flag, text)


def _texts(value: Any) -> Sequence[str]:
    if value is None or value is False or value == "":
        return ()
    if isinstance(value, Mapping):
        return [f"{name}={text}" for name, text in value.items()]
    return [str(one) for one in value] if isinstance(value, list | tuple) else [str(value)]


def _halting(verb: str, *, table: str = "", kind: str = "export", **_: Any) -> str:
    """There is a statement for it, and no command."""
    what = f"SYSTEM {'STOP' if verb == 'halt' else 'START'} {kind.upper()}S"
    return f"calve sql {quoted(f'{what} {table}' if table else what)}"
