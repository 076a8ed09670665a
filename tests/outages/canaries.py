"""Every service guarded by a secret of its own, a configuration that holds them, and `calve` as a person runs it."""

import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from calve.app.token_file import read_token
from calve.model.process import new_process_id
from support.catalog_proxy import CatalogProxy
from support.catalog_tokens import TOKENS_PATH, CatalogTokens
from support.clickhouse_front import ClickHouseFront, FrontOptions, FrontUser, clickhouse_front
from support.iceberg_rest import apache_rest
from support.outage_place import BUCKET, make_table
from support.postgres import Postgres
from support.programs import ForkedProgram, Program
from support.s3 import Keys, S3Server, s3_server
from support.sparks import java_options

SOURCE = "canary-of-the-source-8c2e"
STORE = "canary-of-the-store-71aa"
CATALOG = "canary-of-the-sql-catalog-0b7a"
S3 = "canary-of-the-storage-5f1d"
CLIENT = "canary-of-the-rest-client-93be"
TOKEN = "canary-of-the-rest-token-d210"
WEBHOOK = "canary-of-the-webhook-2f6c"  # of a receiver that is away: errors are where URLs are told
WRONG = "canary-that-is-refused-44d9"
# Of services that are not here: the configuration is read, shown, bundled and handed on all the same.
ENGINE = "canary-of-the-lakes-table-engine-7f30"
AZURE = "canary-of-the-azure-account-c81b"
SAS = "canary-of-the-azure-signature-e4a6"
GOOGLE = "canary-of-the-google-token-19d5"
BACKUPS = "ca11ab1e" * 8  # 32 bytes in hex
SPARK = "canary-of-the-spark-conf-a0c3"
PING = "canary-of-the-ping-6b12"
PROXY = "canary-of-the-outgoing-proxy-e07c"  # one that answers nobody
ELSEWHERE = (ENGINE, AZURE, SAS, GOOGLE, BACKUPS, SPARK, PING, PROXY)
CANARIES = (SOURCE, STORE, CATALOG, S3, CLIENT, TOKEN, WEBHOOK, WRONG, *ELSEWHERE)
PLANTED = frozenset({"calve.toml", "calve.token", "password-of-the-source"})
_ADDRESS = re.compile(r"calve serves (\S+);")


class Guarded:
    """The services, each of which lets in only who knows its secret."""

    def __init__(
        self, folder: Path, front: ClickHouseFront, s3: S3Server, rest: CatalogProxy, postgres: Postgres
    ) -> None:
        self.folder, self.front, self.s3, self.rest = folder, front, s3, rest
        self.store_url = postgres.guarded_database("canary_store", STORE)
        self.catalog_url = postgres.guarded_database("canary_catalog", CATALOG)
        folder.mkdir()
        (folder / "password-of-the-source").write_text(SOURCE)
        (folder / "calve.toml").write_text(self._config())
        (folder / "tmp").mkdir()

    @property
    def tokens(self) -> CatalogTokens:
        assert self.rest.tokens is not None
        return self.rest.tokens

    def _config(self) -> str:
        keys = f'"s3.endpoint" = "{self.s3.endpoint}"\n"s3.region" = "us-east-1"\n"s3.access-key-id" = "calve-test"'
        pg = self.catalog_url.replace("postgresql://", "postgresql+psycopg://")
        return f"""
[source.main]
url = "{self.front.url}"
password_file = "password-of-the-source"
id = "canaries"
lake = {{far = "NoSuchEngine('http://127.0.0.1:9/{{path}}/', 'calve-test', '{ENGINE}')"}}
[storage."abfss://container@account.dfs.core.windows.net"]
account_key = "{AZURE}"
endpoint = "http://127.0.0.1:9"
[storage."abfss://other@account.dfs.core.windows.net"]
sas_token = "sv=1&sig={SAS}"
endpoint = "http://127.0.0.1:9"
[storage."gs://bucket"]
token = "{GOOGLE}"
endpoint = "http://127.0.0.1:9"
[backup]
url = "s3://{BUCKET}/backups"
encryption_key = "{BACKUPS}"
[policy.events]
source = "main:db.events"
to = "far.ns.events"
view = "db.events_all"
export_after = "5200w"
[ping.nightly]
success = "http://127.0.0.1:9/{PING}"
[store]
url = "{self.store_url}"
[catalog.far]
type = "sql"
uri = "{pg}"
warehouse = "s3://{BUCKET}/warehouse"
{keys}
"s3.secret-access-key" = "{S3}"
[catalog.refused]
type = "sql"
uri = "{pg}"
warehouse = "s3://{BUCKET}/refused"
{keys}
"s3.secret-access-key" = "{WRONG}"
[catalog.client]
type = "rest"
uri = "{self.rest.uri}"
credential = "{self.tokens.credential}"
oauth2-server-uri = "{self.rest.uri}{TOKENS_PATH}"
[catalog.token]
type = "rest"
uri = "{self.rest.uri}"
token = "{TOKEN}"
[storage."s3://{BUCKET}"]
endpoint = "{self.s3.endpoint}"
region = "us-east-1"
access_key_id = "calve-test"
secret_access_key = "{S3}"
[spark]
master = "{os.environ.get("CALVE_TEST_MASTER", "local-cluster[1,1,1024]")}"
[spark.conf]
"spark.executor.extraJavaOptions" = "{java_options()}"
"spark.hadoop.fs.s3a.secret.key" = "{SPARK}"
[notify.away]
url = "http://127.0.0.1:9/{WEBHOOK}"
secret = "{WEBHOOK}"
on = ["failed", "done"]
[limits]
tick_seconds = 0.1
connect_seconds = 2
call_seconds = 6
"""

    @property
    def environment(self) -> dict[str, str]:
        """Everything that is written goes into the folder that is searched."""
        here = str(self.folder / "tmp")
        return {"TMPDIR": here, "SPARK_LOCAL_DIRS": here, "CALVE_CONFIG": str(self.folder / "calve.toml")}

    def calve(self, *arguments: str, codes: tuple[int, ...] = (0,), **settings: str) -> str:
        """Both what it says and what it answers."""
        said = self.folder / f"{new_process_id()}.stderr"
        command = ["calve.cli.main:main", *arguments]
        program = ForkedProgram("calve", command, said, self.environment | settings, self.folder)
        out = program.read_all()
        code = program.wait(300)
        self.said = said.read_text()
        assert code in codes, f"{arguments}: {code}\n{out}\n{self.said}"
        return out + self.said

    def json(self, *arguments: str, **given: Any) -> tuple[Any, str]:
        text = self.calve(*arguments, "--json", **given)
        return json.loads(text.removesuffix(self.said)), text

    @contextmanager
    def server(self) -> Iterator[tuple[Program, httpx.Client]]:
        """`calve serve`, with the worker beside it, and a client that has the token of this host."""
        command = [sys.executable, "-m", "calve.cli", "serve", "--with-worker", "--port", "0", "--debug"]
        log = self.folder / "serve.log"
        program = Program("calve serve", ["env", f"--chdir={self.folder}", *command], log, self.environment)
        try:
            program.wait_ready(lambda: "the token of this host" in log.read_text())
            found = _ADDRESS.search(log.read_text())
            assert found
            headers = {"Authorization": f"Bearer {read_token(self.folder / 'calve.token')}"}
            with httpx.Client(base_url=found[1], headers=headers, timeout=60, trust_env=False) as client:
                yield program, client
        finally:
            program.kill()


@contextmanager
def guarded_services(folder: Path, postgres: Postgres) -> Iterator[Guarded]:
    """All of them, started, with a table at the source."""
    users = {"default": FrontUser(password=SOURCE)}
    tokens = CatalogTokens("calve", CLIENT, fixed=TOKEN)
    with (
        clickhouse_front(folder / "front", FrontOptions(users=users)) as front,
        s3_server(folder / "s3", Keys(secret_access_key=S3)) as s3,
        apache_rest(folder / "rest") as rest,
        CatalogProxy(rest.uri, tokens) as proxy,
    ):
        s3.create_bucket(BUCKET)
        guarded = Guarded(folder / "place", front, s3, proxy, postgres)
        _fill(front)
        yield guarded


def _fill(front: ClickHouseFront) -> None:
    from calve.clickhouse.server.source import ServerOptions, ServerSource

    options = ServerOptions(url=front.url, password=SOURCE, query_seconds=60.0)
    with ServerSource("main", options).visit() as session:
        for statement in make_table("events", rows=100):
            session.execute(statement)
