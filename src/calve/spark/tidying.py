"""What comes after the tasks of an optimize, in the driver's JVM: delete files that delete nothing, manifests."""

import json
import time
from typing import Any

from calve.spark.actions import ActionTable, answered, where_of
from calve.spark.driver import Driver
from calve.spark.maintenance import drop_deletes


def tidy(payload: str, driver: Driver) -> str:
    """Each step under its own mark, found again by the next attempt."""
    started = time.monotonic()
    order = json.loads(payload)
    table = ActionTable(driver, where_of(order))
    done = []
    if paths := order.get("dropped_deletes"):
        done.append(drop_deletes(table, paths))
    if order.get("dangling"):
        action = table.actions().removeDanglingDeleteFiles(table.table)
        done.append(table.commit("dangling", action, lambda it: _size(it.execute().removedDeleteFiles())))
    for spec_id in order.get("manifest_specs", ()):
        action = table.actions().rewriteManifests(table.table).specId(spec_id)
        done.append(table.commit(f"manifests/{spec_id}", action, _execute_manifests))
    return json.dumps(answered("tidy", done, time.monotonic() - started))


def _execute_manifests(action: Any) -> int:
    return _size(action.execute().rewrittenManifests())


def _size(items: Any) -> int:
    return sum(1 for _ in items)
