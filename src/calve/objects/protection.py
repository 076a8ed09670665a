"""Whether a bucket keeps what is deleted or overwritten in it: versioning, and Object Lock.

Two requests that obstore does not make, signed as `lifecycle` signs its own. What cannot be read is said, never guessed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from xml.etree import ElementTree

import requests

from calve.objects import lifecycle
from calve.objects.credentials import S3Access
from calve.objects.errors import first_line
from calve.objects.storage import Bounds
from calve.objects.uri import LOCAL, S3, Uri

_NOT_LOCKED = "ObjectLockConfigurationNotFoundError"


@dataclass(frozen=True, kw_only=True)
class Protection:
    """None: it could not be read, and `words` say why."""

    versioned: bool | None
    locked: bool | None
    words: str

    @property
    def keeps(self) -> bool:
        """Nothing that is deleted there is lost at once."""
        return bool(self.versioned or self.locked)


def protection(place: str, properties: Mapping[str, str], bounds: Bounds) -> Protection:
    """Of the bucket that a location is in. Raises nothing: an answer that cannot be had is one of its answers."""
    uri = Uri.parse(place)
    if uri.kind == LOCAL:
        return Protection(versioned=False, locked=False, words="a local folder keeps nothing that is deleted")
    if uri.kind != S3:
        return _unknown(f"only buckets that speak S3 are asked, not {uri.scheme}")
    access = S3Access.of(properties)
    if not access.signs:
        return _unknown("Calve has no keys to ask with: they come from the machine's role")
    versioned, of_versions = _versioned(uri.bucket, access, bounds)
    locked, of_lock = _locked(uri.bucket, access, bounds)
    return Protection(versioned=versioned, locked=locked, words=f"{of_versions}; {of_lock}")


def _unknown(why: str) -> Protection:
    return Protection(versioned=None, locked=None, words=f"versioning and Object Lock cannot be read: {why}")


def _versioned(bucket: str, access: S3Access, bounds: Bounds) -> tuple[bool | None, str]:
    answer = _asked(bucket, "versioning", access, bounds)
    if isinstance(answer, str):
        return None, f"versioning cannot be read ({answer})"
    status = _text(answer, "Status")
    return status == "Enabled", f"versioning is {status.lower() or 'off'}"


def _locked(bucket: str, access: S3Access, bounds: Bounds) -> tuple[bool | None, str]:
    answer = _asked(bucket, "object-lock", access, bounds)
    if answer == _NOT_LOCKED:
        return False, "Object Lock is off"
    if isinstance(answer, str):
        return None, f"Object Lock cannot be read ({answer})"
    if _text(answer, "ObjectLockEnabled") != "Enabled":
        return False, "Object Lock is off"
    length = _text(answer, "Days") or _text(answer, "Years")
    unit = "days" if _text(answer, "Days") else "years"
    kept = (
        f" for {length} {unit}, {_text(answer, 'Mode').lower()}"
        if length
        else ", without a default retention"
    )
    return bool(length), f"Object Lock is on{kept}"


def _asked(bucket: str, about: str, access: S3Access, bounds: Bounds) -> ElementTree.Element | str:
    """What it answers; or why not."""
    try:
        answer = lifecycle.ask(bucket, about, access, bounds)
        if _NOT_LOCKED in answer.text:
            return _NOT_LOCKED
        if not answer.ok:
            return f"the bucket answered {answer.status_code} {answer.reason}".rstrip()
        return ElementTree.fromstring(answer.content)
    except (requests.RequestException, ElementTree.ParseError) as error:
        return f"{type(error).__name__}: {first_line(error)}"


def _text(element: ElementTree.Element, name: str) -> str:
    """Of the first element of that name, whatever namespace the server uses."""
    return next((one.text or "" for one in element.iter() if one.tag.rpartition("}")[2] == name), "")
