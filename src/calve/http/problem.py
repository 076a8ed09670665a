"""Errors over HTTP: a status, and as `application/problem+json` what `--json` says of the error.

An error that is not ours is a defect: its text may hold a secret, so only the request's id is told.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from math import ceil
from typing import Any

from starlette.responses import JSONResponse, Response

from calve.app.desk import NotAllowedError
from calve.model.errors import (
    CalveError,
    NotFoundError,
    PermanentError,
    RefusedError,
    StoreError,
    UnavailableError,
    UsageError,
)

MEDIA_TYPE = "application/problem+json"
RETRY_SECONDS = 5
_LONGEST = 4000  # characters of a message: it may repeat what was asked


class AnyJson(JSONResponse):
    """Of any text: what was asked, and is repeated, may be half of a surrogate pair."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, ensure_ascii=False).encode("utf-8", "backslashreplace")


class HttpError(UsageError):
    """Refused because of the way it was asked, not of what was asked."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str,
        hint: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message, code=code, hint=hint)
        self.status = status
        self.retryable = status in (408, 429, 503)  # type: ignore[misc]  # of this one, not of its class
        self.headers = dict(headers or {})


def too_many(what: str, wait_seconds: float, *, hint: str) -> HttpError:
    headers = {"Retry-After": str(max(1, ceil(wait_seconds)))}
    return HttpError(429, f"too many {what}", code="too_many_requests", hint=hint, headers=headers)


class DownError(UnavailableError):
    """A service did not answer a moment ago, and is not asked again before `retry_seconds` have passed."""

    def __init__(self, error: CalveError, message: str, retry_seconds: int) -> None:
        super().__init__(message, code=error.code, hint=error.hint, service=error.service)
        self.retry_seconds = retry_seconds


def status_of(error: CalveError) -> int:
    match error:
        case HttpError():
            return error.status
        case UsageError():
            return 400
        case NotAllowedError():
            return 403
        case NotFoundError():
            return 404
        case RefusedError():
            return 409
        case PermanentError():
            return 502  # another service said no
        case _:
            return 503


def problem(error: CalveError, request_id: str) -> Response:
    status = status_of(error)
    said = error.message if len(error.message) <= _LONGEST else f"{error.message[:_LONGEST]}…"
    headers = dict(error.headers) if isinstance(error, HttpError) else {}
    later: dict[str, str] = {}
    if status in (429, 503):
        seconds = int(headers.setdefault("Retry-After", str(getattr(error, "retry_seconds", RETRY_SECONDS))))
        until = datetime.now(UTC) + timedelta(seconds=seconds)
        later["until"] = until.strftime("%Y-%m-%dT%H:%M:%SZ")
    body: dict[str, Any] = {
        "type": f"urn:calve:error:{error.code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": said,
        **error.info.to_json(),
        "message": said,
        **({"service": "store"} if isinstance(error, StoreError) and not error.service else {}),
        **later,
        "exit_code": error.exit_code,
        "request_id": request_id,
    }
    return AnyJson(body, status_code=status, headers=headers, media_type=MEDIA_TYPE)


def defect(request_id: str) -> Response:
    """What is said of an error that nobody expected: nothing but where to look."""
    body = {
        "type": "urn:calve:error:internal",
        "title": "Internal Server Error",
        "status": 500,
        "detail": f"this is a bug in Calve; the server's log has it under request {request_id}",
        "code": "internal",
        "message": f"this is a bug in Calve; the server's log has it under request {request_id}",
        "hint": "please report it with that part of the log",
        "retryable": False,
        "outcome": "unknown",
        "exit_code": 1,
        "request_id": request_id,
    }
    return JSONResponse(body, status_code=500, media_type=MEDIA_TYPE)
