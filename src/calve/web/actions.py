"""The table of what buttons do: an action is a verb of the desk, with a sentence about its consequence. What is not in
it does not exist for a page; the desk decides who may."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from calve.app.view import Json
from calve.web.links import target
from calve.web.pages import PATHS

Given = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Ask:
    """A field that the person fills in. `kind`: text, check, or choice among `choices` (value and words)."""

    name: str
    label: str
    kind: str = "text"
    choices: tuple[tuple[str, str], ...] = ()
    hint: str = ""
    required: bool = False


@dataclass(frozen=True, kw_only=True)
class FormAction:
    """`to`: the page for what came of it, below the root; "" shows the answer itself. `typed`: what a person must type
    to say that he means it."""

    verb: str
    label: str
    title: str
    consequence: str
    to: Callable[[Given], str] = lambda _: ""
    leads: bool = False  # there also if it was asked for on another page
    always: Given = field(default_factory=dict)  # arguments that no form has
    asks: tuple[Ask, ...] = ()
    typed: Callable[[Given], str] = lambda _: ""


def _page(name: str, **given: Any) -> str:
    return target(PATHS[name], given)


def _processes(given: Given) -> str:
    ids = given.get("ids", ())
    return _page("sheet", id=ids[0]) if len(ids) == 1 else _page("page")


def _system(_: Given) -> str:
    return _page("system")


def _pair(given: Given) -> str:
    return _page("table", source=given.get("table", ""), to=given.get("to", ""))


_EXISTING = (
    ("refuse", "Stop if one of them exists"),
    ("append", "Add the rows to those that exist"),
    ("replace", "Replace those that exist: rows that are not in the backup are lost"),
)

ACTIONS: Mapping[str, FormAction] = {
    "cancel": FormAction(
        verb="cancel", label="Cancel", title="Cancel", to=_processes,
        consequence="Running tasks are stopped within seconds, and nothing is published. Files are kept for a retry.",
    ),
    "retry": FormAction(
        verb="retry", label="Retry", title="Run again",
        consequence="A new process does the work. It goes on from finished tasks where their files are still kept.",
    ),
    "verify": FormAction(
        verb="verify", label="Verify", title="Verify", to=_processes,
        consequence="Compares what was published with what was read. Changes nothing.",
        asks=(Ask(name="deep", label="Read every published file", kind="check", hint="slower, but certain"),),
    ),
    "halt": FormAction(
        verb="halt", label="Stop", title="Stop work", to=_system,
        consequence="Nothing of this kind starts, and what runs pauses before its next step, until somebody starts it again.",
        asks=(Ask(name="reason", label="Reason", hint="shown to others"),),
    ),
    "lift": FormAction(
        verb="lift", label="Start again", title="Start work again", to=_system,
        consequence="Work that waited goes on.",
    ),
    "export": FormAction(
        verb="export", label="Export", title="Export",
        consequence="Each partition is published as a snapshot, once. Partitions that are exported already and unchanged are skipped.",
    ),
    "optimize": FormAction(
        verb="optimize", label="Optimize", title="Optimize",
        consequence="Small files are merged into larger ones. Rows stay as they are; earlier snapshots stay readable until they expire.",
        asks=(Ask(name="full", label="Rewrite every file", kind="check"),),
    ),
    "doctor": FormAction(
        verb="doctor", label="Run doctor", title="Check the installation", to=_system,
        consequence="Asks every source, catalog and storage, and writes and deletes a probe object in each storage.",
    ),
    "support": FormAction(
        verb="support", label="Make a bundle", title="Support bundle",
        consequence="Collects versions, the configuration without secrets, processes, events, and what doctor finds: it asks every source, catalog and storage, and writes and deletes a probe object in each storage.",
    ),
    "look": FormAction(
        verb="partitions", label="Look now", title="Look again", to=_pair,
        consequence="Asks the source and the destination what they have now. Changes nothing.",
    ),
    "first_look": FormAction(
        verb="partitions", label="Look at its partitions", title="Export a table", to=_pair,
        leads=True, always={"gone": True, "keep": True},
        consequence="Asks the source and the destination what they have, and shows the partitions to choose from. Writes nothing to either: an export is started from its plan.",
        asks=(
            Ask(name="to", label="Destination", required=True,
                hint="as catalog.namespace.table, or a folder for plain Parquet, such as s3://bucket/folder/"),
        ),
    ),
    "backup_create": FormAction(
        verb="backup_create", label="Back up", title="Back up",
        consequence="Parts are frozen, copied and released. What an earlier backup has stored is not copied again.",
        asks=(
            Ask(name="name", label="Name", required=True),
            Ask(name="tables", label="Tables", hint="db.table or db.*", required=True),
            Ask(name="source", label="Source", hint="empty: the default one"),
        ),
    ),
    "backup_verify": FormAction(
        verb="backup_verify", label="Verify", title="Verify a backup",
        consequence="Checks that every object is there, and reads a share of them. Changes nothing.",
        asks=(Ask(name="read_share", label="Share to read", hint="0 to 1; 0 compares sizes only"),),
    ),
    "backup_restore": FormAction(
        verb="backup_restore", label="Restore", title="Restore a backup",
        consequence="Tables are made again from the backup.",
        asks=(
            Ask(name="into", label="Into the database", hint="another name than the original leaves that untouched"),
            Ask(name="existing", label="Tables that exist", kind="choice", choices=_EXISTING),
        ),
        typed=lambda given: str(given.get("name", "")) if given.get("existing") == "replace" else "",
    ),
    "backup_delete": FormAction(
        verb="backup_delete", label="Delete", title="Delete a backup",
        consequence="What no other backup uses is deleted. It cannot be undone.",
        typed=lambda given: str(given.get("name", "")),
    ),
}  # fmt: skip


def consequence(name: str, processes: Sequence[Json]) -> str:
    """For the processes it is about, where their state makes a difference."""
    states = {one["state"] for one in processes}
    if name == "cancel" and states == {"PUBLISHING"}:
        return "It may be too late: it is being published. Calve makes sure that it is either published whole or never will be."
    if name == "cancel" and states and not states & {"PENDING", "RUNNING", "PUBLISHING"}:
        return "It has ended: there is nothing to cancel."
    if name == "retry" and states & {"PENDING", "RUNNING", "PUBLISHING"}:
        return "Some have not ended. Only processes that failed or were cancelled can run again."
    return ACTIONS[name].consequence
