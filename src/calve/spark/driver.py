"""The driver's JVM for work that is not shipped to executors as Python: Iceberg's own actions.

Jars are added to the running JVM with the first such order, so exports never need them. Each catalog
configuration has a Spark session; none of it is on a command line, where other users could read secrets
(P22).
"""

import os
import tempfile
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from calve.spark.java import ICEBERG_RUNTIME, Jar, resolve

_PASSWORD = "changeit"  # of every Java's own store: certificates are no secret
_TRUST_STORE = "javax.net.ssl.trustStore"
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
        self._sessions_of_jvm().setActiveSession(found)
        return found

    def _sessions_of_jvm(self) -> Any:
        """The class whose sessions these are; Spark 3 has one kind."""
        sql = self.jvm.org.apache.spark.sql
        return sql.SparkSession if self._context.version.startswith("3.") else sql.classic.SparkSession

    def trust(self, ca_files: Sequence[str]) -> None:
        """Have this JVM trust these authorities beside those that it trusts already. The executors of a
        cluster have JVMs of their own, which are configured by `spark.executor.extraJavaOptions`."""
        with self._lock:
            if not set(ca_files) <= self._trusted:
                _trust_too(self.jvm, sorted(self._trusted | set(ca_files)))
                self._trusted |= set(ca_files)

    def _knows(self, name: str, loader: Any) -> bool:
        from py4j.protocol import Py4JJavaError

        try:
            self.jvm.java.lang.Class.forName(name, False, loader)
        except Py4JJavaError:
            return False
        return True

    def _add(self, jar: Jar) -> None:
        if jar.file_name in self._jars:
            return
        loader = self.jvm.java.lang.Thread.currentThread().getContextClassLoader()
        if jar.artifact.startswith(ICEBERG_RUNTIME) and self._knows(
            "org.apache.iceberg.spark.SparkCatalog", loader
        ):
            return  # a platform has its own, or [spark.conf] names one
        path = str(resolve(jar))
        self._context._jsc.addJar(path)  # the executors
        loader.addURL(self.jvm.java.io.File(path).toURI().toURL())  # the driver itself
        if driver := _DRIVERS.get(jar.artifact):
            # JDBC looks for drivers once, at its first use, which may be past.
            self.jvm.java.lang.Class.forName(driver, True, loader)
        self._jars.add(jar.file_name)


def _trust_too(jvm: Any, ca_files: Sequence[str]) -> None:
    """Trust the authorities in these PEM files beside those trusted now. May be called twice.

    Java reads its trust store when a TLS client is built, from the file that a system property names.
    So a store with both is written, and named.
    """
    system, io = jvm.java.lang.System, jvm.java.io
    password = system.getProperty(f"{_TRUST_STORE}Password") or _PASSWORD
    store = _trust_store_now(jvm, password)
    factory = jvm.java.security.cert.CertificateFactory.getInstance("X.509")
    for file in ca_files:
        stream = io.FileInputStream(file)
        try:
            for number, certificate in enumerate(factory.generateCertificates(stream)):
                store.setCertificateEntry(f"{file}-{number}", certificate)
        finally:
            stream.close()
    # If we die here, a file of certificates is left in the JVM's folder, and removed with it (calve.spark.jvm_files).
    folder = system.getProperty("java.io.tmpdir")
    handle, path = tempfile.mkstemp(prefix="calve-trust-", suffix=".keystore", dir=folder)
    os.close(handle)
    out = io.FileOutputStream(path)
    try:
        store.store(out, _chars(jvm, password))
    finally:
        out.close()
    io.File(path).deleteOnExit()
    system.setProperty(_TRUST_STORE, path)
    system.setProperty(f"{_TRUST_STORE}Type", store.getType())
    system.setProperty(f"{_TRUST_STORE}Password", password)


def _trust_store_now(jvm: Any, password: str) -> Any:
    """The store that the system property names, or Java's own."""
    system, io, key_store = jvm.java.lang.System, jvm.java.io, jvm.java.security.KeyStore
    own = io.File(io.File(system.getProperty("java.home")), "lib/security/cacerts")
    named = system.getProperty(_TRUST_STORE)
    file = io.File(named) if named else own
    if file.isFile():
        return key_store.getInstance(file, _chars(jvm, password))
    empty = key_store.getInstance(key_store.getDefaultType())
    empty.load(None, _chars(jvm, password))
    return empty


def _chars(jvm: Any, text: str) -> Any:
    """Py4J turns every String into Python's, so one has to be written."""
    writer = jvm.java.io.CharArrayWriter()
    writer.write(text, 0, len(text))
    return writer.toCharArray()
