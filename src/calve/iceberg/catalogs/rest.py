"""Iceberg's REST catalogs, each call and each token bounded: PyIceberg's own OAuth2 client has no timeout at all.

PyIceberg sends a call again after a 401, with a new token. The catalog refused the first one, and the second carries
the same assertions, so this cannot publish twice.
"""

import time
from collections.abc import Mapping
from threading import RLock
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
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


class BoundedRestCatalog(RestCatalog):
    """PyIceberg's REST catalog with a timeout on every call; asks for its configuration on first use."""

    _LATE = frozenset({"_session", "_supported_endpoints", "_namespace_separator"})

    def __init__(self, name: str, limits: Limits, properties: Mapping[str, Any]) -> None:
        # Not RestCatalog.__init__: it calls the server.
        Catalog.__init__(self, name, **properties)
        self._limits = limits
        self._connecting = RLock()
        self._auth_manager = None
        self._ca_file = str(properties.get("ssl", {}).get("cabundle", ""))
        self.uri = properties["uri"]

    def __getattr__(self, name: str) -> Any:
        """Reached only for what is not there yet: the attributes that need the server's answer."""
        if name not in self._LATE:
            raise AttributeError(name)
        with self._connecting:
            if "_session" not in self.__dict__:
                self._fetch_config()
                self.__dict__["_session"] = self._create_session()
        return self.__dict__[name]

    def _create_session(self) -> Session:
        session = super()._create_session()
        self._bound(session)  # what request signing mounted
        bound_token(self._auth_manager, self._limits, self._ca_file)
        return session

    def _config_headers(self, session: Session) -> None:
        # The first thing that is done with a new session; right after it a token is fetched with it.
        self._bound(session)
        super()._config_headers(session)

    def _bound(self, session: Session) -> None:
        limits = self._limits
        bound(
            session,
            connect_seconds=limits.connect_seconds,
            call_seconds=limits.call_seconds,
            ca_file=self._ca_file,
        )

    def close(self) -> None:
        if "_session" in self.__dict__:
            self._session.close()
