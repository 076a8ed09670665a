"""What guards a REST catalog in tests: tokens that are given out for a client's secret, and expire.

Apache's fixture lets everybody in. `CatalogProxy` asks this first, as a catalog's own front would.
"""

import json
import secrets
from threading import Lock
from urllib.parse import parse_qs

TOKENS_PATH = "/v1/oauth/tokens"


class CatalogTokens:
    """Thread-safe. `secret` is exchanged for tokens; `fixed` was given to somebody by hand."""

    def __init__(self, client: str, secret: str, fixed: str = "") -> None:
        self.given = 0  # tokens, for the client's secret
        self.refused = 0  # calls
        self._client, self._secret = client, secret
        self._lock = Lock()
        self._valid = {fixed} if fixed else set()

    @property
    def credential(self) -> str:
        return f"{self._client}:{self._secret}"

    def expire(self) -> None:
        """Every token that is out there."""
        with self._lock:
            self._valid.clear()

    def accept(self, token: str) -> None:
        """A new one, given to somebody by hand."""
        with self._lock:
            self._valid.add(token)

    def exchange(self, body: bytes) -> tuple[int, bytes]:
        """Status and answer of a request for a token, in OAuth's words."""
        asked = parse_qs(body.decode())
        if (asked.get("client_id"), asked.get("client_secret")) != ([self._client], [self._secret]):
            return 401, json.dumps({"error": "invalid_client", "error_description": "unknown"}).encode()
        token = secrets.token_hex(16)
        with self._lock:
            self.given += 1
            self._valid.add(token)
        return 200, json.dumps({"access_token": token, "token_type": "bearer", "expires_in": 3600}).encode()

    def refusal(self, authorization: str) -> tuple[int, bytes] | None:
        """What is said to a caller without a valid token."""
        with self._lock:
            if authorization.removeprefix("Bearer ") in self._valid:
                return None
            self.refused += 1
        error = {"message": "the token has expired", "type": "NotAuthorizedException", "code": 401}
        return 401, json.dumps({"error": error}).encode()
