"""Tokens as text, and the file with the token of this host, which a server makes and commands read.

The file is its owner's alone: not a link, not of another user, readable by nobody else. Whoever knows the
token can prove it for one port without saying it, so a command never sends it to a stranger's server.
"""

import hashlib
import hmac
import os
import re
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from calve.model.errors import UsageError

LOCAL = "local"  # the id of the token in the file
_FORM = re.compile(r"calve_([a-z0-9]{1,16})_[A-Za-z0-9_-]{43}")
_ID_LETTERS = "abcdefghijkmnpqrstuvwxyz23456789"


def make_token(token_id: str = "") -> tuple[str, str]:
    """An id and a text of 256 random bits."""
    token_id = token_id or "".join(secrets.choice(_ID_LETTERS) for _ in range(10))
    return token_id, f"calve_{token_id}_{secrets.token_urlsafe(32)}"


def token_id(text: str) -> str | None:
    """The id in a text that has the form of a token."""
    found = _FORM.fullmatch(text)
    return found.group(1) if found else None


def hello(token: str, port: int, nonce: str) -> str:
    """The proof of knowing a token, for one port: passed on to a client of another port it does not fit."""
    said = f"calve-hello\n{port}\n{nonce}".encode()
    return hmac.new(token.encode(), said, hashlib.sha256).hexdigest()


def keep_token(path: Path) -> str:
    """The token of the file; made first if there is none. Of several who make it at once, all get the same."""
    if not os.path.lexists(path):
        _create(path, make_token(LOCAL)[1])
    return read_token(path)


def _create(path: Path, text: str) -> None:
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    number = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(number, "w", encoding="ascii") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        # If we die here, a draft is left that nobody reads. The link is whole or not there.
        with suppress(FileExistsError):
            os.link(draft, path)
    finally:
        draft.unlink()


def read_token(path: Path) -> str:
    """UsageError for a file that others can read or write, or that is not a token."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise UsageError(
            f"token file {path} does not exist", code="token_file", hint="calve serve makes it"
        ) from None
    except OSError as error:
        why = "it is a link" if path.is_symlink() else error.strerror
        raise _unsafe(path, f"{why}") from None
    with os.fdopen(number, encoding="ascii", errors="replace") as file:
        seen = os.fstat(file.fileno())
        if not stat.S_ISREG(seen.st_mode):
            raise _unsafe(path, "it is not a file")
        if seen.st_uid != os.geteuid():
            raise _unsafe(path, "another user owns it")
        if seen.st_mode & 0o077:
            raise _unsafe(path, f"others can use it (mode {stat.S_IMODE(seen.st_mode):o})")
        text = file.read(200).strip()
    if token_id(text) is None:
        raise _unsafe(path, "it does not contain a token")
    return text


def _unsafe(path: Path, why: str) -> UsageError:
    return UsageError(
        f"token file {path} is refused: {why}",
        code="token_file",
        hint=f"delete it, and calve serve makes another; or chmod 600 {path}",
    )
