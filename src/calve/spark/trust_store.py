"""Authorities of one's own for a JVM that runs already.

Java reads its trust store when a TLS client is built, from the file that a system property names. So a
store with the authorities that it has and ours is written, and named. It holds certificates, which are
no secret; the password is the one that every Java's own store has.
"""

import os
import tempfile
from collections.abc import Sequence
from typing import Any

_PASSWORD = "changeit"
_PROPERTY = "javax.net.ssl.trustStore"


def extend(jvm: Any, ca_files: Sequence[str]) -> None:
    """Trust the authorities in these PEM files too. Twice is harmless."""
    system, io = jvm.java.lang.System, jvm.java.io
    password = system.getProperty(f"{_PROPERTY}Password") or _PASSWORD
    store = _present(jvm, password)
    factory = jvm.java.security.cert.CertificateFactory.getInstance("X.509")
    for file in ca_files:
        stream = io.FileInputStream(file)
        try:
            for number, certificate in enumerate(factory.generateCertificates(stream)):
                store.setCertificateEntry(f"{file}-{number}", certificate)
        finally:
            stream.close()
    # If we die here, a file of certificates is left in the temporary folder.
    handle, path = tempfile.mkstemp(prefix="calve-trust-", suffix=".keystore")
    os.close(handle)
    out = io.FileOutputStream(path)
    try:
        store.store(out, _chars(jvm, password))
    finally:
        out.close()
    io.File(path).deleteOnExit()
    system.setProperty(_PROPERTY, path)
    system.setProperty(f"{_PROPERTY}Type", store.getType())
    system.setProperty(f"{_PROPERTY}Password", password)


def _present(jvm: Any, password: str) -> Any:
    """What Java trusts now: the store that somebody named, or its own."""
    system, io, key_store = jvm.java.lang.System, jvm.java.io, jvm.java.security.KeyStore
    own = io.File(io.File(system.getProperty("java.home")), "lib/security/cacerts")
    named = system.getProperty(_PROPERTY)
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
