"""How a verb is asked for in JSON, and how it answers in JSON.

Options are listed with the verb, not read from the kinds: a server starts without them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from calve.app.front import Json
from calve.model.errors import UsageError

if TYPE_CHECKING:
    from calve.app.calve import Calve

Given = Mapping[str, Any]
IDS = {"ids": list}
MOST = 1000  # of a list


@dataclass(frozen=True, kw_only=True)
class Served:
    answer: Callable[["Calve", Given], Any]
    options: Mapping[str, type] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    choices: Mapping[str, Sequence[str]] = field(default_factory=dict)


def by_ids(method: Callable[..., Any], shown: Callable[[Any], Any]) -> Served:
    return Served(
        options=IDS, required=("ids",), answer=lambda calve, given: shown(method(calve, given["ids"]))
    )


def listed(of: Callable[[Any], Json]) -> Callable[[Any], list[Json]]:
    return lambda found: [of(one) for one in found]


def limited(given: Given, default: int) -> int:
    return int(min(max(given.get("limit", default), 1), MOST))


def limited_whole(given: Given, default: int) -> int:
    """Of a list that does not say whether it goes on."""
    if given.get("limit", 0) > MOST:
        raise UsageError(
            f"limit is larger than {MOST}",
            code="bad_option",
            hint="ask for the rest after the last one: after=ID",
        )
    return limited(given, default)
