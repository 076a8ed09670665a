"""Identifiers. Random, so that stores which know nothing of each other never collide,
and short enough to type: a unique prefix is accepted wherever a person gives one."""

import secrets
from typing import NewType

ProcessId = NewType("ProcessId", str)
BatchId = NewType("BatchId", str)
WorkerId = NewType("WorkerId", str)

_ALPHABET = "abcdefghijkmnpqrstuvwxyz23456789"  # 32 signs, none mistaken for another
BATCH_PREFIX = "batch-"


def _random(length: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(length))


def new_process_id() -> ProcessId:
    """65 random bits: it names tags, files and freezes in tables that other stores use too."""
    return ProcessId(_random(13))


def new_batch_id() -> BatchId:
    return BatchId(BATCH_PREFIX + _random(8))


def new_worker_id(host: str, pid: int) -> WorkerId:
    """One incarnation of a worker: a restarted worker is another one, and owns nothing."""
    return WorkerId(f"{host}-{pid}-{_random(6)}")
