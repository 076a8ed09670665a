"""Errors, one root. Other libraries' errors are wrapped at the port that met them.

    CalveError
    ├── UsageError        wrong in the command or the configuration         exit 2
    ├── NotFoundError     the named thing does not exist                    exit 3
    ├── RefusedError      the state of the data forbids it                  exit 4
    │   └── LockedError        another process does this work, or may have done it
    ├── PermanentError    trying again would meet the same answer           exit 1
    │   ├── DamagedError       something stored does not read as what it should be
    │   ├── DeniedError        credentials or rights were refused
    │   └── UntrustedError     no trusted authority vouches for a certificate
    ├── TemporaryError    may go away by itself; budgets decide how long    exit 1
    │   └── UnavailableError   a service cannot be reached; opens its circuit breaker
    ├── UnknownOutcomeError    an effect may or may not have happened; look it up
    └── StoreError             not applied, unless it is
        ├── StoreUnknownError  the commit's acknowledgement was lost; read back
        ├── FenceLostError     another worker owns the process now; stop
        └── ConflictError      the row moved; read it again

An error says what object, what cause, what state things are in, and, as its hint, the
next command. It crosses process borders, so it pickles, and it is stored, so it has a
stable code. Secrets never go into one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Self

from calve.model.codec import decode, encode

STALLED = "stalled"  # the code of an attempt that was stopped: its process still computes, and has to end


class Outcome(StrEnum):
    """Whether the effect that failed took place."""

    NOT_APPLIED = "not_applied"
    APPLIED = "applied"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class ErrorInfo:
    """An error at rest: in the store, in JSON, in a task's result."""

    code: str
    message: str
    hint: str = ""
    retryable: bool = False
    outcome: Outcome = Outcome.NOT_APPLIED
    service: str = ""  # the unreachable service, where that is the cause
    refused: bool = False  # the state of the data forbids it, and nothing was changed: exit code 4

    def to_json(self) -> dict[str, Any]:
        return dict(encode(self))

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what an older or newer version stored: unknown keys are ignored."""
        return decode(cls, data)


class CalveError(Exception):
    """The root. Raise one of the subclasses."""

    exit_code: ClassVar[int] = 1
    retryable: ClassVar[bool] = False
    outcome: ClassVar[Outcome] = Outcome.NOT_APPLIED
    refused: ClassVar[bool] = False

    def __init__(self, message: str, *, code: str, hint: str = "", service: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.hint = hint
        self.service = service

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.code, self.hint, self.service)

    @property
    def info(self) -> ErrorInfo:
        return ErrorInfo(
            code=self.code,
            message=self.message,
            hint=self.hint,
            retryable=self.retryable,
            outcome=self.outcome,
            service=self.service,
            refused=self.refused,
        )


def _rebuild(kind: type[CalveError], message: str, code: str, hint: str, service: str) -> CalveError:
    return kind(message, code=code, hint=hint, service=service)


class UsageError(CalveError):
    """The command or the configuration is wrong; fix it there."""

    exit_code = 2


class NotFoundError(CalveError):
    """The named thing does not exist."""

    exit_code = 3


class RefusedError(CalveError):
    """Refused because of the state of the data; nothing was changed."""

    exit_code = 4
    refused = True


class LockedError(RefusedError):
    """Another process does this work, or its outcome is unknown."""

    holder: str = ""  # its id; not pickled


class PermanentError(CalveError):
    """Trying again would meet the same answer."""


class DamagedError(PermanentError):
    """Something stored does not read as what it should be."""


class DeniedError(PermanentError):
    """A service refused the credentials, or they lack a right."""


class UntrustedError(PermanentError):
    """No trusted authority vouches for the certificate of a service."""


class TemporaryError(CalveError):
    """May go away by itself."""

    retryable = True


class UnavailableError(TemporaryError):
    """The service named by `service` cannot be reached."""


class UnknownOutcomeError(TemporaryError):
    """The effect may or may not have happened: nothing may be deleted or repeated before a look."""

    outcome = Outcome.UNKNOWN


class StoreError(TemporaryError):
    """The store refused or failed a call."""


class StoreUnknownError(StoreError):
    """The store may or may not have made the change: read it back."""

    outcome = Outcome.UNKNOWN


class FenceLostError(StoreError):
    """Another worker owns the process now: stop what you are doing."""

    retryable = False


class ConflictError(StoreError):
    """The row is no longer as it was read: read again and decide again."""
