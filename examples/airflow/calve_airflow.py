"""An operator of Airflow that exports, and takes no worker of Airflow's while Calve works.

Put this file where Airflow imports plugins or packages from (`PYTHONPATH`): the triggerer imports it by name. It needs
`pip install requests` and `pip install --no-deps calve`, and CALVE_SERVER and CALVE_TOKEN_FILE in the environment.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from typing import Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException
from airflow.triggers.base import BaseTrigger, TriggerEvent

from calve import Client, Process


def client() -> Client:
    return Client(os.environ["CALVE_SERVER"])


class CalveExport(BaseOperator):
    """Exports partitions, proves them, and answers with the ids of the processes.

    No key is sent: the same export again joins what is under way, and what is exported already is skipped. So Airflow
    may retry it, clear it, or lose it at any line.
    """

    template_fields = ("table", "to", "partitions")

    def __init__(self, *, table: str, to: str, partitions: Sequence[str], **options: Any) -> None:
        super().__init__(**options)
        self.table = table
        self.to = to
        self.partitions = partitions

    def execute(self, context: Any) -> list[str]:
        with client() as calve:
            asked = calve.export(self.table, self.to, partitions=list(self.partitions))
        if asked.refused:
            raise AirflowFailException("; ".join(f"{one.message} ({one.hint})" for one in asked.refused))
        ids = [process.id for process in asked.processes]
        if ids:
            self.defer(trigger=CalveEnd(ids), method_name="ended")
        self.log.info("nothing to do: %s", "; ".join(asked.unchanged))
        return ids

    def ended(self, context: Any, event: list[str]) -> list[str]:
        with client() as calve:
            for process in calve.wait(*event):
                if process.error:
                    raise RuntimeError(f"{process.id}: {process.error.message} ({process.error.hint})")
            for proof in calve.verify(*event):
                if not proof["ok"]:
                    raise AirflowFailException(f"what was exported is not what was read: {proof['faults']}")
        return event


class CalveEnd(BaseTrigger):
    """Fires when all these processes have ended, however they did."""

    def __init__(self, ids: list[str], seconds: float = 10.0) -> None:
        super().__init__()
        self.ids = ids
        self.seconds = seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return "calve_airflow.CalveEnd", {"ids": self.ids, "seconds": self.seconds}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        while not await asyncio.to_thread(self._ended):
            await asyncio.sleep(self.seconds)
        yield TriggerEvent(self.ids)

    def _ended(self) -> bool:
        with client() as calve:
            found: list[Process] = [calve.process(one) for one in self.ids]
        return all(process.finished_at for process in found)
