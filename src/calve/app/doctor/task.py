"""What `doctor` runs on an executor: the engine opens and answers."""

import json


def run(_payload: str) -> str:
    from calve.clickhouse.engine.engine import worker_engine

    version = worker_engine().rows("SELECT version() AS version")[0]["version"]
    return json.dumps({"receipt": version})
