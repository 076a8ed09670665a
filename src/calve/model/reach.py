"""What a worker reaches and a process needs: the names of outside services, and whether they meet; and when two
locks meet.

During an upgrade an older worker meets processes of a newer kind. It must leave them alone: failing
them would be final. So a worker's reach also names the kinds it knows, as `kind:<name>`; a reach
that names none is taken to know all.

Locks meet if they have the same name, or one is a piece of the other, or two pieces overlap.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable
from enum import StrEnum

from calve.model.process import Process, ProcessId

_KIND = "kind:"


class ServiceType(StrEnum):
    SOURCE = "source"
    CATALOG = "catalog"
    STORAGE = "storage"
    BACKUP = "backup"
    SPARK = "spark"


class Service(str):
    """Something outside that a process needs, a worker's configuration reaches, and that can be down.
    A string of the form `type:name`, because that is how it is stored and shown."""

    __slots__ = ()

    @property
    def is_source(self) -> bool:
        return self.startswith(f"{ServiceType.SOURCE}:")

    @property
    def is_spark(self) -> bool:
        """What runs the tasks of the workers that reach it, whatever their processes need."""
        return self.startswith(f"{ServiceType.SPARK}:")

    @property
    def type(self) -> ServiceType:
        return ServiceType(self.partition(":")[0])

    @property
    def name(self) -> str:
        return self.partition(":")[2]


def source(name: str) -> Service:
    return Service(f"{ServiceType.SOURCE}:{name}")


def catalog(name: str) -> Service:
    return Service(f"{ServiceType.CATALOG}:{name}")


def storage(prefix: str) -> Service:
    return Service(f"{ServiceType.STORAGE}:{prefix}")


def is_folder(destination: str) -> bool:
    """Whether a destination, as typed or as stored, is a folder of a storage. If not, it is a table of a catalog,
    whose name never has a `/`."""
    return "/" in destination


def backup(url: str) -> Service:
    return Service(f"{ServiceType.BACKUP}:{url.rstrip('/')}")


def spark(master: str) -> Service:
    return Service(f"{ServiceType.SPARK}:{master}")


def with_kinds(reach: frozenset[str], kinds: Iterable[str]) -> frozenset[str]:
    """A reach that also says which kinds its program knows."""
    return reach | {f"{_KIND}{name}" for name in kinds}


def kinds_in(reach: Collection[str]) -> frozenset[str] | None:
    """The kinds that a reach names; None where it names none, and so knows all."""
    named = frozenset(item.removeprefix(_KIND) for item in reach if item.startswith(_KIND))
    return named or None


def sources_in(reach: Collection[str]) -> frozenset[str]:
    """The names of the sources that a reach has."""
    return frozenset(Service(item).name for item in reach if Service(item).is_source)


def reaches(reach: Collection[str], process: Process) -> bool:
    if process.damaged:
        return False  # nobody works on it
    kinds = kinds_in(reach)
    return set(process.needs) <= set(reach) and (kinds is None or process.kind in kinds)


def without_kinds(reach: Collection[str]) -> list[str]:
    """What a configuration reaches, for people."""
    return sorted(item for item in reach if not item.startswith(_KIND))


_PIECE = re.compile(r"([0-9a-f]{32})#(\d+)-(\d+)")
MARK = "#"  # in the name of every piece, and hardly in another


def piece_of(whole: str, first: int, last: int) -> str:
    """The lock on a piece of `whole`, which is a hash of 32 digits."""
    name = f"{whole}{MARK}{first}-{last}"
    assert _PIECE.fullmatch(name), name
    return name


def whole_of(name: str) -> str:
    """What a lock is a piece of; itself, if it is none."""
    piece = _PIECE.fullmatch(name)
    return piece[1] if piece else name


def meet(one: str, other: str) -> bool:
    """Whether the two may not be held at the same time."""
    mine, theirs = _PIECE.fullmatch(one), _PIECE.fullmatch(other)
    if mine is None or theirs is None:
        return whole_of(one) == whole_of(other)
    return mine[1] == theirs[1] and int(mine[2]) <= int(theirs[3]) and int(theirs[2]) <= int(mine[3])


def first_conflict(
    wanted: Iterable[tuple[str, ProcessId]], held: Iterable[tuple[str, ProcessId]]
) -> tuple[str, ProcessId] | None:
    """A held lock, and its holder, that meets one which another process wants. Wanted locks meet each
    other too; a process meets none of its own."""
    known = _by_whole(held)
    for name, process_id in wanted:
        others = known[whole_of(name)]
        for other, holder in others:
            if holder != process_id and meet(name, other):
                return other, holder
        others.append((name, process_id))
    return None


def _by_whole(
    held: Iterable[tuple[str, ProcessId]],
) -> defaultdict[str, list[tuple[str, ProcessId]]]:
    found: defaultdict[str, list[tuple[str, ProcessId]]] = defaultdict(list)
    for name, holder in held:
        found[whole_of(name)].append((name, holder))
    return found
