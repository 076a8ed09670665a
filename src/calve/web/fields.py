"""Fields of a query or a form become arguments of a verb: by the types of its options, and nothing is guessed.

A token in a field ends up in histories and logs, so it is refused wherever it is not asked for, and is not repeated.
"""

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request

from calve.app.token_file import token_id
from calve.http.problem import HttpError
from calve.model.errors import UsageError

MOST = 5000
_TRUE = ("1", "on", "true")
_FORM = "application/x-www-form-urlencoded"


def parsed(fields: Iterable[tuple[str, str]], options: Mapping[str, type]) -> dict[str, Any]:
    """By name; empty ones are left out. UsageError for a number that is none, and for an unknown name."""
    found: dict[str, Any] = {}
    for name, text in fields:
        if name not in options:
            raise UsageError(
                f"unknown field {name[:40]!r}", code="unknown_option", hint="open the page again"
            )
        if text == "":
            continue
        kind = options[name]
        if kind is list:
            found.setdefault(name, []).append(text)
        elif kind is dict:
            key, _, value = text.partition("=")
            found.setdefault(name, {})[key] = value
        elif kind is bool:
            found[name] = text in _TRUE
        elif kind in (int, float):
            found[name] = _number(name, text, kind)
        else:
            found[name] = text
    return found


async def sent(request: Request) -> list[tuple[str, str]]:
    """The fields of a form that was posted."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != _FORM:
        raise HttpError(415, "this is not a form", code="encoding", hint="send it from the page")
    try:
        text = (await request.body()).decode()
        return parse_qsl(text, keep_blank_values=True, max_num_fields=MOST, errors="strict")
    except ValueError:  # not UTF-8, or too many
        raise UsageError(
            "the form cannot be read", code="bad_form", hint=f"send at most {MOST} fields in UTF-8"
        ) from None


def refuse_tokens(fields: Iterable[tuple[str, str]]) -> None:
    if any(token_id(word) for _, text in fields for word in text.split()):
        raise UsageError(
            "this is a token; sign in with it",
            code="token_in_url",
            hint="it may be in the browser's history now: revoke it with calve token revoke, and make another one",
        )


def _number(name: str, text: str, kind: type) -> int | float:
    try:
        if len(text) <= 20:
            return int(text) if kind is int else float(text)
    except ValueError:
        pass
    raise UsageError(f"invalid {name}", code="bad_option", hint="give a number")
