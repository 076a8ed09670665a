"""Functions for `TaskOrder.function` that end in every way a task can end."""

import json
import os
import time


def echo(payload: str) -> str:
    """Ends well, with its payload as receipt and its process id as rows."""
    return json.dumps({"receipt": payload, "rows": os.getpid(), "files": 1, "bytes": 3_000_000_000})


def modules(payload: str) -> str:
    """Where the worker's PySpark is, and which archives Python would read again before the next task; its process
    id as rows."""
    import sys
    from zipimport import zipimporter

    import pyspark

    archives = [path for path, finder in sys.path_importer_cache.items() if isinstance(finder, zipimporter)]
    return json.dumps({"receipt": json.dumps([pyspark.__file__, archives]), "rows": os.getpid()})


def prepare() -> None:
    """What a runner has executors do before their first task."""
    os.environ["CALVE_TEST_PREPARED"] = "1"


def prepared(payload: str) -> str:
    return json.dumps({"receipt": os.environ.get("CALVE_TEST_PREPARED", "")})


def explode(payload: str) -> str:
    """Raises something that is not ours, and cannot be unpickled."""

    class Local(Exception):
        def __init__(self, one: str, two: str) -> None:
            super().__init__(f"{one} {two}")

    raise Local("boom:", payload)


def die(payload: str) -> str:
    """The worker's process is gone, as if the kernel had killed it."""
    os._exit(int(payload or 9))


def hang(payload: str) -> str:
    """Announces itself in the file named by the payload, then hangs."""
    with open(payload, "a") as file:  # noqa: PTH123
        file.write(f"{os.getpid()}\n")
    time.sleep(600)
    return "{}"
