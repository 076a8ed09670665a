"""How buckets of Google Cloud Storage are reached: which keys, found once (see `credentials`).

The order: the configuration, then a service account in GOOGLE_SERVICE_ACCOUNT_KEY, then the file that
GOOGLE_APPLICATION_CREDENTIALS or GOOGLE_SERVICE_ACCOUNT names, if it is a service account's. What is found
nowhere stays open: each program asks for the identity of the machine or the pod that it runs on.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from calve.model.errors import UsageError

# Of `[storage."…"]`, as PyIceberg and Iceberg's Java name them where they have a name.
NAMES = {
    "service_account_key": "gcs.service-account-key",
    "token": "gcs.oauth2.token",
    "endpoint": "gcs.service.host",
    "ca_file": "gcs.ca-file",
}
_KEYS = ("service_account_key", "token")
_FILES = ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH")


@dataclass(frozen=True, kw_only=True)
class GcsAccess:
    """Empty: not given."""

    service_account_key: str = field(default="", repr=False)  # the JSON of a service account's key
    token: str = field(default="", repr=False)
    endpoint: str = ""
    ca_file: str = ""

    @classmethod
    def of(cls, properties: Mapping[str, Any]) -> Self:
        return cls(**{ours: str(properties.get(theirs) or "") for ours, theirs in NAMES.items()})


def completed(properties: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """PyIceberg's properties, with what the environment has. UsageError for a key that is none."""
    found = dict(properties)
    name = NAMES["service_account_key"]
    if not any(found.get(NAMES[one]) for one in _KEYS):
        key = environ.get("GOOGLE_SERVICE_ACCOUNT_KEY", "") or _of_files(environ)
        found |= {name: key} if key else {}
    if found.get(name):
        _check(str(found[name]))
    return found


def _of_files(environ: Mapping[str, str]) -> str:
    """A file of another kind (a person's login, a federated identity) stays with each program's own client."""
    for variable in _FILES:
        path = environ.get(variable, "")
        try:
            text = Path(path).read_text(encoding="utf-8") if path else ""
        except OSError as cause:
            raise UsageError(
                f"{variable} names {path}, which cannot be read: {cause.strerror}",
                code="storage_profile",
                hint="name a file with a service account's key, or unset the variable",
            ) from None
        if '"service_account"' in text:
            return text
    return ""


def _check(key: str) -> None:
    """Not the parser's own words: they quote the key (P22)."""
    try:
        given = json.loads(key)
    except ValueError:
        given = None
    if not isinstance(given, dict) or not {"client_email", "private_key"} <= given.keys():
        raise UsageError(
            "the service account's key is invalid: it lacks client_email or private_key",
            code="storage_profile",
            hint="give the JSON file that Google Cloud made for the account, as service_account_key_file",
        )
