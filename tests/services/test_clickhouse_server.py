"""Debian's ClickHouse server, in a folder of its own."""

import urllib.request
from pathlib import Path

import pytest

from support.clickhouse_server import ClickHouseServer, ServerOptions, User, clickhouse_server

pytestmark = pytest.mark.services


def ask(server: ClickHouseServer, sql: str, user: str = "default", password: str = "secret") -> str:
    request = urllib.request.Request(
        server.url + "/", sql.encode(), {"X-ClickHouse-User": user, "X-ClickHouse-Key": password}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return str(answer.read().decode())


def test_it_lives_in_its_folder_and_keeps_its_data_over_a_kill(tmp_path: Path) -> None:
    options = ServerOptions(users={"default": User(password="secret")}, timezone="Asia/Tokyo")
    with clickhouse_server(tmp_path / "a & b", options) as server:
        assert ask(server, "SELECT timezone()") == "Asia/Tokyo\n"
        ask(server, "CREATE TABLE t (a UInt8) ENGINE = MergeTree ORDER BY a")
        ask(server, "INSERT INTO t VALUES (1)")
        port = server.port
        server.kill()
        with pytest.raises(OSError, match="refused"):
            ask(server, "SELECT 1")
        server.start()
        assert (server.port, ask(server, "SELECT count() FROM t")) == (port, "1\n")
        assert (server.data / "data" / "default" / "t").is_dir()


def test_two_of_them_live_side_by_side(tmp_path: Path) -> None:
    options = ServerOptions(users={"default": User(password="secret")})
    with clickhouse_server(tmp_path / "1", options) as one, clickhouse_server(tmp_path / "2", options) as two:
        assert one.port != two.port
        assert ask(one, "SELECT version()") == ask(two, "SELECT version()")
