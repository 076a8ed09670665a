"""The Python daemon of executors on this machine: Spark's own, started faster.

Spark puts archives of PySpark first on the path, from which Python compiles each module anew at every
start; here the installed package is used, as by the driver. What tasks import is imported once, before
the workers are forked: only what starts no thread, and never the engine (W10).
"""

import gc
import importlib
import sys

_ARCHIVES = (".zip", ".jar")
_IMPORTED = ("calve.spark.executor", "pyiceberg.schema", "pyiceberg.catalog.rest", "pyiceberg.catalog.sql")


def main() -> None:
    sys.path[:] = [entry for entry in sys.path if not entry.endswith(_ARCHIVES)]
    for name in _IMPORTED:
        importlib.import_module(name)
    from pyspark import daemon

    gc.freeze()  # Spark collects garbage after each task: not among the modules
    daemon.manager()


if __name__ == "__main__":
    main()
