"""A page is printed once for all who see the same: what is each viewer's own is a blank, filled in for each of them.

A blank has a sign that this program made up: no text from outside can be one. Beside the blanks a print depends on the
document, on the address and on the role alone.
"""

import asyncio
import re
import secrets
from collections.abc import Callable, Hashable

from markupsafe import escape

MOST = 8  # of one document: roles, and a page as a whole or its part
SECONDS = 2.0  # viewers of the same second share
_SIGN = f"b{secrets.token_hex(8)}"
NAME = f"{_SIGN}n."  # short: a name that is cut for the eye is not
KEY = f"{_SIGN}k."
_BLANK = re.compile(rf"{_SIGN}(?:(n)|(k)|t([a-z_-]+))\.".encode())


def token_blank(action: str) -> str:
    return f"{_SIGN}t{action}."


def filled(page: bytes, *, name: str, key: Callable[[], str], token: Callable[[str], str]) -> bytes:
    """For one viewer: each form has a key and a token of its own."""

    def own(found: re.Match[bytes]) -> bytes:
        if found[1]:
            return str(escape(name)).encode("utf-8", "replace")
        return (key() if found[2] else token(found[3].decode())).encode()

    return _BLANK.sub(own, page)


class Prints:
    """Of one document, and one event loop."""

    def __init__(self) -> None:
        self._made: dict[Hashable, asyncio.Task[bytes]] = {}

    async def get(self, key: Hashable, make: Callable[[], bytes]) -> bytes:
        """Printed in a thread by the first who asks."""
        if key not in self._made:
            if len(self._made) >= MOST:
                return await asyncio.to_thread(make)
            self._made[key] = asyncio.create_task(asyncio.to_thread(make))
            asyncio.get_running_loop().call_later(SECONDS, self._made.pop, key, None)
        return await asyncio.shield(self._made[key])
