"""What a worker reaches and a process needs: the names of outside services, and whether they meet.

During an upgrade an older worker meets processes of a newer kind. It must leave them alone: failing
them would be final. So a worker's reach also names the kinds it knows, as `kind:<name>`; a reach
that names none is taken to know all.
"""

from collections.abc import Collection, Iterable
from enum import StrEnum

from calve.model.process import Process

_KIND = "kind:"


class ServiceType(StrEnum):
    SOURCE = "source"
    CATALOG = "catalog"
    STORAGE = "storage"
    BACKUP = "backup"


class Service(str):
    """Something outside that a process needs, a worker's configuration reaches, and that can be down.
    A string of the form `type:name`, because that is how it is stored and shown."""

    __slots__ = ()

    @property
    def is_source(self) -> bool:
        return self.startswith(f"{ServiceType.SOURCE}:")

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


def backup(url: str) -> Service:
    return Service(f"{ServiceType.BACKUP}:{url.rstrip('/')}")


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
    kinds = kinds_in(reach)
    return set(process.needs) <= set(reach) and (kinds is None or process.kind in kinds)


def without_kinds(reach: Collection[str]) -> list[str]:
    """What a configuration reaches, for people."""
    return sorted(item for item in reach if not item.startswith(_KIND))
