"""A proxy in front of a real REST catalog that lends keys with every table, as catalogs in the cloud do.

    with VendingProxy(rest.uri) as proxy:
        proxy.lend({"s3.access-key-id": …, "s3.secret-access-key": …})
        … proxy.uri, proxy.answers, proxy.after_answer

What is not an answer with a table in it passes unchanged.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from threading import Lock
from urllib.parse import urlsplit

from support.rest_front import DELEGATION, Answer, Request, RestFront

_TABLE = re.compile(r"/namespaces/[^/]+/tables(/[^/?]+)?$")


class VendingProxy(RestFront):
    """What is lent, and how often. Thread-safe."""

    def __init__(self, upstream: str) -> None:
        super().__init__(upstream)
        self.answers = 0  # that carried keys
        self.after_answer: Callable[[int], None] = lambda _number: None
        self.as_storage_credentials = False
        self._lock = Lock()
        self._lent: dict[str, str] = {}

    def lend(self, properties: Mapping[str, str]) -> None:
        """Lend these from now on."""
        with self._lock:
            self._lent = dict(properties)

    def serve(self, request: Request) -> Answer:
        answer = self.forward(request)
        asked = request.headers.get(DELEGATION) == "vended-credentials"
        if answer.status != 200 or not asked or not _TABLE.search(urlsplit(request.path).path):
            return answer
        return replace(answer, body=self._with_keys(answer.body))

    def _with_keys(self, answer: bytes) -> bytes:
        said = json.loads(answer)
        if "metadata-location" not in said:
            return answer
        with self._lock:
            self.answers += 1
            number, lent = self.answers, dict(self._lent)
        if self.as_storage_credentials:
            location = said["metadata"]["location"]
            said["storage-credentials"] = [
                {"prefix": "s3", "config": lent | {"s3.access-key-id": "of-another-prefix"}},
                {"prefix": location, "config": lent},
            ]
        else:
            said["config"] = said.get("config", {}) | lent
        self.after_answer(number)
        return json.dumps(said).encode()
