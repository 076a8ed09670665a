"""One signed S3 request: what a test needs to set a server up, and to look at it."""

import datetime
import http.client
import urllib.parse
from collections.abc import Mapping
from typing import Protocol

from calve.objects.lifecycle import Signer


class _Keys(Protocol):
    @property
    def access_key_id(self) -> str: ...
    @property
    def secret_access_key(self) -> str: ...


def send(
    endpoint: str,
    method: str,
    path: str,
    body: bytes = b"",
    *,
    keys: _Keys,
    region: str,
    query: Mapping[str, str] | None = None,
    seconds: float = 5.0,
) -> tuple[int, bytes]:
    """Status and body."""
    signer = Signer(access_key_id=keys.access_key_id, secret_access_key=keys.secret_access_key, region=region)
    url = signer.url(endpoint, path, query or {})
    headers = signer.headers(method, url, query or {}, datetime.datetime.now(datetime.UTC), body)
    parts = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=seconds)
    try:
        connection.request(method, f"{parts.path}{'?' if parts.query else ''}{parts.query}", body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()
