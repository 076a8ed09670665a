"""Fetching a token for a REST catalog, bounded: PyIceberg's own OAuth2 client has no timeout at all."""

import time

from pyiceberg.catalog.rest.auth import AuthManager, OAuth2AuthManager, OAuth2TokenProvider
from requests import Session

from calve.model.limits import Limits
from calve.wire.bounded_http import bound

_MARGIN_PART = 0.5  # of a token's life: a short-lived one must not look expired from the start


def bound_token(manager: AuthManager | None, limits: Limits, ca_file: str = "") -> None:
    """Give the client that fetches tokens (`auth.type = "oauth2"`) a timeout."""
    if isinstance(manager, OAuth2AuthManager):
        manager.token_provider = BoundedTokenProvider(manager.token_provider, limits, ca_file)


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
        limits = self._limits
        with Session() as session:
            bound(
                session,
                connect_seconds=limits.connect_seconds,
                call_seconds=limits.call_seconds,
                ca_file=self._ca_file,
            )
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
