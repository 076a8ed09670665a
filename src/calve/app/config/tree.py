"""The configuration before it is checked: leaves by their path, each with its origin.

The environment form of every key.

Secrets: read from `…_file`, and masked wherever a value is shown.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from calve.app.config.sections import NAMED_SECTIONS, PLAIN_SECTIONS
from calve.model.errors import UsageError
from calve.wire.logs import SECRET_NAME

Key = tuple[str, ...]

ENVIRONMENT = "environment"  # how an origin there begins

# PyIceberg reads these two as tables of their own; every other nested table under a catalog is
# a dotted key written without quotes (`s3.endpoint = …`).
_NESTED_CATALOG_KEYS = frozenset({"auth", "ssl"})


@dataclass(frozen=True, kw_only=True)
class Leaf:
    value: Any
    origin: str


Leaves = dict[Key, Leaf]


def leaves_of(document: Mapping[str, Any], origin: str) -> Leaves:
    """The leaves of a TOML document, in the file's order."""
    return {key: Leaf(value=value, origin=origin) for key, value in _walk((), document)}


def _walk(above: Key, value: Any) -> Iterator[tuple[Key, Any]]:
    if not isinstance(value, Mapping) or _is_handed_on(above):
        yield _joined(above), value
        return
    if not value and above:
        yield above, {}  # an empty section still names something: [source.main] without a url
    for name, below in value.items():
        yield from _walk((*above, name), below)


def _is_handed_on(key: Key) -> bool:
    return len(key) == 3 and key[0] == "catalog" and key[2] in _NESTED_CATALOG_KEYS


def _joined(key: Key) -> Key:
    """Dotted keys of catalogs and Spark are one name each."""
    if len(key) > 3 and (key[0] == "catalog" or key[:2] == ("spark", "conf")):
        return (*key[:2], ".".join(key[2:]))
    return key


def document_of(leaves: Leaves) -> dict[str, Any]:
    """Back to nested tables."""
    root: dict[str, Any] = {}
    for key, leaf in leaves.items():
        table = root
        for name in key[:-1]:
            below = table.setdefault(name, {})
            if not isinstance(below, dict):
                below = table[name] = {}
            table = below
        if leaf.value == {} and isinstance(table.get(key[-1]), dict):
            continue
        table[key[-1]] = leaf.value
    return root


def dotted(key: Key) -> str:
    """As a person writes it: quotes where a name has more than letters, digits, `_` and `-`."""
    plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
    return ".".join(name if name and all(sign in plain for sign in name) else f'"{name}"' for name in key)


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
        hint=f"{meant}the form is CALVE_SECTION__KEY; `calve init` in an empty folder shows every key",
    )


MASK = "********"
_HOOKS = frozenset({"url", "start", "success", "fail"})  # knowing such a URL is enough to call it
_URL_PASSWORD = re.compile(r"(?<=://)([^/@:]*):([^/@]*)(?=@)")
_QUERY_SECRET = re.compile(r"(?i)([?&](?:[^=&]*(?:password|secret|token|signature)[^=&]*|sig)=)([^&]*)")
_ENGINE_TEXT = re.compile(r"'((?:[^'\\]|\\.)*)'")


def _engine_secrets(engine: str) -> list[str]:
    """Arguments of a table engine ([source.NAME] lake) that are neither a place nor the name of a format: a key
    or a connection string may stand there, in spite of what the docs say."""
    texts = (text for text in _ENGINE_TEXT.findall(engine) if len(text) >= 8 and "{" not in text)
    return [text for text in texts if not re.match("[a-z0-9]+://", text)]


def is_secret(key: Key) -> bool:
    name = key[-1]
    if key[0] == "limits":
        return False  # numbers, of tokens too
    return bool(SECRET_NAME.search(name)) and not name.endswith(("_file", "-file", "-uri", ".endpoint"))


def _is_hook(key: Key) -> bool:
    return key[0] in ("notify", "ping") and key[-1] in _HOOKS


def _is_engine(key: Key) -> bool:
    return len(key) == 4 and key[0] == "source" and key[2] == "lake"


def shown(key: Key, value: Any) -> Any:
    """What may be printed of a value."""
    if _is_engine(key) and isinstance(value, str):
        for text in _engine_secrets(value):
            value = value.replace(f"'{text}'", f"'{MASK}'")
        return mask_url(value)
    if _is_hook(key) and value:
        place = urlsplit(value)
        return f"{place.scheme}://{place.hostname}/{MASK}"
    if is_secret(key) and value not in ("", None):
        return MASK
    if isinstance(value, dict):
        return {name: shown((*key, name), below) for name, below in value.items()}
    if isinstance(value, str):
        return mask_url(value)
    return value


def secrets(leaves: Leaves) -> tuple[str, ...]:
    """Every secret value, those within URLs too."""
    found: list[str] = []
    for key, leaf in leaves.items():
        value = leaf.value
        if isinstance(value, dict):
            found += secrets({(*key, name): Leaf(value=below, origin="") for name, below in value.items()})
        elif _is_engine(key):
            found += _engine_secrets(str(value))
        elif is_secret(key):
            found += [str(value)] if str(value).lower() not in ("true", "false") else []  # a switch is none
        elif _is_hook(key):
            place = urlsplit(str(value))
            found += [str(value), *(text for text in (place.path.strip("/"), place.query) if len(text) >= 8)]
        elif isinstance(value, str):
            given = [one[2] for form in (_URL_PASSWORD, _QUERY_SECRET) for one in form.finditer(value)]
            found += [spelling for one in given for spelling in (one, unquote(one))]
    return tuple(dict.fromkeys(text for text in found if text))


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
