"""What a probe found, and how bad it is."""

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    OK = "ok"
    WARNING = "warning"  # nothing fails because of it, but it should be looked at
    ERROR = "error"  # something does not work


@dataclass(frozen=True, kw_only=True)
class Finding:
    part: str  # "store", "source:main", "catalog:lake", …
    ok: bool
    words: str
    remedy: str = ""
    warning: bool = False

    @property
    def severity(self) -> Severity:
        if not self.ok:
            return Severity.ERROR
        return Severity.WARNING if self.warning else Severity.OK
