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
    answer: str = ""  # the template that shows what was answered; "" leads back
    shows_leaving: bool = (
        False  # its confirmation lists what would leave its table, from the policy's document
    )


def _page(name: str, /, **given: Any) -> str:
    return target(PATHS[name], given)


def _processes(given: Given) -> str:
    ids = given.get("ids", ())
    return _page("sheet", id=ids[0]) if len(ids) == 1 else _page("page")


def _vault(_: Given) -> str:
    return _page("vault")


def _system(_: Given) -> str:
    return _page("system")


def _pair(given: Given) -> str:
    return _page("table", source=given.get("table", ""), to=given.get("to", ""))


def _policy(given: Given) -> str:
    return _page("policy", name=given["name"]) if given.get("name") else _page("policies")


def _listed(given: Given) -> str:
    return " ".join(given.get("partitions", ()))


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
    "policy_due": FormAction(
        verb="policy_run", label="Look now", title="What is due", to=_policy, always={"dry_run": True}, answer="moved.html",
        consequence="Asks the policy's tables and destinations what they have now, and says what would start. Starts nothing.",
    ),
    "policy_run": FormAction(
        verb="policy_run", label="Run now", title="Run a policy", to=_policy, answer="moved.html",
        consequence="Looks now, and starts what is due, whatever the policy's window says. Its limits hold, and nothing leaves a table without approval.",
    ),
    "policy_pause": FormAction(
        verb="policy_pause", label="Pause", title="Pause a policy", to=_policy,
        consequence="This policy exports, proves and releases nothing more until somebody resumes it. Work under way continues.",
        asks=(Ask(name="reason", label="Reason", hint="for others who see that it is paused"),),
    ),
    "policy_resume": FormAction(
        verb="policy_resume", label="Resume", title="Resume a policy", to=_policy,
        consequence="What is due is started by the next worker that looks.",
    ),
    "policy_approve": FormAction(
        verb="policy_approve", label="Approve", title="Let partitions leave", to=_policy, shows_leaving=True,
        consequence="Workers may move proven partitions out of these tables, into a quarantine at the source, from which they can be brought back. Another rule, table or destination is asked for again.",
    ),
    "policy_undo": FormAction(
        verb="policy_undo", label="Bring back", title="Bring a partition back",
        consequence="Its rows go from quarantine back into the table, and are compared; a view then reads the table again. It leaves again only after a new export with --force.",
        asks=(Ask(name="force", label="Although rows came or were deleted since it left", kind="check", hint="needs an admin; erased rows would return"),),
    ),
    "policy_drop_plan": FormAction(
        verb="policy_drop", label="See the plan", title="Drop from quarantine", to=_policy, answer="moved.html",
        consequence="Says what would be deleted, and which backup has it. Deletes nothing.",
    ),
    "policy_drop": FormAction(
        verb="policy_drop", label="Drop", title="Drop from quarantine", to=_policy, answer="moved.html", typed=_listed,
        consequence="The rows are deleted at the source, for good: the destination then has them, and the backup that is named. Everything is proven again first.",
    ),
    "untier": FormAction(
        verb="untier", label="Bring back", title="Bring a partition back from the lake",
        consequence="Its rows are read from the lake, compared, and moved into the table, where the partition must be empty. A hold then keeps it there. The lake keeps its copy.",
    ),
    "hold_add": FormAction(
        verb="hold_add", label="Hold", title="Hold rows", to=_policy, answer="moved.html",
        consequence="No policy replaces these rows or moves them out of their table while the hold is in place. Exports and proofs continue.",
        asks=(
            Ask(name="table", label="Table", hint="db.table, or source:db.table", required=True),
            Ask(name="partition", label="Partition", hint="its id or value; empty: the whole table"),
            Ask(name="reason", label="Reason", hint="for others who see the hold", required=True),
            Ask(name="until", label="Until", hint="90d, or 2027-01-31; empty: until it is released"),
        ),
    ),
    "hold_release": FormAction(
        verb="hold_release", label="Release", title="Release a hold", to=_policy,
        consequence="Policies may replace these rows, or move them out of their table, unless another hold covers them.",
    ),
    "schedule_run": FormAction(
        verb="schedule_run", label="Back up now", title="One more backup", to=_vault,
        consequence="Makes a backup of the schedule's tables now, beside those that come by rule. It is kept by the same rules.",
    ),
    "schedule_pause": FormAction(
        verb="schedule_pause", label="Pause", title="Pause a schedule", to=_vault,
        consequence="This schedule starts no backup, proof or deletion until somebody resumes it. Work under way continues.",
        asks=(Ask(name="reason", label="Reason", hint="for others who see that it is paused"),),
    ),
    "schedule_resume": FormAction(
        verb="schedule_resume", label="Resume", title="Resume a schedule", to=_vault,
        consequence="One backup makes up for all that were missed.",
    ),
    "backup_drill": FormAction(
        verb="backup_drill", label="Drill", title="Restore a sample",
        consequence="A worker restores a sample into an engine of its own, compares it with what was backed up, and removes it. Nothing at the source is touched.",
        asks=(Ask(name="restore_bytes", label="At most this many bytes", hint="empty: 1 GB"),),
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
