"""Whether a bucket's own lifecycle rules abort incomplete multipart uploads.

A killed executor leaves the parts of an upload: invisible, but stored and paid for. obstore aborts an
upload that fails, but can neither list those of others nor read a bucket's rules; so this one request is
made and signed here. Where the keys are the machine's own role there is nothing to sign with.

AWS's signature version 4, for a request to S3 that none of our client libraries makes. Pure.
"""

import datetime
import datetime as dt
import hashlib
import hmac
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, urlsplit
from xml.etree import ElementTree

import requests

from calve.objects.credentials import S3Access
from calve.objects.errors import first_line
from calve.objects.storage import Bounds, UploadCleanup
from calve.objects.uri import Uri
from calve.wire.bounded_http import bound


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


_DAYS = 2
_ABORT = "AbortIncompleteMultipartUpload"
_SELECTIVE = ("Tag", "ObjectSizeGreaterThan", "ObjectSizeLessThan")  # a rule with these leaves some out


def upload_cleanup(folder: Uri, access: S3Access, bounds: Bounds) -> UploadCleanup:
    """What the bucket's rules say about uploads below a folder. Raises nothing: an answer that cannot be
    had is one of its answers."""
    if not access.signs:
        return _unknown("Calve has no keys to ask with: they come from the machine's role", folder, access)
    try:
        answer = ask(folder.bucket, "lifecycle", access, bounds)
        if answer.status_code == 404 and "NoSuchBucket" not in answer.text:
            return _missing(folder, access)
        if not answer.ok:
            reason = f"the bucket answered {answer.status_code} {answer.reason}"
            if answer.status_code in (401, 403):
                reason += " (the keys lack s3:GetLifecycleConfiguration)"
            return _unknown(reason, folder, access)
        rules = ElementTree.fromstring(answer.content)
    except (requests.RequestException, ElementTree.ParseError) as error:
        return _unknown(f"{type(error).__name__}: {first_line(error)}", folder, access)
    days = [found for rule in rules if (found := _days(rule, folder.key)) is not None]
    if not days:
        return _missing(folder, access)
    return UploadCleanup(automatic=True, words=f"incomplete uploads are aborted after {min(days)} days")


def _days(rule: ElementTree.Element, key: str) -> int | None:
    """After how many days a rule aborts the uploads below a key; None if it does not."""
    texts = {name: (element.text or "").strip() for name, element in _all(rule)}
    covers = key.startswith(texts.get("Prefix", "")) and not any(name in texts for name in _SELECTIVE)
    days = texts.get("DaysAfterInitiation", "")
    if texts.get("Status") != "Enabled" or _ABORT not in texts or not covers or not days.isdigit():
        return None
    return int(days)


def _all(element: ElementTree.Element) -> Iterator[tuple[str, ElementTree.Element]]:
    """Everything inside, by name, whatever namespace the server uses."""
    return ((inner.tag.rpartition("}")[2], inner) for inner in element.iter())


def ask(bucket: str, about: str, access: S3Access, bounds: Bounds) -> requests.Response:
    """What the bucket says of itself: `lifecycle`, `versioning`, `object-lock`."""
    signer = Signer(
        access_key_id=access.access_key_id,
        secret_access_key=access.secret_access_key,
        session_token=access.session_token,
        region=access.some_region,
    )
    query = {about: ""}
    # With virtual addressing the endpoint is the bucket's own, as obstore has it.
    path = "/" if access.endpoint and access.virtual_addressing else f"/{bucket}"
    base = access.endpoint.rstrip("/") or f"https://s3.{access.some_region}.amazonaws.com"
    url = signer.url(base, path, query)
    headers = signer.headers("GET", url, query, dt.datetime.now(dt.UTC))
    proxies = {"http": access.proxy, "https": access.proxy} if access.proxy else None
    with requests.Session() as session:
        bound(
            session,
            connect_seconds=bounds.connect_seconds,
            call_seconds=bounds.call_seconds,
            ca_file=access.ca_file,
        )
        return session.get(url, headers=headers, proxies=proxies)


def _missing(folder: Uri, access: S3Access) -> UploadCleanup:
    return UploadCleanup(
        automatic=False,
        words="no lifecycle rule aborts incomplete multipart uploads: what killed programs left stays for ever",
        remedy=f"add a rule: {rule_command(folder.bucket, access.endpoint)}"
        " (it replaces the rules that the bucket has: add yours to it)",
    )


def _unknown(reason: str, folder: Uri, access: S3Access) -> UploadCleanup:
    return UploadCleanup(
        automatic=None,
        words=f"whether incomplete multipart uploads are aborted cannot be checked: {reason}",
        remedy=f"make sure that the bucket has such a rule: {rule_command(folder.bucket, access.endpoint)}",
    )


def rule_command(bucket: str, endpoint: str = "") -> str:
    """The command that gives a bucket the rule."""
    at = f" --endpoint-url {endpoint}" if endpoint else ""
    rule = (
        '{"Rules":[{"ID":"abort-incomplete-uploads","Status":"Enabled","Filter":{"Prefix":""},'
        f'"{_ABORT}":{{"DaysAfterInitiation":{_DAYS}}}}}]}}'
    )
    return (
        f"aws s3api put-bucket-lifecycle-configuration{at} --bucket {bucket}"
        f" --lifecycle-configuration '{rule}'"
    )
