"""The clouds beside S3 that tests start, each as a person configures it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.azurite import ACCOUNT, HOST, KEY, azurite
from support.fake_gcs import fake_gcs
from support.gcs_front import TOKEN

BUCKET = "calve-cloud"


@dataclass(frozen=True, kw_only=True)
class Cloud:
    """A bucket of a running server."""

    root: str
    properties: Mapping[str, str]  # of a catalog
    section: Mapping[str, str]  # of `[storage."…"]`
    secret: str

    def lines(self, catalog: str, folder: str) -> str:
        """For `calve.toml`: a catalog there, and the keys of all else."""
        own = {"type": "sql", "uri": f"sqlite:///{catalog}.db", "warehouse": f"{self.root}/{folder}"}
        return f"\n[catalog.{catalog}]\n{_lines(own | dict(self.properties))}" + (
            f'\n[storage."{self.root}"]\n{_lines(self.section)}'
        )


def _lines(values: Mapping[str, str]) -> str:
    return "".join(f'"{name}" = "{value}"\n' for name, value in values.items())


@contextmanager
def cloud(name: str, folder: Path) -> Iterator[Cloud]:
    with _OPENERS[name](folder) as found:
        yield found


@contextmanager
def _azure(folder: Path) -> Iterator[Cloud]:
    with azurite(folder) as server:
        server.create_container(BUCKET)
        yield Cloud(
            root=f"abfss://{BUCKET}@{HOST}",
            properties=server.properties(),
            section={"account": ACCOUNT, "account_key": KEY, "endpoint": server.endpoint},
            secret=KEY,
        )


@contextmanager
def _google(folder: Path) -> Iterator[Cloud]:
    with fake_gcs(folder) as server:
        server.create_bucket(BUCKET)
        section = {"token": TOKEN, "endpoint": server.front.endpoint}
        yield Cloud(root=f"gs://{BUCKET}", properties=server.properties(), section=section, secret=TOKEN)


_OPENERS = {"azure": _azure, "google": _google}
# Google's server is built for the long tests only.
CLOUDS = ("azure", pytest.param("google", marks=pytest.mark.long))
