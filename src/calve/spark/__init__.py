"""Spark: the session, waves of task attempts as jobs, cancellation. The one room that starts a JVM.

Belongs here: how a `TaskOrder` reaches an executor (`runner`, `executor`) or the driver's JVM (`driver`,
`actions`, `maintenance`) and how its `TaskResult` comes back. Must not be here: what an exported row is,
retries (attempts are the control plane's), or the store.

`run` and `doctor` are for programs that have a session: see `calve.data_source.session`, where Calve meets Spark's users.
"""

from typing import Any

__all__ = ["doctor", "run"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'calve.spark' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module("calve.data_source.session"), name)
