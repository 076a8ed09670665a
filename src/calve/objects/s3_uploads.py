"""Uploads in parts that somebody began and nobody ended: what a killed executor leaves in a bucket.

Nobody sees their parts, but they are stored and paid for. obstore aborts an upload that fails; it can
neither list nor abort those of others, so these requests are made here. Where the keys are the
machine's own role there is nothing to sign with, and nothing is listed: the bucket's lifecycle rule
ends such uploads, as the documentation says.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from xml.etree import ElementTree

import requests

from calve.model.errors import CalveError, PermanentError, TemporaryError, UnavailableError
from calve.objects.credentials import CA_FILE
from calve.objects.port import Upload
from calve.objects.signing import Signer
from calve.wire.bounded_http import bound

_NOT_OFFERED = (405, 501)  # servers without such lists
_MOST_PAGES = 1000


class S3Uploads:
    """Of one bucket."""

    def __init__(
        self, bucket_uri: str, properties: Mapping[str, str], *, connect_seconds: float, call_seconds: float
    ) -> None:
        self._bucket_uri = bucket_uri
        self._signer = _signer(properties)
        self._base, self._root = _address(bucket_uri.split("://", 1)[1], properties)
        self._ca_file = properties.get(CA_FILE, "")
        self._proxy = properties.get("s3.proxy-uri", "")
        self._seconds = {"connect_seconds": connect_seconds, "call_seconds": call_seconds}

    def below(self, prefix: str) -> list[Upload]:
        """Those of objects whose key begins so."""
        found: list[Upload] = []
        query = {"uploads": "", "prefix": prefix}
        for _ in range(_MOST_PAGES):
            answer = self._send("GET", "/", query)
            if answer is None or answer.status_code in _NOT_OFFERED:
                break
            page = ElementTree.fromstring(answer.content)
            found += [self._upload(one) for one in _all(page, "Upload")]
            if _text(page, "IsTruncated") != "true":
                break
            query |= {
                "key-marker": _text(page, "NextKeyMarker"),
                "upload-id-marker": _text(page, "NextUploadIdMarker"),
            }
        return found

    def abort(self, uploads: Sequence[Upload]) -> None:
        for upload in uploads:
            key = upload.uri.removeprefix(f"{self._bucket_uri}/")
            # If we die here, the rest is aborted by the next call.
            self._send("DELETE", f"/{key}", {"uploadId": upload.id}, fine=(404,))

    def _upload(self, element: ElementTree.Element) -> Upload:
        begun = _text(element, "Initiated").replace("Z", "+00:00")
        return Upload(
            uri=f"{self._bucket_uri}/{_text(element, 'Key')}",
            id=_text(element, "UploadId"),
            begun_at=dt.datetime.fromisoformat(begun) if begun else None,
        )

    def _send(
        self, method: str, path: str, query: Mapping[str, str], fine: tuple[int, ...] = ()
    ) -> requests.Response | None:
        if self._signer is None:
            return None
        at = self._root if path == "/" else f"{self._root.rstrip('/')}{path}"
        url = self._signer.url(self._base, at, query)
        headers = self._signer.headers(method, url, query, dt.datetime.now(dt.UTC))
        proxies = {"http": self._proxy, "https": self._proxy} if self._proxy else None
        try:
            with requests.Session() as session:
                bound(session, **self._seconds, ca_file=self._ca_file)
                answer = session.request(method, url, headers=headers, proxies=proxies)
        except requests.RequestException as cause:
            raise self._error(type(cause).__name__) from cause
        if answer.ok or answer.status_code in (*fine, *_NOT_OFFERED):
            return answer
        raise self._refusal(answer)

    def _refusal(self, answer: requests.Response) -> CalveError:
        said = f"{answer.status_code} {answer.reason}"
        if answer.status_code in (401, 403):
            return PermanentError(
                f"{self._bucket_uri} refused to list or abort uploads: {said}",
                code="storage_denied",
                hint="give the keys the rights s3:ListBucketMultipartUploads and s3:AbortMultipartUpload",
            )
        if answer.status_code < 500:
            return TemporaryError(f"{self._bucket_uri}: listing uploads: {said}", code="storage_failed")
        return self._error(said)

    def _error(self, said: str) -> UnavailableError:
        return UnavailableError(
            f"{self._bucket_uri} cannot be reached: {said}",
            code="storage_unavailable",
            hint="check the endpoint; waiting exports go on by themselves once it answers",
            service=f"storage:{self._bucket_uri}",
        )


def _signer(properties: Mapping[str, str]) -> Signer | None:
    key, secret = properties.get("s3.access-key-id", ""), properties.get("s3.secret-access-key", "")
    if not key or not secret or properties.get("s3.role-arn"):
        return None
    return Signer(
        access_key_id=key,
        secret_access_key=secret,
        session_token=properties.get("s3.session-token", ""),
        region=properties.get("s3.region") or properties.get("client.region") or "us-east-1",
    )


def _address(bucket: str, properties: Mapping[str, str]) -> tuple[str, str]:
    """The address of the server and the path of the bucket there."""
    endpoint = properties.get("s3.endpoint", "").rstrip("/")
    if not endpoint:
        region = properties.get("s3.region") or properties.get("client.region") or "us-east-1"
        return f"https://s3.{region}.amazonaws.com", f"/{bucket}"
    if properties.get("s3.force-virtual-addressing", "").lower() == "true":
        return endpoint, "/"  # as obstore has it: the endpoint is then the bucket's own
    return endpoint, f"/{bucket}"


def _all(page: ElementTree.Element, name: str) -> list[ElementTree.Element]:
    """Whatever namespace the server puts them in."""
    return [element for element in page if element.tag.rpartition("}")[2] == name]


def _text(parent: ElementTree.Element, name: str) -> str:
    found = _all(parent, name)
    return (found[0].text or "") if found else ""
