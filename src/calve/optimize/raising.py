"""An error that came back as data, raised again as what it was."""

from calve.model.errors import (
    CalveError,
    ErrorInfo,
    Outcome,
    PermanentError,
    TemporaryError,
    UnavailableError,
    UnknownOutcomeError,
)


def raised(info: ErrorInfo) -> CalveError:
    """The nearest class: what the control plane asks of an error is kept."""
    kind: type[CalveError] = PermanentError
    if info.retryable:
        kind = TemporaryError
        if info.service:
            kind = UnavailableError
        if info.outcome is Outcome.UNKNOWN:
            kind = UnknownOutcomeError
    return kind(info.message, code=info.code, hint=info.hint, service=info.service)
