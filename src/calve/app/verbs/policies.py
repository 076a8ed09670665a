"""Verbs of policies: what moves by rule, what holds it, and the ways back."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext

from calve.app import view
from calve.app.front import Json, Submitted
from calve.app.verbs.opened import Opened
from calve.app.verbs.served import Served


class PolicyVerbs(Opened):
    def policy_list(self) -> list[Json]:
        from calve.app.policies import documents

        return documents.policy_list(self._app)

    def policy_show(self, name: str) -> Json:
        from calve.app.policies import documents

        return documents.policy_show(self._app, name)

    def policy_explain(self, table: str, partition: str) -> list[Json]:
        from calve.app.policies import documents

        return documents.policy_explain(self._app, table, partition)

    def policy_run(self, name: str, *, dry_run: bool = False) -> Json:
        from calve.app.policies import documents

        with nullcontext() if dry_run else self._audited("policy_run", name):
            return documents.policy_run(self._app, name, dry_run=dry_run)

    def policy_pause(self, name: str, *, reason: str = "") -> Json:
        from calve.app.policies import documents

        return documents.policy_pause(self._app, name, reason, self._asking("policy_pause", name))

    def policy_resume(self, name: str) -> Json:
        from calve.app.policies import documents

        return documents.policy_resume(self._app, name, self._asking("policy_resume", name))

    def policy_approve(self, name: str, *, dry_run: bool = False, revoke: bool = False) -> Json:
        """Allow a policy, as it is, to move partitions out of their tables; and what will leave. `revoke`: no longer."""
        from calve.app.policies import consent

        asked = self._asking("policy_approve", name)
        if revoke and not dry_run:
            return consent.policy_revoke(self._app, name, asked)
        return consent.policy_approve(self._app, name, asked, dry_run=dry_run)

    def policy_drop(self, table: str, partitions: Sequence[str], *, approve: str = "") -> Json:
        """The plan of deleting partitions that are in quarantine; with its hash as `approve`, begun."""
        from calve.app.policies import consent

        about = f"{table} {' '.join(partitions)}"
        asked = self._asking("policy_drop", about)
        return consent.policy_drop(
            self._app, self._store("policy_drop", about), table, partitions, asked, approve=approve
        )

    def policy_undo(self, table: str, partition: str, *, force: bool = False) -> Submitted:
        """Bring a partition back out of quarantine. `force`: though rows came, or were deleted, since it left."""
        from calve.app.policies import consent

        store = self._store("policy_undo", f"{table} {partition}")
        return consent.policy_undo(self._app, store, table, partition, force=force)

    def untier(self, table: str, partition: str, *, to: str = "") -> Submitted:
        """Bring a partition back from the lake table `to`, into its table, where it has no rows. "": the one that it was
        exported to."""
        from calve.app.policies import untier

        store = self._store("untier", f"{table} {partition}")
        return untier.untier(self._app, store, table, partition, to)

    def hold_add(
        self, table: str, partition: str = "", *, reason: str, until: str = "", force: bool = False
    ) -> Json:
        """Keep rows where they are; `until` is a span or a time. `force`: also a name that matches nothing now."""
        from calve.app.policies import holds

        asked = self._asking("hold_add", f"{table} {partition}".strip())
        return holds.hold_add(
            self._app, table, partition, reason=reason, until=until, force=force, asked=asked
        )

    def hold_list(self, table: str = "", *, every: bool = False) -> list[Json]:
        """Those that stand; `every`: also released and expired ones."""
        from calve.app.policies import holds

        return holds.hold_list(self._app, table, every=every)

    def hold_release(self, id: str) -> Json:
        from calve.app.policies import holds

        return holds.hold_release(self._app, id, self._asking("hold_release", id))


SERVED: Mapping[str, Served] = {
    "policy_list": Served(answer=lambda calve, _: calve.policy_list()),
    "policy_show": Served(
        answer=lambda calve, given: calve.policy_show(given["name"]), options={"name": str}, required=("name",)
    ),
    "policy_explain": Served(
        answer=lambda calve, given: calve.policy_explain(given["table"], given["partition"]),
        options={"table": str, "partition": str}, required=("table", "partition"),
    ),
    "policy_run": Served(
        answer=lambda calve, given: calve.policy_run(given["name"], dry_run=given.get("dry_run", False)),
        options={"name": str, "dry_run": bool}, required=("name",),
    ),
    "policy_pause": Served(
        answer=lambda calve, given: calve.policy_pause(given["name"], reason=given.get("reason", "")),
        options={"name": str, "reason": str}, required=("name",),
    ),
    "policy_resume": Served(
        answer=lambda calve, given: calve.policy_resume(given["name"]), options={"name": str}, required=("name",)
    ),
    "policy_approve": Served(
        answer=lambda calve, given: calve.policy_approve(
            given["name"], dry_run=given.get("dry_run", False), revoke=given.get("revoke", False)
        ),
        options={"name": str, "dry_run": bool, "revoke": bool}, required=("name",),
    ),
    "policy_drop": Served(
        answer=lambda calve, given: calve.policy_drop(
            given["table"], given["partitions"], approve=given.get("approve", "")
        ),
        options={"table": str, "partitions": list, "approve": str}, required=("table", "partitions"),
    ),
    "policy_undo": Served(
        answer=lambda calve, given: view.submitted_json(
            calve.policy_undo(given["table"], given["partition"], force=given.get("force", False))
        ),
        options={"table": str, "partition": str, "force": bool}, required=("table", "partition"),
    ),
    "untier": Served(
        answer=lambda calve, given: view.submitted_json(
            calve.untier(given["table"], given["partition"], to=given.get("to", ""))
        ),
        options={"table": str, "partition": str, "to": str}, required=("table", "partition"),
    ),
    "hold_add": Served(
        answer=lambda calve, given: calve.hold_add(
            given["table"], given.get("partition", ""), reason=given["reason"], until=given.get("until", ""),
            force=given.get("force", False),
        ),
        options={"table": str, "partition": str, "reason": str, "until": str, "force": bool},
        required=("table", "reason"),
    ),
    "hold_list": Served(
        answer=lambda calve, given: calve.hold_list(given.get("table", ""), every=given.get("every", False)),
        options={"table": str, "every": bool},
    ),
    "hold_release": Served(
        answer=lambda calve, given: calve.hold_release(given["id"]), options={"id": str}, required=("id",)
    ),
}  # fmt: skip
