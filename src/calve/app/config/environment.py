"""The environment form of every key.

    CALVE_STORE__URL                        store.url
    CALVE_LIMITS__TASK_ATTEMPTS             limits.task_attempts
    CALVE_SOURCE__MAIN__URL                 source.main.url
    CALVE_SOURCE__MAIN__DISKS__DEFAULT      source.main.disks.default
    CALVE_STORAGE__S3_BUCKET__REGION        storage."s3://bucket".region (a prefix named in the file)
    CALVE_CATALOG__LAKE__S3__ACCESS_KEY_ID  catalog.lake."s3.access-key-id"
    CALVE_SPARK__CONF__SPARK__UI__ENABLED   spark.conf."spark.ui.enabled"

Two underscores part the names. A name that the file has is matched whatever its case and
signs are. Under a catalog and `spark.conf` two underscores are a dot, one is a dash (as
PyIceberg's own variables have it), and a name in mixed case is kept as it is written.
"""

import difflib
import re
from collections.abc import Iterable, Mapping

from calve.app.config.sections import NAMED_SECTIONS, PLAIN_SECTIONS
from calve.app.config.tree import ENVIRONMENT, Key, Leaf, Leaves
from calve.model.errors import UsageError

PREFIX = "CALVE_"
_SECTIONS = (*NAMED_SECTIONS, *PLAIN_SECTIONS)


def leaves_from(environ: Mapping[str, str], in_file: Iterable[Key]) -> Leaves:
    """What the environment says. Variables without two underscores (CALVE_CONFIG) are not settings."""
    known = list(in_file)
    return {
        _key(variable, known): Leaf(value=value, origin=f"{ENVIRONMENT} {variable}")
        for variable, value in sorted(environ.items())
        if variable.startswith(PREFIX) and "__" in variable
    }


def _key(variable: str, known: list[Key]) -> Key:
    section, *names = variable.removeprefix(PREFIX).split("__")
    section = section.lower()
    if section not in _SECTIONS:
        raise _unknown(variable, f"there is no section {section!r}", section)
    if not all(names) or not names:
        raise _unknown(variable, "a name is empty", section)
    if section == "catalog" and len(names) >= 2:
        return ("catalog", _name(variable, known, "catalog", names[0]), _handed_on(known, names[1:]))
    if section == "spark" and names[0].lower() == "conf" and len(names) >= 2:
        return ("spark", "conf", _handed_on(known, names[1:]))
    if section in NAMED_SECTIONS:
        name = _name(variable, known, section, names[0])
        return (section, name, *(item.lower() for item in names[1:]))
    return (section, *(item.lower() for item in names))


def _name(variable: str, known: list[Key], section: str, given: str) -> str:
    for key in known:
        if key[0] == section and len(key) > 1 and _flat(key[1]) == _flat(given):
            return key[1]
    if section == "storage":
        raise UsageError(
            f"{variable}: no [storage] prefix in the file reads as {given}",
            code="config_unknown_key",
            hint='name the prefix in the file first, for instance [storage."s3://bucket"]',
        )
    return given.lower()


def _handed_on(known: list[Key], names: list[str]) -> str:
    """A name that belongs to PyIceberg or Spark."""
    given = "__".join(names)
    for key in known:
        if len(key) == 3 and _flat(key[2]) == _flat(given):
            return key[2]
    if given != given.upper():
        return given.replace("__", ".")
    return ".".join(name.lower().replace("_", "-") for name in names)


def _flat(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower())


def _unknown(variable: str, reason: str, section: str) -> UsageError:
    near = difflib.get_close_matches(section, _SECTIONS, n=1)
    meant = f"did you mean {PREFIX}{near[0].upper()}__…? " if near and near[0] != section else ""
    return UsageError(
        f"environment variable {variable} is not a setting: {reason}",
        code="config_unknown_key",
        hint=f"{meant}the form is CALVE_SECTION__KEY; `calve config` lists every key",
    )
