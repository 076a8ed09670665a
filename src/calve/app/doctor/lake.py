"""Probes of what exactly-once rests on: a catalog that holds assertions, a storage that puts only if absent.

The quirks of storages that are nearly S3 are named here, each with what to do.
"""

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from calve.app.doctor.finding import Finding
from calve.app.wiring import App
from calve.model.errors import CalveError
from calve.model.process import new_process_id
from calve.objects.uri import Uri

if TYPE_CHECKING:
    from calve.iceberg.catalogs.guards import CommitGuard
    from calve.objects.storage import Storage

_LOOKED_AT = 10  # tables, for one that has rows


def commits(app: App, *, name: str) -> Iterator[Finding]:
    """Commits that must be refused, to one table. Nothing is published."""
    from calve.app.optimizer import all_tables
    from calve.iceberg import tables
    from calve.iceberg.catalogs.guards import GuardedCatalog
    from calve.iceberg.errors import catalog_call
    from calve.iceberg.publish.commit import CommitAnswer
    from calve.iceberg.publish.probe import let_through

    part = f"commits:{name}"
    catalog = app.catalog(name)
    found = [tables.load(catalog, identifier) for identifier in islice(all_tables(catalog), _LOOKED_AT)]
    if not found:
        yield Finding(part=part, ok=True, words="no table yet whose commits could be probed")
        return
    table = next((one for one in found if one.metadata.refs), found[0])
    shown = ".".join((name, *table.name()))
    ok = True
    for words, reply in let_through(catalog, table):
        ok = False
        if reply.answer is CommitAnswer.LANDED:
            yield Finding(
                part=part,
                ok=False,
                words=f"the catalog applied a commit to {shown} that asserted something false ({words}):"
                " exports there are not exactly once, and another writer's rows can be lost",
                remedy="stop exporting there; see docs/catalogs.md for what each catalog promises",
            )
        else:
            why = reply.error.message if reply.error else reply.answer.value
            yield Finding(
                part=part,
                ok=True,
                warning=True,
                words=f"whether the catalog asserts {words} is not known: {why}",
                remedy="the catalog neither refused nor applied a commit that it must refuse; see docs/catalogs.md",
            )
    if ok:
        yield Finding(part=part, ok=True, words=f"{shown}: commits with false assertions are refused")
    if not isinstance(catalog, GuardedCatalog):
        return
    try:
        with catalog_call(name, "probing"):
            guard = catalog.guard(table.name())
    except CalveError as error:
        words = f"what guards commits to {shown} is not known: {error.message}"
        yield Finding(part=part, ok=True, warning=True, words=words, remedy=error.hint)
        return
    yield from _guarded(part, shown, guard)


def _guarded(part: str, shown: str, guard: "CommitGuard") -> Iterator[Finding]:
    from calve.iceberg.catalogs.guards import CommitGuard

    if guard is CommitGuard.NOTHING:
        yield Finding(
            part=part,
            ok=False,
            words=f"the catalog applied a change to {shown} that was made from another version of the table:"
            " of two writers at once, one loses its rows",
            remedy="stop exporting there; an emulator may be like this: see docs/catalogs.md for what the real one promises",
        )
    if guard is CommitGuard.LOCK:
        yield Finding(
            part=part,
            ok=True,
            warning=True,
            words=f"commits to {shown} are guarded by a lock alone, which the metastore takes away from a program"
            " that is silent for minutes: if it then wakes, it undoes the commits of others",
            remedy="use a metastore that compares the metadata file (HIVE-26882: 2.3.10, 4.0): see docs/catalogs.md#what-follows",
        )


def writable(app: App, part: str, name: str, place: str) -> Iterator[Finding]:
    """An object can be put once, seen, read and removed again. What a storage lacks is said by name."""
    storage = app.storage(name)
    folder = Uri.parse(place) / f"_calve/doctor-{new_process_id()}"
    probe, parts = str(folder / "probe"), str(folder / "parts")
    # If we die here, an object of a few bytes is left, whose name says whose it is.
    storage.put_if_absent(probe, b"calve doctor")
    try:
        if storage.put_if_absent(probe, b"again") or storage.read(probe) != b"calve doctor":
            yield Finding(
                part=part,
                ok=False,
                words=f"{place}: the storage replaces an object that must not be replaced"
                " (it ignores If-None-Match): of two attempts, both would win",
                remedy="use a storage with conditional puts, or turn them on: docs/object-storage.md#nearly-s3",
            )
        if probe not in storage.list(str(folder)):
            yield Finding(
                part=part,
                ok=False,
                words=f"{place}: the storage does not list an object that was just put there",
                remedy="switch off the cache in front of it; files that are not listed are not found",
            )
        yield from _in_parts(storage, part, place, parts)
    finally:
        storage.delete([probe, parts])


def _in_parts(storage: "Storage", part: str, place: str, uri: str) -> Iterator[Finding]:
    """Large files are uploaded so; an upload of one small part asks for the same abilities."""
    try:
        # If we die here: as above.
        storage.write(lambda: [b"calve doctor"], uri)
    except CalveError as error:
        if error.code != "storage_unsupported":
            raise
        yield Finding(
            part=part,
            ok=False,
            words=f"{place}: the storage takes no upload in parts (multipart), as files above 5 MB are sent: {error.message}",
            remedy="use a storage with multipart uploads, or turn them on: docs/object-storage.md#nearly-s3",
        )


def written_by_pyiceberg(app: App, part: str, name: str, place: str) -> Iterator[Finding]:
    """A catalog's metadata is written by another client than its data, which asks more of a storage."""
    from pyiceberg.io import load_file_io

    from calve.destination.file_io import bounded
    from calve.iceberg.errors import catalog_call

    probe = str(Uri.parse(place) / f"_calve/doctor-{new_process_id()}/metadata")
    io = load_file_io(bounded(app.catalog_properties(name)), probe)
    try:
        # If we die here, an object of a few bytes is left, whose name says whose it is.
        with catalog_call(name, "writing metadata"), io.new_output(probe).create() as file:
            file.write(b"calve doctor")
        app.storage(name).delete([probe])  # Arrow would leave an empty folder behind
    except CalveError as error:
        yield Finding(
            part=part,
            ok=False,
            words=f"{place} can be written by Calve, but not by PyIceberg's client: {error.message}",
            remedy="a storage that is not AWS may refuse the checksums that it adds: set"
            " AWS_REQUEST_CHECKSUM_CALCULATION=when_required for every program;"
            " see docs/object-storage.md#nearly-s3",
        )
