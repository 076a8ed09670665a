"""An export task whose executor dies, as by kill -9, at a chosen call to the storage."""

import json
import os
from collections.abc import Callable
from typing import Any

from calve.model.errors import UnavailableError

CALLS = ("upload", "put_if_absent")  # those that change something


def wrap(payload: str, *, at: int, how: str) -> str:
    """The payload for `run`: the real task's, and where to die (`before`, `after` call number `at`) or
    to have a call that was carried out reported as failed (`reported_failed`)."""
    return json.dumps({"payload": payload, "at": at, "how": how})


def run(text: str) -> str:
    from calve.export import task
    from calve.objects.storage import Storage

    given = json.loads(text)
    calls = 0

    def breaking(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            here = calls == given["at"]
            if here and given["how"] == "before":
                os._exit(9)
            answer = call(*args, **kwargs)
            if here and given["how"] == "after":
                os._exit(9)
            if here:
                raise UnavailableError(f"{name} was carried out and reported failed", code="injected")
            return answer

        return counted

    really = {name: getattr(Storage, name) for name in CALLS}
    for name, call in really.items():
        setattr(Storage, name, breaking(name, call))
    try:
        return task.run(given["payload"])
    finally:
        for name, call in really.items():
            setattr(Storage, name, call)
