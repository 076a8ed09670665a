"""One answer to "which keys, region, endpoint, certificates", found once, where the configuration is.

The driver, executors, PyIceberg and Spark each search the environment in their own way, and executors
have another environment. So `resolve` searches on the driver, in the order of AWS's own tools, and hands
the result to everyone: configuration, then a profile that was named, then AWS_* variables, then the
default profile. What is found nowhere stays open: each program asks for the role of its own machine.

The result travels as PyIceberg's properties. `S3Access` is the same as a value, whatever the spelling;
each client's own form is made from it in one place: obstore's in `objects.s3`, Arrow's in
`destination.file_io`, Spark's in `spark.catalog_conf`, a signature's in `objects.lifecycle`. Other clouds have
words of their own: `azure_access`, `gcs_access`.

AWS profiles, as every AWS tool reads them: `~/.aws/credentials` and `~/.aws/config`.
"""

import configparser
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from calve.model.errors import UsageError
from calve.objects import azure_access, gcs_access
from calve.objects.uri import AZURE, GCS, S3, kind_of

DEFAULT = "default"
_CREDENTIALS = ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials")
_CONFIG = ("AWS_CONFIG_FILE", "~/.aws/config")
_BY_OTHER_MEANS = (
    "role_arn", "sso_session", "sso_start_url", "credential_process", "credential_source",
    "web_identity_token_file", "login_session",
)  # fmt: skip


def named_profile(name: str, environ: Mapping[str, str]) -> dict[str, str]:
    """A profile that was asked for by name. UsageError if it has no keys."""
    found = _read(name, environ)
    if not found:
        files = " and ".join(str(_path(which, environ)) for which in (_CREDENTIALS, _CONFIG))
        raise UsageError(
            f"no AWS profile {name!r} in {files}",
            code="storage_profile",
            hint="check the name: `aws configure list-profiles` lists them",
        )
    if not has_keys(found):
        how = next((key for key in _BY_OTHER_MEANS if key in found), "")
        why = f"gets its keys by {how}" if how else "has no keys"
        raise UsageError(
            f"the AWS profile {name!r} {why}; Calve reads only keys that the file holds",
            code="storage_profile",
            hint=f'eval "$(aws configure export-credentials --profile {name} --format env)",'
            " and remove the profile from the configuration",
        )
    return found


def usable_profile(name: str, environ: Mapping[str, str]) -> dict[str, str]:
    """A profile that was not asked for; {} if there is none, or if it gets its keys elsewhere."""
    found = _read(name, environ)
    return found if has_keys(found) else {}


def has_keys(profile: Mapping[str, str]) -> bool:
    return bool(profile.get("aws_access_key_id") and profile.get("aws_secret_access_key"))


def _read(name: str, environ: Mapping[str, str]) -> dict[str, str]:
    in_config = name if name == DEFAULT else f"profile {name}"
    found = _section(_path(_CONFIG, environ), in_config)
    return found | _section(_path(_CREDENTIALS, environ), name)  # of both, the credentials' keys count


def _path(which: tuple[str, str], environ: Mapping[str, str]) -> Path:
    variable, usual = which
    home = environ.get("HOME", "")
    given = environ.get(variable) or usual
    return Path(given.replace("~", home, 1)) if given.startswith("~/") and home else Path(given).expanduser()


def _section(file: Path, section: str) -> dict[str, str]:
    parser = configparser.RawConfigParser(default_section="\0", strict=False)
    try:
        parser.read_string(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, configparser.Error) as cause:
        # Not the parser's own words: they quote the line, which may hold a key (P22).
        raise UsageError(
            f"{file} cannot be read as AWS profiles ({type(cause).__name__})",
            code="storage_profile",
            hint="it has sections like [default], each with name = value lines",
        ) from None
    if not parser.has_section(section):
        return {}
    return {key: value.strip() for key, value in parser.items(section) if value}


DEFAULT_REGION = "us-east-1"  # what servers that are not AWS answer to
CA_FILE = "s3.ca-file"
_KEY, _SECRET, _TOKEN = "s3.access-key-id", "s3.secret-access-key", "s3.session-token"
_PROFILES = ("s3.profile-name", "client.profile-name")
# The fields of `S3Access`, which are also the keys of a `[storage."…"]` section, as PyIceberg names them.
_NAMES = {
    "endpoint": "s3.endpoint",
    "region": "s3.region",
    "access_key_id": _KEY,
    "secret_access_key": _SECRET,
    "session_token": _TOKEN,
    "profile": _PROFILES[0],
    "ca_file": CA_FILE,
    "virtual_addressing": "s3.force-virtual-addressing",
    "anonymous": "s3.anonymous",
    "proxy": "s3.proxy-uri",
    "role_arn": "s3.role-arn",
    "role_session_name": "s3.role-session-name",
    "encryption": "s3.server-side-encryption",
    "kms_key_id": "s3.sse-kms-key-id",
}


@dataclass(frozen=True, kw_only=True)
class S3Access:
    """How buckets of S3, and of what speaks its protocol, are reached. Empty: not given."""

    endpoint: str = ""
    region: str = ""
    access_key_id: str = ""
    secret_access_key: str = field(default="", repr=False)
    session_token: str = field(default="", repr=False)
    profile: str = ""
    ca_file: str = ""
    virtual_addressing: bool = False
    anonymous: bool = False
    proxy: str = ""
    role_arn: str = ""
    role_session_name: str = ""
    encryption: str = ""
    kms_key_id: str = ""

    @classmethod
    def of(cls, properties: Mapping[str, Any]) -> Self:
        """From PyIceberg's properties, in any spelling."""
        given: dict[str, Any] = {ours: str(properties.get(theirs) or "") for ours, theirs in _NAMES.items()}
        given["region"] = given["region"] or str(properties.get("client.region") or "")
        for flag in ("virtual_addressing", "anonymous"):
            given[flag] = given[flag].lower() == "true"
        if "s3.force-virtual-addressing" not in properties:  # a catalog's server says it in Java's words
            given["virtual_addressing"] = str(properties.get("s3.path-style-access", "")).lower() == "false"
        return cls(**given)

    @property
    def some_region(self) -> str:
        """For clients that must name one."""
        return self.region or DEFAULT_REGION

    @property
    def signs(self) -> bool:
        """Whether there are keys to sign a request with; those of a role are the client's own."""
        return bool(self.access_key_id and self.secret_access_key and not self.role_arn)


# What a `[storage."…"]` section may say of each kind of storage.
_SECTIONS: Mapping[str, Mapping[str, str]] = {
    S3: _NAMES,
    AZURE: azure_access.NAMES,
    GCS: gcs_access.NAMES,
}


def section_properties(section: Mapping[str, str], location: str) -> dict[str, str]:
    """A `[storage."…"]` section as PyIceberg's properties. UsageError for a key of another kind of storage."""
    names = _SECTIONS.get(kind_of(location), _NAMES)
    for ours, value in section.items():
        if value not in ("", "False") and ours not in names:
            raise UsageError(
                f"{ours} has no keys for {kind_of(location)}:// locations",
                code="config_bad_value",
                hint=f"its keys are {', '.join(names)}",
            )
    found = {theirs: section[ours] for ours, theirs in names.items() if section.get(ours)}
    if (virtual := _NAMES["virtual_addressing"]) in found:
        found[virtual] = found[virtual].lower()
    return found


def resolve(
    properties: Mapping[str, Any],
    environ: Mapping[str, str],
    *,
    kind: str = "",
    keys_may_be_lent: bool = False,
) -> dict[str, Any]:
    """PyIceberg's properties, completed for a kind of storage, or, where nobody knows it, for each. UsageError for
    a profile or a file that is missing. Where a catalog may lend the keys, a profile of the environment that has
    none is ignored."""
    found = dict(properties)
    if kind in ("", AZURE):
        found = azure_access.completed(found, environ)
    if kind in ("", GCS):
        found = gcs_access.completed(found, environ)
    if kind in (AZURE, GCS):
        return found
    return _resolved_s3(found, environ, keys_may_be_lent=keys_may_be_lent)


def _resolved_s3(
    found: dict[str, Any], environ: Mapping[str, str], *, keys_may_be_lent: bool
) -> dict[str, Any]:
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
        DEFAULT_REGION if endpoint else "",
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
    """UsageError unless there are certificates in it: the clients' own messages do not help."""
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError as cause:
        why = cause.strerror or type(cause).__name__
    else:
        if "BEGIN CERTIFICATE" in text or "BEGIN TRUSTED CERTIFICATE" in text:
            return
        why = "it holds no certificate"
    raise UsageError(
        f"cannot use the ca_file {path}: {why}",
        code="storage_ca_file",
        hint="name a PEM file with the authority's certificates; executors need it at the same path",
    )
