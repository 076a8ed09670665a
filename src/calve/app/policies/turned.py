"""How a view reads a partition from its table again.

The rows are there, so the lake is not asked and the pinned state stays as it is: rows that somebody deleted in the lake, of whatever
partition, or a catalog that is away, keep nothing from coming back.
"""

import secrets

from calve.app.wiring import App
from calve.clickhouse.tier import residency
from calve.clickhouse.tier.residency import Resident


def turn_hot(app: App, source: str, uuid: str, partition: str) -> None:
    """At every server that has a view over the table. The rows must be in the table: the caller has looked."""
    found = []
    for visit in app.source(source).visits():
        with visit as session:
            there = residency.comment_of(session, uuid) is not None
            found.append(residency.read(session, uuid) if there else None)
    state = residency.newest(one for one in found if one is not None)
    if all(not one[partition].cold for one in found if one is not None and partition in one):
        return
    stamped = residency.stamped([Resident(id=partition, cold=False)], state, secrets.token_hex(8))
    for visit, before in zip(app.source(source).visits(), found, strict=True):
        if before is not None:
            with visit as session:
                # If we die here, some servers read it from the table and some from the lake, which has the same rows.
                residency.put(session, uuid, stamped)
