"""The driver's JVM for work that is not shipped to executors as Python: Iceberg's own actions.

Jars are added to the running JVM when the first such order comes, so that whoever only exports
never needs them. One Spark session for each catalog configuration; nothing of it is on a command
line, where other users could read secrets (P22).
"""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

from calve.spark import trust_store
from calve.spark.jars import Jar, resolve

_DRIVERS = {"sqlite-jdbc": "org.sqlite.JDBC", "postgresql": "org.postgresql.Driver"}


class Driver:
    """What an order that runs on the driver is handed. Thread-safe."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._jars: set[str] = set()
        self._sessions: dict[frozenset[tuple[str, str]], Any] = {}
        self._trusted: set[str] = set()

    @property
    def jvm(self) -> Any:
        return self._context._jvm

    def session(self, conf: Mapping[str, str], jars: Sequence[Jar]) -> Any:
        """The JVM's Spark session with that configuration, made the active one of this thread: threads
        that Iceberg's actions start inherit it, and look for the catalog there."""
        from pyspark.sql import SparkSession

        key = frozenset(conf.items())
        with self._lock:
            for jar in jars:
                self._add(jar)
            if key not in self._sessions:
                session = SparkSession(self._context).newSession()
                for name, value in conf.items():
                    session.conf.set(name, value)
                self._sessions[key] = session._jsparkSession
            found = self._sessions[key]
        self.jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(found)
        return found

    def trust(self, ca_files: Sequence[str]) -> None:
        """Have this JVM trust these authorities beside those that it trusts already. The executors of a
        cluster have JVMs of their own, which are told by `spark.executor.extraJavaOptions`."""
        with self._lock:
            if not set(ca_files) <= self._trusted:
                trust_store.extend(self.jvm, sorted(self._trusted | set(ca_files)))
                self._trusted |= set(ca_files)

    def _add(self, jar: Jar) -> None:
        if jar.file_name in self._jars:
            return
        path = str(resolve(jar))
        self._context._jsc.addJar(path)  # the executors
        loader = self.jvm.java.lang.Thread.currentThread().getContextClassLoader()
        loader.addURL(self.jvm.java.io.File(path).toURI().toURL())  # the driver itself
        if driver := _DRIVERS.get(jar.artifact):
            # JDBC looks for drivers once, at its first use, which may be past.
            self.jvm.java.lang.Class.forName(driver, True, loader)
        self._jars.add(jar.file_name)
