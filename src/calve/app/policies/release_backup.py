"""Backups that have what is in quarantine: found, checked, and kept while the lake's copy has no other."""

from collections.abc import Iterable
from dataclasses import replace

from calve.app.wiring import App
from calve.archive import backups as archived
from calve.archive.manifest import Manifest, TableEntry
from calve.backup import verification
from calve.clickhouse.tier.quarantine import DATABASE
from calve.model.errors import RefusedError
from calve.model.states import ReleaseState
from calve.model.tier import Release
from calve.policy.release.plan import ReleasePlan

_KEPT = frozenset({ReleaseState.DROPPING, ReleaseState.DROPPED})


def backup_of(app: App, plan: ReleasePlan, release: Release) -> str:
    """The newest backup that has the quarantine, by its name and its rows; "" for none."""
    found = [one.manifest for one in archived.listed(app.backups()) if one.manifest]
    names = [one.name for one in found if _entry(one, plan, release) is not None]
    return names[-1] if names else ""


def check_backup(app: App, plan: ReleasePlan, release: Release, backup: str, *, read: bool) -> None:
    """RefusedError unless it has the quarantine, whole; with `read`, every byte of it is read back."""
    location = app.backups()
    manifest = archived.find(location, backup)
    entry = _entry(manifest, plan, release)
    if entry is None:
        raise RefusedError(
            f"backup {backup} does not have the {release.rows} rows of {release.place}",
            code="no_backup",
            hint=backup_line(release),
        )
    proof = verification.verify(location, replace(manifest, tables=(entry,)), read_share=1.0 if read else 0.0)
    if proof.flaws:
        raise RefusedError(
            f"backup {backup} is damaged: {proof.flaws[0].problem.object} {proof.flaws[0].problem.what}",
            code="backup_damaged",
            hint=f"calve backup verify {backup}",
        )


def backup_line(release: Release) -> str:
    """The command that backs it up."""
    pattern = release.place.replace("`", "")
    return f"calve backup create NAME --tables '{pattern}'"


def _entry(manifest: Manifest, plan: ReleasePlan, release: Release) -> TableEntry | None:
    """A place is of one attempt alone, and closed since: its name and its rows say which it is."""
    name = (DATABASE, f"{plan.uuid}_{release.attempt}")
    found = next((one for one in manifest.tables if one.full_name == name), None)
    return found if found is not None and found.rows == release.rows else None


def needed(app: App, backups: Iterable[str]) -> dict[str, Release]:
    """Those among them that are kept for rows which were dropped, each with one such release."""
    wanted = set(backups)
    return {one.backup: one for one in app.registry.releases_in(_KEPT) if one.backup in wanted}
