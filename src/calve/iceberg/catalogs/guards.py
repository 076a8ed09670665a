"""What stands between the check of a commit and its change, where PyIceberg makes both: one of two calls may come late."""

from enum import Enum
from typing import Protocol, runtime_checkable

from pyiceberg.typedef import Identifier


class CommitGuard(Enum):
    VERSION = "the change names what was read, and is refused if that is gone"
    LOCK = "a lock alone"
    NOTHING = "nothing"


@runtime_checkable
class GuardedCatalog(Protocol):
    """A catalog that can find it out, by a change that alters nothing and must be refused."""

    def guard(self, identifier: Identifier) -> CommitGuard: ...
