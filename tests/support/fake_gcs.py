"""A Google Cloud Storage on the loopback: `fake-gcs-server`, in memory, with a front for the XML API."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.gcs_front import TOKEN, GcsFront, gcs_front
from support.programs import Program, free_ports, listening, missing

VERSION = "1.56.0"
_CACHE = Path(os.environ.get("CALVE_CACHE") or Path(__file__).parents[2] / ".cache")
_BUILT = _CACHE / f"fake-gcs-server-{VERSION}/fake-gcs-server"


@dataclass(frozen=True, kw_only=True)
class FakeGcs:
    front: GcsFront
    port: int  # of the JSON API

    def properties(self) -> dict[str, str]:
        """For a catalog's entry."""
        return {"gcs.oauth2.token": TOKEN, "gcs.service.host": self.front.endpoint}

    def create_bucket(self, name: str) -> None:
        body = b'{"name": "%s"}' % name.encode()
        status, answer = self.front.ask(
            "POST", "/storage/v1/b?project=calve", body, {"Content-Type": "application/json"}
        )
        assert status == 200, answer


@contextmanager
def fake_gcs(folder: Path) -> Iterator[FakeGcs]:
    binary = shutil.which("fake-gcs-server") or (str(_BUILT) if _BUILT.exists() else None)
    if binary is None:
        raise missing("fake-gcs-server", "scripts/setup long")
    (port,) = free_ports(1)
    options = ["-backend", "memory", "-host", "127.0.0.1", "-port", str(port), "-scheme", "http"]
    program = Program("fake-gcs-server", [binary, *options, "-log-level", "warn"], folder / "output.log")
    try:
        program.wait_ready(lambda: listening(port))
        with gcs_front(port) as front:
            yield FakeGcs(front=front, port=port)
    finally:
        program.kill()
