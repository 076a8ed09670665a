"""Secrets: read from `…_file`, and masked wherever a value is shown."""

import re
from pathlib import Path
from typing import Any

from calve.app.config.sections import NAMED_SECTIONS, PLAIN_SECTIONS
from calve.app.config.tree import ENVIRONMENT, Key, Leaf, Leaves, dotted
from calve.model.errors import UsageError

MASK = "********"
_SECRET_NAME = re.compile(r"(?i)(password|passwd|secret|token|credential|private|sas|account-key|[._-]key$)")
_URL_PASSWORD = re.compile(r"(?<=://)([^/@:]*):[^/@]*(?=@)")
_QUERY_SECRET = re.compile(r"(?i)([?&][^=&]*(?:password|secret|token)[^=&]*=)[^&]*")


def is_secret(key: Key) -> bool:
    name = key[-1]
    return bool(_SECRET_NAME.search(name)) and not name.endswith(("_file", "-file", "-uri", ".endpoint"))


def shown(key: Key, value: Any) -> Any:
    """What may be printed of a value."""
    if is_secret(key) and value not in ("", None):
        return MASK
    if isinstance(value, dict):
        return {name: shown((*key, name), below) for name, below in value.items()}
    if isinstance(value, str):
        return mask_url(value)
    return value


def mask_url(text: str) -> str:
    return _QUERY_SECRET.sub(rf"\g<1>{MASK}", _URL_PASSWORD.sub(rf"\1:{MASK}", text))


def read_files(leaves: Leaves, folder: Path) -> Leaves:
    """Replace each `name_file` by `name`, read from that file."""
    read: Leaves = {}
    for key, leaf in leaves.items():
        target = _target(key)
        if target is None:
            read.setdefault(key, leaf)
        elif target in leaves and leaves[target].origin == leaf.origin:
            raise UsageError(
                f"both {dotted(target)} and {dotted(key)} are given",
                code="config_bad_value",
                hint=f"keep one of them; {dotted(key)} is the safer one",
            )
        elif target not in leaves or leaf.origin.startswith(ENVIRONMENT):  # the environment wins
            read[target] = _read(key, leaf, folder)
    return read


def _target(key: Key) -> Key | None:
    """`password_file` -> `password`; None where the name is a key of its own (`ca_file`)."""
    if not key[-1].endswith("_file") or key[-1] == "ca_file":
        return None
    section = NAMED_SECTIONS.get(key[0], PLAIN_SECTIONS.get(key[0]))
    if section is not None and key[-1] in section.model_fields:
        return None
    base = key[-1].removesuffix("_file")
    if section is not None and base not in section.model_fields:
        return None  # an unknown key, reported as one
    if key[:2] == ("spark", "conf"):
        return None
    return (*key[:-1], base)


def _read(key: Key, leaf: Leaf, folder: Path) -> Leaf:
    path = folder / Path(str(leaf.value)).expanduser()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise UsageError(
            f"{dotted(key)} ({leaf.origin}): cannot read {path}: {reason}",
            code="config_bad_value",
            hint="the file must contain the secret and nothing else",
        ) from error
    return Leaf(value=text.strip("\r\n"), origin=f"file {path} ({leaf.origin})")
