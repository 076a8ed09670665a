"""Which keys and endpoint serve a location: those of the longest `[storage."…"]` that it lies in.

Where none is configured, the usual AWS variables and profiles of the program's environment do.
"""

from calve.app.config import Config

_PROPERTIES = {
    "endpoint": "s3.endpoint",
    "region": "s3.region",
    "access_key_id": "s3.access-key-id",
    "secret_access_key": "s3.secret-access-key",
    "session_token": "s3.session-token",
    "virtual_addressing": "s3.force-virtual-addressing",
}


def section_of(config: Config, location: str) -> str:
    """The prefix of the section; "" where there is none."""
    fitting = [prefix for prefix in config.storages if _lies_in(location, prefix)]
    return max(fitting, key=len, default="")


def properties_of(config: Config, location: str) -> dict[str, str]:
    """PyIceberg's own names, as `lake.storage.Storage` takes them."""
    section = section_of(config, location)
    if not section:
        return {}
    given = config.storages[section]
    return {
        theirs: given[ours].lower() if ours == "virtual_addressing" else given[ours]
        for ours, theirs in _PROPERTIES.items()
        if given.get(ours)
    }


def _lies_in(location: str, prefix: str) -> bool:
    """`s3://bucket` holds `s3://bucket/a`, and not `s3://bucket-of-another`."""
    return f"{location.rstrip('/')}/".startswith(f"{prefix.rstrip('/')}/")
