"""One signed S3 request with the standard library: what a test needs to set a server up."""

import datetime
import hashlib
import hmac
import http.client
import urllib.parse
from typing import Protocol


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
    seconds: float = 5.0,
) -> tuple[int, bytes]:
    """Status and body. Signature version 4; `path` without a query."""
    host = urllib.parse.urlsplit(endpoint).netloc
    connection = http.client.HTTPConnection(host, timeout=seconds)
    try:
        connection.request(
            method, urllib.parse.quote(path), body, _headers(host, method, path, body, keys, region)
        )
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def _headers(host: str, method: str, path: str, body: bytes, keys: _Keys, region: str) -> dict[str, str]:
    now = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
    scope = f"{now[:8]}/{region}/s3/aws4_request"
    payload = hashlib.sha256(body).hexdigest()
    signed = {"host": host, "x-amz-content-sha256": payload, "x-amz-date": now}
    names = ";".join(signed)
    canonical = "\n".join(
        [
            method,
            urllib.parse.quote(path),
            "",
            *(f"{name}:{value}" for name, value in signed.items()),
            "",
            names,
            payload,
        ]
    )
    to_sign = "\n".join(["AWS4-HMAC-SHA256", now, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = b"AWS4" + keys.secret_access_key.encode()
    for word in scope.split("/"):
        key = hmac.digest(key, word.encode(), "sha256")
    signature = hmac.digest(key, to_sign.encode(), "sha256").hex()
    return {
        **signed,
        "Authorization": f"AWS4-HMAC-SHA256 Credential={keys.access_key_id}/{scope},"
        f"SignedHeaders={names},Signature={signature}",
    }
