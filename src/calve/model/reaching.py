"""Whether a worker can do a process: its configuration reaches what is needed, its program knows the kind.

During an upgrade an older worker meets processes of a newer kind. It must leave them alone: failing
them would be final. So a worker's reach also names the kinds it knows, as `kind:<name>`; a reach
that names none is taken to know all.
"""

from collections.abc import Collection, Iterable

from calve.model.process import Process

_KIND = "kind:"


def with_kinds(reach: frozenset[str], kinds: Iterable[str]) -> frozenset[str]:
    """A reach that also says which kinds its program knows."""
    return reach | {f"{_KIND}{name}" for name in kinds}


def kinds_in(reach: Collection[str]) -> frozenset[str] | None:
    """The kinds that a reach names; None where it names none, and so knows all."""
    named = frozenset(item.removeprefix(_KIND) for item in reach if item.startswith(_KIND))
    return named or None


def reaches(reach: Collection[str], process: Process) -> bool:
    kinds = kinds_in(reach)
    return set(process.needs) <= set(reach) and (kinds is None or process.kind in kinds)


def without_kinds(reach: Collection[str]) -> list[str]:
    """What a configuration reaches, for people."""
    return sorted(item for item in reach if not item.startswith(_KIND))
