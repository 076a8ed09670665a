"""Pages and their files are sent packed to browsers that take it, and as they are to others."""

import gzip

import httpx
import pytest

from web.conftest import Place


@pytest.mark.parametrize(
    ("takes", "packed"),
    [
        ("gzip, deflate, br", True),
        ("br;q=1.0, GZIP;q=0.5", True),
        ("gzip;q=0", False),
        ("gzip; q=0.000", False),
        ("br", False),
        ("identity", False),
    ],
)
def test_who_takes_gzip_gets_it(place: Place, takes: str, packed: bool) -> None:
    with place.browser(**{"Accept-Encoding": takes}) as client:
        page = _raw(client, "/tables")
        style = page[1].decode().partition("calve.")[2].partition(".css")[0]
        file = _raw(client, f"/assets/calve.{style}.css")
    for answer, data in (page, file):
        assert (answer.headers.get("content-encoding") == "gzip") is packed
        assert (int(answer.headers["content-length"]) < len(data)) is packed
    assert page[1].rstrip().endswith(b"</html>")
    assert file[0].headers["vary"] == "Accept-Encoding"


def _raw(client: httpx.Client, address: str) -> tuple[httpx.Response, bytes]:
    with client.stream("GET", address) as answer:
        assert answer.status_code == 200
        data = b"".join(answer.iter_raw())
    return answer, gzip.decompress(data) if answer.headers.get("content-encoding") else data
