"""Which keys, endpoint and certificates serve a location, or a catalog's files.

A location takes those of the longest `[storage."…"]` that it lies in, a catalog those of its own entry.
What is not given there comes from the program's environment and AWS profiles (`objects.credentials`).
"""

import os
from collections.abc import Mapping
from typing import Any

from calve.app.config import Config
from calve.iceberg.catalogs.entry import catalog_type
from calve.model.errors import CalveError
from calve.objects.credentials import resolve, section_properties
from calve.objects.uri import LOCAL, is_below, kind_of


def section_of(config: Config, location: str) -> str:
    """The prefix of the section; "" where there is none."""
    fitting = [prefix for prefix in config.storages if is_below(location, prefix)]
    return max(fitting, key=len, default="")


def properties_of(config: Config, location: str) -> dict[str, str]:
    """PyIceberg's own names, as `objects.storage.Storage` takes them."""
    if kind_of(location) == LOCAL:
        return {}
    section = section_of(config, location)
    given = section_properties(config.storages[section]) if section else {}
    return _resolve(given, f'[storage."{section}"]' if section else location)


def catalog_properties(config: Config, name: str) -> dict[str, Any]:
    """A catalog's entry, completed for the storage of its files."""
    given = config.catalog(name)
    warehouse = str(given.get("warehouse", ""))
    served = catalog_type(given) == "rest"  # its warehouse is a name that the server knows
    if not served and "/" in warehouse and kind_of(warehouse) == LOCAL:
        return dict(given)
    return _resolve(given, f"[catalog.{name}]", keys_may_be_lent=served)


def _resolve(given: Mapping[str, Any], where: str, *, keys_may_be_lent: bool = False) -> dict[str, Any]:
    try:
        return resolve(given, os.environ, keys_may_be_lent=keys_may_be_lent)
    except CalveError as error:
        raise type(error)(f"{where}: {error.message}", code=error.code, hint=error.hint) from error
