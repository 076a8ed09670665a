"""Which keys, endpoint and certificates serve a location, or a catalog's files.

A location takes those of the longest `[storage."…"]` that it lies in, a catalog those of its own entry.
What is not given there comes from the program's environment and AWS profiles (`lake.access.resolve`).
"""

import os
from collections.abc import Mapping
from typing import Any

from calve.app.config import Config
from calve.model.errors import CalveError

_PROPERTIES = {
    "endpoint": "s3.endpoint",
    "region": "s3.region",
    "access_key_id": "s3.access-key-id",
    "secret_access_key": "s3.secret-access-key",
    "session_token": "s3.session-token",
    "profile": "s3.profile-name",
    "ca_file": "s3.ca-file",
    "virtual_addressing": "s3.force-virtual-addressing",
}
_LOCAL = ("file:", "/")


def section_of(config: Config, location: str) -> str:
    """The prefix of the section; "" where there is none."""
    fitting = [prefix for prefix in config.storages if _lies_in(location, prefix)]
    return max(fitting, key=len, default="")


def properties_of(config: Config, location: str) -> dict[str, str]:
    """PyIceberg's own names, as `lake.storage.Storage` takes them."""
    if location.startswith(_LOCAL):
        return {}
    section = section_of(config, location)
    given = config.storages[section] if section else {}
    named = {
        theirs: given[ours].lower() if ours == "virtual_addressing" else given[ours]
        for ours, theirs in _PROPERTIES.items()
        if given.get(ours)
    }
    return _resolved(named, f'[storage."{section}"]' if section else location)


def catalog_properties(config: Config, name: str) -> dict[str, Any]:
    """A catalog's entry, completed for the storage of its files."""
    given = config.catalog(name)
    if str(given.get("warehouse", "")).startswith(_LOCAL):
        return dict(given)
    kind, uri = str(given.get("type", "")).lower(), str(given.get("uri", ""))
    rest = kind == "rest" or (not kind and uri.startswith("http"))
    return _resolved(given, f"[catalog.{name}]", keys_may_be_lent=rest)


def _resolved(given: Mapping[str, Any], where: str, *, keys_may_be_lent: bool = False) -> dict[str, Any]:
    from calve.objects.credentials import resolved

    try:
        return resolved(given, os.environ, keys_may_be_lent=keys_may_be_lent)
    except CalveError as error:
        raise type(error)(f"{where}: {error.message}", code=error.code, hint=error.hint) from error


def _lies_in(location: str, prefix: str) -> bool:
    """`s3://bucket` holds `s3://bucket/a`, and not `s3://bucket-of-another`."""
    return f"{location.rstrip('/')}/".startswith(f"{prefix.rstrip('/')}/")
