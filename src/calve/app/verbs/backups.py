"""Verbs of backups, of what restores and proves them, and of schedules, which make them by rule."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any

from calve.app import view
from calve.app.front import DRILL_BYTES, Json, Submitted
from calve.app.verbs.opened import Opened
from calve.app.verbs.served import Given, Served
from calve.model.errors import NotFoundError
from calve.model.process import ProcessId

if TYPE_CHECKING:
    from calve.app.calve import Calve
    from calve.app.values import BackupOptions, Keep, RestoreOptions


class BackupVerbs(Opened):
    def backup_list(self, *, contents: bool = False) -> Json:
        """`backups`, oldest first, damaged ones too; what they take together, shared parts once; and those
        that are encrypted with a key that is not configured. `contents`: with the partitions of each table in
        the newest of them."""
        from calve.app.backups import documents, facts, requests

        location = self.config.backup_url
        document = documents.backups_json(location, requests.entries(self._app), contents=contents)
        proofs = facts.restored(self.registry, location, document["backups"])
        for one in document["backups"]:
            proof = proofs.get(one["name"])
            one["restored_at"] = view.time_json(proof.at) if proof else None
        return document

    def backup_show(self, name: str) -> Json:
        from calve.app.backups import documents, requests

        return documents.backup_detail_json(requests.entry(self._app, name))

    def backup_verify(self, name: str, *, read_share: float = 0.0) -> Json:
        from calve.app.backups import documents, requests

        found = requests.verify(self._app, name, read_share=read_share)
        with suppress(NotFoundError):  # a backup that another store knows
            process = self._app.store.process(ProcessId(found.process_id))
            faults = [f"{one.problem.object}: {one.problem.what}" for one in found.flaws]
            self._proven(process.id, faults, depth=f"{read_share:.0%} of the data")
        return documents.verified_json(found)

    def backup_create(
        self, name: str, tables: Sequence[str], options: "BackupOptions | None" = None, *, source: str = ""
    ) -> Submitted:
        from calve.app.backups import requests

        return requests.create(
            self._app, self._store("backup_create", name), name, tables, options, source=source
        )

    def backup_restore(
        self, name: str, options: "RestoreOptions | None" = None, *, source: str = ""
    ) -> Submitted:
        from calve.app.backups import requests

        return requests.restore(self._app, self._store("backup_restore", name), name, options, source=source)

    def restore_preview(
        self, name: str, options: "RestoreOptions | None" = None, *, source: str = ""
    ) -> Json:
        """What a restore would make, and what stands in its way."""
        from calve.app.backups import documents, requests

        return documents.restore_preview_json(
            requests.restore_preview(self._app, name, options, source=source)
        )

    def backup_drill(self, name: str, *, restore_bytes: int = DRILL_BYTES) -> Submitted:
        """Restore a sample of a backup into an engine of a worker, compare it, and remove it."""
        from calve.app.backups import drills

        return drills.drill(self._app, self._store("backup_drill", name), name, restore_bytes=restore_bytes)

    def backup_delete(self, name: str) -> Json:
        from calve.app.backups import documents, requests

        with self._audited("backup_delete", name):
            return documents.deleted_json(requests.delete_backup(self._app, name))

    def backup_prune(self, keep: "Keep", *, dry_run: bool = False) -> Json:
        from calve.app.backups import documents, requests

        with nullcontext() if dry_run else self._audited("backup_prune", self.config.backup_url):
            return documents.pruned_json(requests.prune(self._app, keep, dry_run=dry_run), dry_run=dry_run)

    def schedule_list(self) -> list[Json]:
        """Backups by rule."""
        from calve.app.backups import schedule_view

        return schedule_view.schedule_list(self._app)

    def schedule_show(self, name: str) -> Json:
        from calve.app.backups import schedule_view

        return schedule_view.schedule_show(self._app, name)

    def schedule_run(self, name: str) -> Submitted:
        """One more backup of the schedule, now."""
        from calve.app.backups import schedules

        asked = self._asking("schedule_run", name)
        return Submitted(processes=(schedules.run_now(self._app, self.config.schedule(name), asked),))

    def schedule_pause(self, name: str, *, reason: str = "") -> Json:
        from calve.app.backups import schedule_view

        return schedule_view.schedule_pause(self._app, name, reason, self._asking("schedule_pause", name))

    def schedule_resume(self, name: str) -> Json:
        from calve.app.backups import schedule_view

        return schedule_view.schedule_resume(self._app, name, self._asking("schedule_resume", name))


_RESTORE = {
    "name": str, "source": str, "tables": list, "into": str, "schema_only": bool, "data_only": bool,
    "existing": str, "partitions": list, "unsigned": bool, "rbac": bool, "without_row_policies": bool,
    "again": bool, "plan_hash": str,
}  # fmt: skip


def _backup_create(calve: "Calve", given: Given) -> Json:
    from calve.app.values import BackupOptions

    own = {name: value for name, value in given.items() if name not in ("name", "tables", "source")}
    made = calve.backup_create(
        given["name"], given["tables"], BackupOptions(**own), source=given.get("source", "")
    )
    return view.submitted_json(made)


def _restoring(given: Given) -> Any:
    from calve.app.values import RestoreOptions

    return RestoreOptions(**{name: value for name, value in given.items() if name not in ("name", "source")})


def _backup_restore(calve: "Calve", given: Given) -> Json:
    made = calve.backup_restore(given["name"], _restoring(given), source=given.get("source", ""))
    return view.submitted_json(made)


def _backup_prune(calve: "Calve", given: Given) -> Json:
    from calve.app.values import Keep

    keep = Keep(**{name: value for name, value in given.items() if name != "dry_run"})
    return calve.backup_prune(keep, dry_run=given.get("dry_run", False))


SERVED: Mapping[str, Served] = {
    "backup_list": Served(
        answer=lambda calve, given: calve.backup_list(contents=given.get("contents", False)), options={"contents": bool}
    ),
    "backup_show": Served(
        answer=lambda calve, given: calve.backup_show(given["name"]), options={"name": str}, required=("name",)
    ),
    "backup_verify": Served(
        answer=lambda calve, given: calve.backup_verify(given["name"], read_share=given.get("read_share", 0.0)),
        options={"name": str, "read_share": float}, required=("name",),
    ),
    "backup_create": Served(
        answer=_backup_create, required=("name", "tables"), choices={"mutations": ("refuse", "wait")},
        options={"name": str, "tables": list, "source": str, "partitions": list, "mutations": str,
                 "ignore_row_policies": bool, "rbac": bool},
    ),
    "backup_restore": Served(
        answer=_backup_restore, required=("name",), choices={"existing": ("refuse", "append", "replace")},
        options=_RESTORE,
    ),
    "restore_preview": Served(
        answer=lambda calve, given: calve.restore_preview(
            given["name"], _restoring(given), source=given.get("source", "")
        ),
        required=("name",), choices={"existing": ("refuse", "append", "replace")}, options=_RESTORE,
    ),
    "backup_drill": Served(
        answer=lambda calve, given: view.submitted_json(
            calve.backup_drill(given["name"], restore_bytes=given.get("restore_bytes", DRILL_BYTES))
        ),
        options={"name": str, "restore_bytes": int}, required=("name",),
    ),
    "backup_delete": Served(
        answer=lambda calve, given: calve.backup_delete(given["name"]), options={"name": str}, required=("name",)
    ),
    "backup_prune": Served(
        answer=_backup_prune,
        options={"last": int, "daily": int, "weekly": int, "monthly": int, "yearly": int, "dry_run": bool},
    ),
    "schedule_list": Served(answer=lambda calve, _: calve.schedule_list()),
    "schedule_show": Served(
        answer=lambda calve, given: calve.schedule_show(given["name"]), options={"name": str}, required=("name",)
    ),
    "schedule_run": Served(
        answer=lambda calve, given: view.submitted_json(calve.schedule_run(given["name"])),
        options={"name": str}, required=("name",),
    ),
    "schedule_pause": Served(
        answer=lambda calve, given: calve.schedule_pause(given["name"], reason=given.get("reason", "")),
        options={"name": str, "reason": str}, required=("name",),
    ),
    "schedule_resume": Served(
        answer=lambda calve, given: calve.schedule_resume(given["name"]), options={"name": str}, required=("name",)
    ),
}  # fmt: skip
