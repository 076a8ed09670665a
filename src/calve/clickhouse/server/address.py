"""Where a server is: `url` of the configuration, one address or several replicas of one cluster."""

import urllib.parse
from dataclasses import dataclass

from calve.model.errors import UsageError

SCHEMES = ("http", "https")
_PORTS = {"http": 8123, "https": 8443}


@dataclass(frozen=True, kw_only=True)
class Address:
    """One replica."""

    scheme: str
    host: str
    port: int

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    def __str__(self) -> str:
        return self.url


def parse_url(text: str, source: str) -> tuple[Address, ...]:
    """The replicas that `url` names, in order: `http://a:8123,b:8123`, or whole URLs with commas."""
    scheme, separator, rest = text.partition("://")
    if not separator or scheme not in SCHEMES:
        raise _wrong(source, 'url = "http://host:8123" or "https://host:8443"')
    if "@" in rest:
        # The text is not repeated: it holds a password.
        raise _wrong(source, f"give user and password_file under [source.{source}], not in the url")
    pieces = [piece.removeprefix(f"{scheme}://") for piece in rest.split(",")]
    return tuple(_address(scheme, piece.rstrip("/"), source) for piece in pieces)


def _address(scheme: str, text: str, source: str) -> Address:
    split = urllib.parse.urlsplit(f"{scheme}://{text}")
    try:
        port = split.port
    except ValueError:
        raise _wrong(source, "a port is a number up to 65535") from None
    if not split.hostname or split.path or split.query or split.fragment:
        raise _wrong(source, "give scheme, host and port only; several replicas are separated by commas")
    return Address(scheme=scheme, host=split.hostname, port=port or _PORTS[scheme])


def _wrong(source: str, hint: str) -> UsageError:
    return UsageError(f"the url of source {source} names no ClickHouse server", code="source_url", hint=hint)
