"""No chance and no clock from outside the seed: ids, names of files and times that the product and PyIceberg make by
themselves come from the schedule while a history runs."""

import json
import secrets
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, TypeVar
from unittest.mock import patch

from pyiceberg.avro.file import AvroFileHeader
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from calve.archive import location, ports
from calve.model import process
from support.simulator.schedule import BEGIN, Schedule

T = TypeVar("T")


@lru_cache(maxsize=256)
def _parsed(text: str) -> Any:
    return AvroSchemaConversion().avro_to_iceberg(json.loads(text))


def _schema_of(header: AvroFileHeader) -> Any:
    """PyIceberg's, which parses the same few schemas again for every manifest."""
    return _parsed(header.meta["avro.schema"])


class _Secrets:
    def __init__(self, schedule: Schedule) -> None:
        self._random = schedule.random("ids")

    def choice(self, letters: str) -> str:
        return self._random.choice(letters)

    def token_hex(self, count: int) -> str:
        return f"{self._random.getrandbits(8 * count):0{2 * count}x}"

    def __getattr__(self, name: str) -> Any:
        return getattr(secrets, name)


def _here(seeded: Callable[[], T], real: Callable[[], T]) -> Callable[[], T]:
    """In this thread alone: a server that another test has left running lives in real time, and would sleep for ever if it
    woke up in ours."""
    here = threading.get_ident()
    return lambda: seeded() if threading.get_ident() == here else real()


@contextmanager
def seeded(schedule: Schedule) -> Iterator[None]:
    ids = schedule.random("uuids")

    def uuid4() -> uuid.UUID:
        return uuid.UUID(int=ids.getrandbits(128), version=4)

    def seconds() -> float:
        return BEGIN.timestamp() + schedule.now

    with (
        patch.object(AvroFileHeader, "get_schema", _schema_of),
        patch.object(process, "secrets", _Secrets(schedule)),
        patch.object(location, "secrets", _Secrets(schedule)),
        patch.object(ports, "secrets", _Secrets(schedule)),
        patch.object(uuid, "uuid4", _here(uuid4, uuid.uuid4)),
        patch.object(time, "time", _here(seconds, time.time)),
        patch.object(time, "monotonic", _here(schedule.monotonic, time.monotonic)),
    ):
        yield
