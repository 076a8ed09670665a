"""Lists and documents that a notebook shows as tables. They are plain lists and dicts otherwise."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime
from enum import Enum
from html import escape
from typing import Any, TypeVar

from calve.app.front import ExportAnswer, Submitted
from calve.model import process as model

T = TypeVar("T")
_MOST_ROWS = 500
_MOST_LETTERS = 200
# Of a process, what a person looks for; the rest is in its fields.
_PROCESS = (
    "id", "kind", "state", "source", "destination", "partitions", "rows", "files", "bytes", "created_at", "finished_at",
    "error",
)  # fmt: skip


class Table(list[T]):
    """A list; of processes, events or documents."""

    def _repr_html_(self) -> str:
        rows = [_columns(one) for one in self[:_MOST_ROWS]]
        names = list(dict.fromkeys(name for row in rows for name in row))
        head = "".join(f"<th>{escape(name)}</th>" for name in names)
        body = "".join(_row(row.get(name) for name in names) for row in rows)
        left = len(self) - _MOST_ROWS
        more = f"<p>… and {left} more</p>" if left > 0 else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


@dataclass(frozen=True, kw_only=True)
class Queued(Submitted):
    """`processes` that do what was asked for; `joined`: those that were under way before."""

    def _repr_html_(self) -> str:
        return Table(self.processes)._repr_html_()


@dataclass(frozen=True, kw_only=True)
class QueuedExport(ExportAnswer, Queued):
    """Also what was exported before: `known`, `unchanged`, `refused`."""


class Process(model.Process):
    """One process, shown as a table too."""

    def _repr_html_(self) -> str:
        return Document(_columns(self))._repr_html_()


class Document(dict[str, Any]):
    """A report, by the names of `--json`."""

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><th>{escape(str(name))}</th>{_cell(value)}</tr>" for name, value in self.items())
        return f"<table><tbody>{rows}</tbody></table>"


def _columns(one: Any) -> Mapping[str, Any]:
    if isinstance(one, Mapping):
        return one
    if is_dataclass(one) and not isinstance(one, type):
        names = [field.name for field in fields(one)]
        shown = _PROCESS if set(_PROCESS) <= set(names) else names
        return {name: getattr(one, name) for name in shown}
    return {"value": one}


def _row(values: Iterable[Any]) -> str:
    return f"<tr>{''.join(map(_cell, values))}</tr>"


def _cell(value: Any) -> str:
    return f"<td>{escape(_text(value))}</td>"


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, model.Process):
        return value.id
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, list | tuple | set | frozenset):
        text = ", ".join(map(_text, value))
    else:
        text = str(getattr(value, "message", value))  # of an error
    return text if len(text) <= _MOST_LETTERS else f"{text[:_MOST_LETTERS]}…"
