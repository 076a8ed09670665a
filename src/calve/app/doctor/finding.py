"""What a probe found."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Finding:
    part: str  # "store", "source:main", "catalog:lake", …
    ok: bool
    words: str
    remedy: str = ""
    warning: bool = False  # nothing fails because of it, but it should be looked at
