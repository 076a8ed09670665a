"""AWS's signature version 4, for a request to S3 that none of our client libraries makes. Pure."""

import datetime
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, urlsplit


@dataclass(frozen=True, kw_only=True)
class Signer:
    """The keys of an account, in a region."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str = field(default="", repr=False)
    region: str

    def url(self, base: str, path: str, query: Mapping[str, str]) -> str:
        """Path and query encoded as the signature needs them; send it unchanged."""
        return f"{base.rstrip('/')}{quote(path)}{'?' if query else ''}{_query(query)}"

    def headers(
        self, method: str, url: str, query: Mapping[str, str], now: datetime.datetime, body: bytes = b""
    ) -> dict[str, str]:
        """The headers that a request for `url` must carry."""
        at = now.astimezone(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
        parts = urlsplit(url)
        payload = hashlib.sha256(body).hexdigest()
        signed = {"host": parts.netloc, "x-amz-content-sha256": payload, "x-amz-date": at}
        if self.session_token:
            signed["x-amz-security-token"] = self.session_token
        names = ";".join(signed)
        lines = [f"{name}:{value}" for name, value in signed.items()]
        canonical = "\n".join([method, parts.path or "/", _query(query), *lines, "", names, payload])
        scope = f"{at[:8]}/{self.region}/s3/aws4_request"
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        signature = self._sign(scope, "\n".join(["AWS4-HMAC-SHA256", at, scope, digest]))
        return signed | {
            "Authorization": f"AWS4-HMAC-SHA256 Credential={self.access_key_id}/{scope},"
            f"SignedHeaders={names},Signature={signature}"
        }

    def _sign(self, scope: str, text: str) -> str:
        key = b"AWS4" + self.secret_access_key.encode()
        for word in scope.split("/"):
            key = hmac.digest(key, word.encode(), "sha256")
        return hmac.digest(key, text.encode(), "sha256").hex()


def _query(query: Mapping[str, str]) -> str:
    return "&".join(
        f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in sorted(query.items())
    )
