"""On an executor: parts of a backup, fetched with every byte checked, then attached like any other."""

import hashlib
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from calve.archive.location import Location, segment
from calve.archive.manifest import PartEntry
from calve.archive.parts import fetch
from calve.archive.source import SEPARATOR
from calve.clickhouse.engine.engine import Engine
from calve.clickhouse.engine.folders import shared
from calve.clickhouse.engine.scratch import attached
from calve.clickhouse.reader import Opened, Read
from calve.destination.plan import PartPlan
from calve.objects.storage import Storage


@contextmanager
def opened(engine: Engine, read: Read) -> Iterator[Opened]:
    """See `clickhouse.reader`."""
    storage = Storage(read.access, connect_seconds=read.connect_seconds, call_seconds=read.call_seconds)
    location = Location(read.relation.detail["location"], storage)
    ranged = _ranged(read)
    with ExitStack() as stack:
        # if we die here, the folder is swept with the engine's
        own = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=engine.scratch)))
        paths = []
        for at, part in enumerate(read.parts):
            if at in ranged:
                folder = stack.enter_context(fetched_once(location, part))
            else:
                folder = own / str(at)
                fetch(location, _stored(part), folder / segment(part.name))
            paths.append(str(folder / part.name))
        yield stack.enter_context(attached(engine, read.relation.create, paths)), paths


def _ranged(read: Read) -> frozenset[int]:
    """The parts of which other tasks read the rest."""
    return frozenset(
        piece.part for piece in read.slices if piece.start > 0 or piece.end < read.parts[piece.part].rows
    )


def fetched_once(location: Location, part: PartPlan) -> AbstractContextManager[Path]:
    """A huge part is read by many tasks: a machine fetches it once for all of them. What is stored
    never changes, so its place and the hash of its index identify it."""
    key = hashlib.sha256(f"{location.url}\n{part.path}\n{part.name}".encode()).hexdigest()[:32]
    return shared(key, lambda folder: fetch(location, _stored(part), folder / segment(part.name)))


def _stored(part: PartPlan) -> PartEntry:
    """What to fetch, from what the plan says of a part."""
    place, _, index_sha256 = part.path.rpartition(SEPARATOR)
    return PartEntry(
        name=part.name,
        partition_id=part.partition_id,
        rows=part.rows,
        rows_seen=part.rows,
        bytes=part.bytes,
        address=place.rsplit("/", 1)[-1],
        min_block=part.min_block,
        max_block=part.max_block,
        level=part.level,
        mutation=0,
        data_version=part.data_version,
        content=part.content,
        place=place,
        index_sha256=index_sha256,
    )
