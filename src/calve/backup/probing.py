"""Asking whether what was down answers again: the source, or the location, which has to take writes."""

import secrets

from calve.archive.ports import BackupPorts

_SOURCE = "source:"


def probe(ports: BackupPorts, lane: str) -> None:
    """Return if it answers. A read is not asked for alone: gateways answer reads before they take data."""
    if lane.startswith(_SOURCE):
        with ports.source(lane.removeprefix(_SOURCE)).visit() as session:
            session.rows("SELECT 1 AS one", what="probing")
        return
    location = ports.location()
    uri = f"{location.under_way('probe')}/{secrets.token_hex(8)}"
    # if we die here, an object of a few bytes is left, whose name says what it was
    location.storage.put_if_absent(uri, b"calve")
    location.storage.delete([uri])
