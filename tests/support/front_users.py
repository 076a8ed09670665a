"""Who may ask the front what: accounts, and the checks that the embedded engine cannot make."""

import base64
import binascii
import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_READING = re.compile(r"\s*(?:SELECT|WITH|SHOW|DESC|DESCRIBE|EXISTS|EXPLAIN|CHECK GRANT|\()", re.IGNORECASE)
AUTHENTICATION_FAILED = 516
ACCESS_DENIED = 497


@dataclass(frozen=True, kw_only=True)
class FrontUser:
    """One account. `readonly` is ClickHouse's setting: 1 refuses writes and settings, 2 writes only."""

    password: str = field(default="", repr=False)
    readonly: int = 0
    select_only: bool = False  # by grants: what is no SELECT is refused with ACCESS_DENIED
    grants: Sequence[str] | None = None  # what the engine is to allow, `GRANT … ON …`; None: everything


class Refused(Exception):
    """An error of ClickHouse's, made by the front itself."""

    def __init__(self, code: int, name: str, text: str) -> None:
        super().__init__(f"Code: {code}. DB::Exception: {text}. ({name})")
        self.code = code


def credentials(headers: Mapping[str, str], params: Mapping[str, str]) -> tuple[str, str]:
    """User and password, from wherever ClickHouse takes them."""
    if "X-ClickHouse-User" in headers:
        return headers["X-ClickHouse-User"], headers.get("X-ClickHouse-Key", "")
    scheme, _, value = headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "basic":
        try:
            user, _, password = base64.b64decode(value).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            raise Refused(AUTHENTICATION_FAILED, "AUTHENTICATION_FAILED", "Invalid authentication") from None
        return user, password
    return params.get("user", "default"), params.get("password", "")


def authenticate(users: Mapping[str, FrontUser], name: str, password: str) -> FrontUser:
    user = users.get(name)
    if user is None or not hmac.compare_digest(user.password.encode(), password.encode()):
        raise Refused(
            AUTHENTICATION_FAILED,
            "AUTHENTICATION_FAILED",
            f"{name}: Authentication failed: password is incorrect, or there is no user with such name",
        )
    return user


def check_grants(user: FrontUser, name: str, statement: str) -> None:
    if user.select_only and not _READING.match(statement):
        verb = " ".join(statement.split()[:2]).upper()
        raise Refused(
            ACCESS_DENIED,
            "ACCESS_DENIED",
            f"{name}: Not enough privileges. To execute this query, it's necessary to have the grant {verb}",
        )
