"""Which certificates the engine trusts when it fetches over https.

The engine takes them from SSL_CERT_FILE when it first speaks TLS, once for the life of its
process; a `ca_file` of the configuration is given to it that way.
"""

import os

from calve.model.errors import PermanentError

_VARIABLE = "SSL_CERT_FILE"
_given = ""


def trust(ca_file: str, source: str) -> None:
    """Make the engine of this process trust `ca_file`. PermanentError if it trusts another already:
    checking against the wrong authority is never the answer."""
    global _given
    if not ca_file or ca_file == _given:
        return
    if _given:
        raise PermanentError(
            f"source {source} has the ca_file {ca_file}, but this executor's engine was given {_given} first",
            code="source_ca_file",
            hint="put the certificates of all https sources into one file and name it for each of them",
        )
    os.environ[_VARIABLE] = ca_file
    _given = ca_file
