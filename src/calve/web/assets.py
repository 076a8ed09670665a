"""Files of the program, by the hash of their content: a browser asks for each once, and never has an old one.

They are read once, at the start; a request only looks into a dictionary. Of a known name with another hash the file is
given too, uncached: pages of another version of Calve behind the same address may ask for it.
"""

import gzip
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from calve.http.problem import HttpError

_TYPES = {
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_ADDRESS = re.compile(r"([a-z_]+)\.([0-9a-f]{16})\.([a-z]+)")
FOREVER = "public, max-age=31536000, immutable"
PACKED = {"Content-Encoding": "gzip"}


@dataclass(frozen=True, kw_only=True)
class Asset:
    data: bytes
    packed: bytes
    hash: str
    media_type: str


class Assets:
    def __init__(self) -> None:
        self.known: Mapping[str, Asset] = {
            one.name: _asset(one.name, one.read_bytes())
            for one in files("calve.web").joinpath("assets").iterdir()
            if one.name.rpartition(".")[2] in _TYPES
        }

    def target(self, name: str) -> str:
        """Below the root. KeyError for a file that is not there."""
        stem, _, ending = name.rpartition(".")
        return f"assets/{stem}.{self.known[name].hash}.{ending}"

    def route(self) -> Route:
        return Route("/assets/{address}", self._answer, methods=["GET"])

    async def _answer(self, request: Request) -> Response:
        found = _ADDRESS.fullmatch(request.path_params["address"])
        asset = self.known.get(f"{found[1]}.{found[3]}") if found else None
        if found is None or asset is None:
            raise HttpError(404, "no such file", code="no_such_route")
        kept = {"Cache-Control": FOREVER if found[2] == asset.hash else "no-store"}
        packs = takes_gzip(request)
        return Response(
            asset.packed if packs else asset.data,
            media_type=asset.media_type,
            headers={**kept, **(PACKED if packs else {}), "Vary": "Accept-Encoding"},
        )


def _asset(name: str, data: bytes) -> Asset:
    return Asset(
        data=data,
        packed=packed(data),
        hash=hashlib.sha256(data).hexdigest()[:16],
        media_type=_TYPES[name.rpartition(".")[2]],
    )


def takes_gzip(request: Request) -> bool:
    """Whether the browser does. One that gives it a weight of nought does not."""
    for coding in request.headers.get("accept-encoding", "").lower().split(","):
        name, _, weight = coding.partition(";")
        if name.strip() == "gzip":
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def packed(data: bytes) -> bytes:
    """Quickly: most of what there is to gain comes at the lowest level. What a page says beside secrets cannot be
    guessed from its length: the only secret in a page is a form's token, and that is new each time."""
    return gzip.compress(data, compresslevel=1, mtime=0)
