"""Keys that a REST catalog lends for a table's files, for a while.

They come with the table (`config` or `storage-credentials` of its answer) and are asked for anew by
loading it again: before they end, and when the storage refuses them earlier than that. They live in
memory and in what is shipped to executors, and are never stored.

Executors ask the catalog themselves. Handing new keys over from the driver would need a channel into
running tasks, which Spark does not have, and a living driver, although an attempt outlives its worker
(D4). The price is that executors must reach the catalog.
"""

import time
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any

from pyiceberg.catalog import Catalog

from calve.iceberg import tables
from calve.iceberg.catalogs.catalog import open_catalog
from calve.model.errors import NotFoundError, PermanentError
from calve.model.limits import Limits

_OF_STORAGE = ("s3.", "client.", "adls.", "gcs.")
_KEY = "s3.access-key-id"
_ENDS = "s3.session-token-expires-at-ms"
_EARLY_SECONDS = 300.0  # longer than any one upload takes
Properties = Mapping[str, str]


class Lender:
    """The properties of a table's storage, with keys that are good for a while. Thread-safe."""

    def __init__(
        self,
        ask: Callable[[], Properties],
        given: Properties | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._ask = ask
        self._now = now
        self._lock = Lock()
        self._held: dict[str, str] = {}
        self._renew_at: float | None = None
        if given is not None:
            self._hold(given)

    def properties(self) -> dict[str, str]:
        """Asked for when first needed, and again before they end."""
        with self._lock:
            if not self._held or (self._renew_at is not None and self._now() >= self._renew_at):
                self._hold(self._ask())
            return self._held

    def renewed(self, refused: Properties) -> bool:
        """The storage refused those: are there others now? Of several callers that were refused, one asks."""
        with self._lock:
            if self._held == refused:
                self._hold(self._ask())
            return self._held != refused

    def _hold(self, properties: Properties) -> None:
        self._held = dict(properties)
        ends_ms = str(properties.get(_ENDS, ""))
        if not ends_ms.isdigit():
            self._renew_at = None  # no end is given: they are good until the storage refuses them
            return
        now = self._now()
        left = int(ends_ms) / 1000 - now
        # Keys that live for minutes are renewed half-way, not at every call.
        self._renew_at = now + max(left - _EARLY_SECONDS, left / 2)


def lender(catalog: Catalog, identifier: tuple[str, ...], configured: Properties) -> Lender:
    """For a program that has the catalog open."""
    return Lender(lambda: _lent(catalog, identifier, configured))


def remote_lender(
    lending: Mapping[str, Any], identifier: tuple[str, ...], given: Properties, limits: Limits
) -> Lender:
    """For an executor: `given` are the keys it was sent with, `lending` the catalog's own entry, opened
    only if new ones are needed."""

    def ask() -> Properties:
        catalog = open_catalog(lending["name"], lending["properties"], limits)
        try:
            return _lent(catalog, identifier, lending["storage"])
        finally:
            catalog.close()

    return Lender(ask, given)


def _lent(catalog: Catalog, identifier: tuple[str, ...], configured: Properties) -> dict[str, str]:
    try:
        table = tables.load(catalog, identifier)
    except NotFoundError:
        return dict(configured)  # not made yet, or dropped: what the configuration gives is all there is
    found = table.io.properties
    if str(found.get("s3.remote-signing-enabled", "")).lower() == "true" and _KEY not in found:
        raise PermanentError(
            f"catalog {catalog.name} lends no keys for {'.'.join(identifier)}: it wants to sign each request",
            code="storage_remote_signing",
            hint="have the catalog vend credentials, or give keys under"
            f' [catalog.{catalog.name}]: "s3.access-key-id" and "s3.secret-access-key"',
        )
    return dict(configured) | {
        name: str(value) for name, value in found.items() if name.startswith(_OF_STORAGE)
    }
