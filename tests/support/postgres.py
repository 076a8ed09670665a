"""A real PostgreSQL for tests: its own folder, a free loopback port, gone afterwards.

Durability is off (`fsync`), nothing else is: transactions, locks and the clock are the real ones, and
a server that is stopped at once keeps what it committed; only a machine that dies would lose it.
"""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
from psycopg import sql

from calve.model.errors import PermanentError, UsageError
from calve.model.process import new_process_id
from support.programs import free_ports

_INSTALLED = Path("/usr/lib/postgresql")
_START_SECONDS = 60
_UNPRIVILEGED = ("postgres", "nobody")  # PostgreSQL refuses to run as root
_SETTINGS = {
    "fsync": "off",
    "full_page_writes": "off",
    "dynamic_shared_memory_type": "mmap",  # goes with the folder; a segment in /dev/shm is left by a stop at once
    "max_connections": "200",
    "shared_buffers": "64MB",
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "''",
}


@dataclass(frozen=True, kw_only=True)
class Postgres:
    """One running server."""

    port: int
    data: Path
    user: str | None

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://calve@127.0.0.1:{self.port}/{database}"

    @property
    def pid(self) -> int:
        """Of the postmaster, the parent of all its programs."""
        return int((self.data / "postmaster.pid").read_text().split()[0])

    @property
    def running(self) -> bool:
        return (self.data / "postmaster.pid").exists()

    def restart(self) -> None:
        """At once, without a checkpoint: every connection is cut, and what was not committed is gone.
        Returns when it answers again."""
        self.stop()
        self.start()

    def stop(self) -> None:
        _run(self.user, [_binary("pg_ctl"), "-D", str(self.data), "-m", "immediate", "-w", "stop"])

    def start(self) -> None:
        log = self.data.with_name("log")
        start = [_binary("pg_ctl"), "-D", str(self.data), "-l", str(log), "-w", "-t", str(_START_SECONDS)]
        settings = [f"-c{name}={value}" for name, value in (_SETTINGS | {"port": str(self.port)}).items()]
        _run(self.user, [*start, "-o", " ".join(settings), "start"])

    def guarded_database(self, user: str, password: str) -> str:
        """As `new_database`, for a user who is let in by password only."""
        url = self.new_database()
        database = url.rpartition("/")[2]
        with psycopg.connect(self.url(), autocommit=True) as connection:
            role = sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(
                sql.Identifier(user), sql.Literal(password)
            )
            connection.execute(role)
            owner = sql.SQL("ALTER DATABASE {} OWNER TO {}")
            connection.execute(owner.format(sql.Identifier(database), sql.Identifier(user)))
            rules = self.data / "pg_hba.conf"
            rules.write_text(f"host all {user} 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
            connection.execute("SELECT pg_reload_conf()")
        return f"postgresql://{user}:{password}@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """The URL of an empty database of its own."""
        name = f"calve_{new_process_id()}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"'.encode())
        return self.url(name)


@contextmanager
def postgres() -> Iterator[Postgres]:
    """Start one, and stop it at the end."""
    folder = Path(tempfile.mkdtemp(prefix="calve-postgres-"))
    user = _unprivileged_user()
    try:
        if user is not None:
            shutil.chown(folder, user)
        data = folder / "data"
        _run(user, [_binary("initdb"), "-D", str(data), "-U", "calve", "-A", "trust", "-E", "UTF8", "-N"])
        server = Postgres(port=free_ports(1)[0], data=data, user=user)
        server.start()
        try:
            yield server
        finally:
            if server.running:  # a test that stops it may fail before it starts it again
                server.stop()  # immediately: nothing in it is worth a checkpoint
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _binary(name: str) -> str:
    """From PATH, or the newest of the distribution's, which are not on it."""
    versions = sorted(_INSTALLED.glob(f"*/bin/{name}"), key=lambda path: int(path.parts[-3]))
    found = shutil.which(name) or (str(versions[-1]) if versions else None)
    if found is None:
        raise UsageError(
            f"PostgreSQL is needed for these tests, and its program {name!r} was not found",
            code="postgres_missing",
            hint="apt-get install postgresql",
        )
    return found


def _unprivileged_user() -> str | None:
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in _UNPRIVILEGED if name in known)


def _run(user: str | None, command: list[str]) -> None:
    done = subprocess.run(
        command,
        user=user,
        group=None if user is None else pwd.getpwnam(user).pw_gid,
        extra_groups=None if user is None else [],
        cwd="/",
        env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C.UTF-8"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=2 * _START_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        last = done.stdout.decode(errors="replace").strip().splitlines()[-1:]
        raise PermanentError(
            f"{Path(command[0]).name} failed: {' '.join(last)}",
            code="postgres_start",
            hint="apt-get install --reinstall postgresql",
        )
