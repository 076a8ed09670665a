"""An HTTP proxy in front of a real REST catalog that does to a commit what networks do.

It injects the same faults as `catalog_faults`, at the wire: the real client, the real timeout, a
real reset. What is not a commit or a look at a table passes unchanged, unless the whole catalog ails.
"""

import json
import re
from collections.abc import Callable
from threading import Lock
from urllib.parse import urlsplit

from support import tally
from support.catalog_faults import Fault, Landing, Reading, Told
from support.catalog_tokens import TOKENS_PATH, CatalogTokens
from support.rest_front import Answer, Request, RestFront, Silence

_TABLE = re.compile(r"/namespaces/[^/]+/tables/[^/?]+$")
_STATUS = {Told.CONFLICT: 409, Told.BAD_REQUEST: 400, Told.SERVER_ERROR: 500, Told.UNAVAILABLE: 503}


def _injected(status: int) -> Answer:
    error = {"error": {"message": "injected", "type": "InjectedError", "code": status}}
    return Answer(status=status, body=json.dumps(error).encode())


def _said(told: Told, answer: Answer) -> Answer | Silence:
    match told:
        case Told.OK:
            return answer
        case Told.RESET:
            return Silence.RESET
        case Told.TIMEOUT:
            return Silence.UNTIL_HUNG_UP
        case _:
            return _injected(_STATUS[told])


class CatalogProxy(RestFront):
    """The faults, and what was held back. Thread-safe."""

    def __init__(self, upstream: str, tokens: CatalogTokens | None = None) -> None:
        super().__init__(upstream)
        self.tokens = tokens
        self.ails: Told | None = None  # everything is answered like this, and nothing is passed on
        self.bury: Callable[[], None] = lambda: None
        self.before_send: Callable[[], None] = lambda: None
        self.sends = 0
        self._lock = Lock()
        self._fault: Fault | None = None
        self._held: list[Request] = []
        self._until_released = False
        self._reading, self._bad_looks = Reading.AT_ONCE, 0
        self._old: dict[str, Answer] = {}

    def arm(self, fault: Fault) -> None:
        with self._lock:
            self._fault = fault

    def release(self) -> None:
        """Let the commits that were held arrive; what the catalog says to them, nobody hears."""
        with self._lock:
            held, self._held = self._held, []
        for request in held:
            self.forward(request)

    def serve(self, request: Request) -> Answer | Silence:
        instead = self._instead(request)
        if instead is not None:
            return instead
        table = _TABLE.search(urlsplit(request.path).path) is not None
        if table and request.method == "POST":
            return self._commit(request)
        if table and request.method == "GET":
            return self._look(request)
        return self.forward(request)

    def _instead(self, request: Request) -> Answer | Silence | None:
        """What is said without asking the catalog."""
        if self.ails is not None:
            return _said(self.ails, Answer(status=503, body=b""))
        if self.tokens is None:
            return None
        if urlsplit(request.path).path == TOKENS_PATH:
            status, body = self.tokens.exchange(request.body)
            return Answer(status=status, body=body)
        refused = self.tokens.refusal(request.headers.get("Authorization", ""))
        return Answer(status=refused[0], body=refused[1]) if refused else None

    def _look(self, request: Request) -> Answer | Silence:
        """A look at a table."""
        with self._lock:
            bad = self._bad_looks > 0
            self._bad_looks -= bad
            reading = self._reading if bad else Reading.AT_ONCE
        if reading is Reading.UNREADABLE:
            return Silence.RESET
        if reading is Reading.REFUSED:
            return _injected(401)
        if reading is Reading.STALE and request.path in self._old:
            return self._old[request.path]
        answer = self.forward(request)
        self._old[request.path] = answer
        return answer

    def _commit(self, request: Request) -> Answer | Silence:
        """Something becomes of a commit, and something is said of it."""
        self.before_send()
        self.sends += 1
        if not self._until_released:
            self.release()
        with self._lock:
            fault, self._fault = self._fault, None
        if fault is None:
            return self.forward(request)
        tally.count("commit", fault.told.value, fault.landing.value)
        answer: Answer | None = None
        match fault.landing:
            case Landing.LANDED:
                answer = self.forward(request)
            case Landing.BURIED:
                answer = self.forward(request)
                self.bury()
            case Landing.LATER | Landing.LAST:
                with self._lock:
                    self._held.append(request)
                    self._until_released = fault.landing is Landing.LAST
            case Landing.NOT:
                pass
        with self._lock:
            self._reading, self._bad_looks = fault.reading, fault.looks
        return _said(fault.told, answer or self._lie(request))

    def _lie(self, request: Request) -> Answer:
        """ "Yes", with the table as it is: the answer of a catalog that has not applied a thing."""
        table = self.forward(Request(method="GET", path=request.path, headers=request.headers, body=b""))
        loaded = json.loads(table.body)
        said = {"metadata-location": loaded["metadata-location"], "metadata": loaded["metadata"]}
        return Answer(status=200, body=json.dumps(said).encode())
