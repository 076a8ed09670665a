"""No chance and no clock from outside the seed: ids, names of files and times that the product and PyIceberg make by
themselves come from the schedule while a history runs."""

import secrets
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from calve.model import process
from support.simulator.schedule import BEGIN, Schedule


class _Secrets:
    def __init__(self, schedule: Schedule) -> None:
        self._random = schedule.random("ids")

    def choice(self, letters: str) -> str:
        return self._random.choice(letters)

    def __getattr__(self, name: str) -> Any:
        return getattr(secrets, name)


@contextmanager
def seeded(schedule: Schedule) -> Iterator[None]:
    ids = schedule.random("uuids")

    def uuid4() -> uuid.UUID:
        return uuid.UUID(int=ids.getrandbits(128), version=4)

    def seconds() -> float:
        return BEGIN.timestamp() + schedule.now

    with (
        patch.object(process, "secrets", _Secrets(schedule)),
        patch.object(uuid, "uuid4", uuid4),
        patch.object(time, "time", seconds),
    ):
        yield
