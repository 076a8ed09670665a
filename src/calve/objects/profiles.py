"""AWS profiles, as every AWS tool reads them: `~/.aws/credentials` and `~/.aws/config`.

Only keys that these files hold. A profile that gets its keys by a login, a role or a program is refused
by name: guessing would end in someone else's keys.
"""

import configparser
from collections.abc import Mapping
from pathlib import Path

from calve.model.errors import UsageError

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
