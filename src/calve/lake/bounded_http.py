"""HTTP to a REST catalog, every call bounded: connecting, waiting, reading, and fetching a token.

`requests` bounds the silence between two bytes, not the call: a catalog that sends a byte now and
then would hold its caller for ever. PyIceberg's own OAuth2 client has no timeout at all.
"""

import time
from collections.abc import Mapping
from typing import Any

import requests
from pyiceberg.catalog.rest.auth import AuthManager, OAuth2AuthManager, OAuth2TokenProvider
from requests import PreparedRequest, Response, Session
from requests.adapters import BaseAdapter, HTTPAdapter
from urllib3.exceptions import HTTPError
from urllib3.util import Retry

from calve.model.limits import Limits

_CHUNK_BYTES = 1 << 16
_MARGIN_PART = 0.5  # of a token's life: a short-lived one must not look expired from the start


def bound(session: Session, limits: Limits, ca_file: str = "") -> None:
    """Wrap what the session sends with. Wrapped, not replaced: request signing (SigV4) is an adapter
    too. What is bounded already stays as it is."""
    for prefix, adapter in list(session.adapters.items()):
        if isinstance(adapter, HTTPAdapter):
            session.mount(prefix, BoundedAdapter(adapter, limits, ca_file))


def bound_token(manager: AuthManager | None, limits: Limits, ca_file: str = "") -> None:
    """Give the client that fetches tokens by itself (`auth.type = "oauth2"`) a timeout."""
    if isinstance(manager, OAuth2AuthManager):
        manager.token_provider = BoundedTokenProvider(manager.token_provider, limits, ca_file)


class BoundedAdapter(BaseAdapter):
    """Every request has a timeout; none is repeated."""

    def __init__(self, inner: HTTPAdapter, limits: Limits, ca_file: str = "") -> None:
        super().__init__()
        inner.max_retries = Retry(0, read=False)
        self._inner = inner
        self._ca_file = ca_file
        self._seconds = (limits.connect_seconds, limits.call_seconds)

    def send(
        self,
        request: PreparedRequest,
        stream: bool = False,
        timeout: Any = None,
        verify: bool | str = True,
        cert: Any = None,
        proxies: Mapping[str, str] | None = None,
    ) -> Response:
        until = time.monotonic() + self._seconds[1]
        response = self._inner.send(
            request,
            stream=True,
            timeout=timeout or self._seconds,
            # Not the session's: REQUESTS_CA_BUNDLE of the environment would win over it.
            verify=self._ca_file or verify,
            cert=cert,
            proxies=None if proxies is None else dict(proxies),
        )
        if not stream:
            self._read(response, until)
        return response

    def _read(self, response: Response, until: float) -> None:
        """The whole answer, here, while there is time. The wait for one more piece has `call_seconds` of
        its own: so a call ends within twice that, however slowly the answer comes."""
        pieces = []
        try:
            # Not `iter_content`: it waits until a whole chunk is there.
            while piece := response.raw.read1(_CHUNK_BYTES, decode_content=True):
                pieces.append(piece)
                if time.monotonic() > until:
                    seconds = self._seconds[1]
                    raise requests.ReadTimeout(
                        f"the answer was not complete after {seconds:g} s", request=response.request
                    )
            response._content = b"".join(pieces)
            response._content_consumed = True  # so that closing it keeps the connection
        except HTTPError as cause:  # urllib3's, which `requests` turns into its own only while it reads
            raise requests.ConnectionError(str(cause), request=response.request) from cause
        finally:
            response.close()

    def close(self) -> None:
        self._inner.close()


class BoundedTokenProvider(OAuth2TokenProvider):
    """PyIceberg's, with a timeout, and with a margin that fits the token's life."""

    def __init__(self, given: OAuth2TokenProvider, limits: Limits, ca_file: str = "") -> None:
        super().__init__(
            given.client_id,
            given.client_secret,
            given.token_url,
            given.scope,
            given.refresh_margin,
            given.expires_in,
        )
        self._limits, self._ca_file = limits, ca_file

    def _refresh_token(self) -> None:
        data = {"grant_type": "client_credentials"} | ({"scope": self.scope} if self.scope else {})
        with Session() as session:
            bound(session, self._limits, self._ca_file)
            response = session.post(
                self.token_url, data=data, headers={"Authorization": self._client_secret_header}
            )
        response.raise_for_status()
        answer = response.json()
        self._token = answer["access_token"]
        seconds = answer.get("expires_in", self.expires_in)
        if seconds is None:
            raise ValueError("the answer has no `expires_in`; set it beside the client's id and secret")
        margin = min(float(self.refresh_margin), seconds * _MARGIN_PART)
        self._expires_at = int(time.monotonic() + seconds - margin)
