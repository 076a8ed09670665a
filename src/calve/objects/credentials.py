"""One answer to "which keys, region, endpoint, certificates", found once, where the configuration is.

The driver, executors, PyIceberg and Spark each have a way of their own to search the environment, and
executors have another environment. So the search is done here, on the driver, in the order that AWS's
own tools have, and everyone is handed the result: configuration, then a profile that was named, then
AWS_* variables, then the default profile. What is found nowhere stays open: roles of the machine
itself are each program's own to ask for.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calve.model.errors import UsageError
from calve.objects.profiles import DEFAULT, has_keys, named_profile, usable_profile

CA_FILE = "s3.ca-file"
_KEY, _SECRET, _TOKEN = "s3.access-key-id", "s3.secret-access-key", "s3.session-token"
_PROFILES = ("s3.profile-name", "client.profile-name")
_USUAL_REGION = "us-east-1"  # what servers that are not AWS answer to


def resolved(
    properties: Mapping[str, Any], environ: Mapping[str, str], *, keys_may_be_lent: bool = False
) -> dict[str, Any]:
    """PyIceberg's own names, completed. UsageError for a profile or a file that is not there. Where a
    catalog may lend the keys, a profile of the environment that has none is no obstacle."""
    found = dict(properties)
    for name in ("access-key-id", "secret-access-key", "session-token"):
        if value := found.get(f"client.{name}"):
            found.setdefault(f"s3.{name}", value)
    profile = _profile(found, environ, insist=not keys_may_be_lent)
    if not found.get(_KEY) and str(found.get("s3.anonymous", "")).lower() != "true":
        found |= _keys(profile, environ)
    _complete(found, profile, environ)
    if ca_file := found.get(CA_FILE):
        check_ca_file(str(ca_file))
    return found


def _profile(given: Mapping[str, Any], environ: Mapping[str, str], *, insist: bool) -> dict[str, str]:
    """The one that the configuration names, or else AWS_PROFILE, or else the default one."""
    for name in _PROFILES:
        if given.get(name):
            return named_profile(str(given[name]), environ)
    if given.get(_KEY) or environ.get("AWS_ACCESS_KEY_ID"):
        return {}
    if name := environ.get("AWS_PROFILE", ""):
        return named_profile(name, environ) if insist else usable_profile(name, environ)
    return usable_profile(DEFAULT, environ)


def _keys(profile: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    if has_keys(profile):
        found = {
            _KEY: profile["aws_access_key_id"],
            _SECRET: profile["aws_secret_access_key"],
            _TOKEN: profile.get("aws_session_token", ""),
        }
    else:
        found = {
            _KEY: environ.get("AWS_ACCESS_KEY_ID", ""),
            _SECRET: environ.get("AWS_SECRET_ACCESS_KEY", ""),
            _TOKEN: environ.get("AWS_SESSION_TOKEN", ""),
        }
    return {name: value for name, value in found.items() if value}


def _complete(found: dict[str, Any], profile: Mapping[str, str], environ: Mapping[str, str]) -> None:
    def first(*values: str | None) -> str:
        return next((value for value in values if value), "")

    endpoint = first(
        found.get("s3.endpoint"),
        environ.get("AWS_ENDPOINT_URL_S3"),
        environ.get("AWS_ENDPOINT_URL"),
        profile.get("endpoint_url"),
    )
    region = first(
        found.get("s3.region"),
        found.get("client.region"),
        environ.get("AWS_REGION"),
        environ.get("AWS_DEFAULT_REGION"),
        profile.get("region"),
        _USUAL_REGION if endpoint else "",
    )
    ca_file = first(
        found.get(CA_FILE),
        found.get("ca_file"),
        found.get("ca-file"),  # as the environment form spells it
        environ.get("AWS_CA_BUNDLE"),
        profile.get("ca_bundle"),
    )
    found |= {
        name: value
        for name, value in (("s3.endpoint", endpoint), ("s3.region", region), (CA_FILE, ca_file))
        if value
    }


def check_ca_file(path: str) -> None:
    """UsageError unless there are certificates in it: the clients' own words for that help nobody."""
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as cause:
        why = cause.strerror or type(cause).__name__
    else:
        if "BEGIN CERTIFICATE" in text or "BEGIN TRUSTED CERTIFICATE" in text:
            return
        why = "it holds no certificate"
    raise UsageError(
        f"the ca_file {path} cannot be used: {why}",
        code="storage_ca_file",
        hint="name a PEM file with the authority's certificates; executors need it at the same path",
    )
