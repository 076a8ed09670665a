"""Calve in this program, asked as a server is: `Client.local()`."""

from collections.abc import Mapping
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calve.client.transport import StatementAnswer

if TYPE_CHECKING:
    from calve.app.calve import Calve
    from calve.sql.execution import Sql


class Local:
    """The user of this program may do everything: the configuration is theirs."""

    def __init__(self, calve: "Calve") -> None:
        """The caller who opened `calve` closes it."""
        from calve.app.desk import Desk, local_caller

        self._ends = ExitStack()
        self._calve = calve
        self._desk, self._caller = Desk(calve), local_caller()

    @classmethod
    def opened(cls, config: str | Path | None) -> "Local":
        from calve.app.calve import Calve
        from calve.app.config import load_config

        made = cls(Calve(load_config(config)))
        made._ends.callback(made._calve.close)
        return made

    def close(self) -> None:
        self._ends.close()

    def call(self, verb: str, arguments: Mapping[str, Any], *, key: str = "") -> Any:
        return self._desk.perform(self._caller, verb, arguments, key=key)

    def statement(self, text: str, form: str = "") -> StatementAnswer:
        made = self._sql.run(self._caller, text, form=form)
        return StatementAnswer(
            data=made.data,
            form=made.form,
            processes=made.processes,
            joined=made.joined,
            truncated=made.truncated,
        )

    @cached_property
    def _sql(self) -> "Sql":
        from calve.sql import execution

        limits = self._calve.config.limits
        # Not required here: this user can read these files without us.
        cages = execution.cages(limits, required=False)
        self._ends.callback(cages.close)
        return execution.Sql(self._desk, cages, limits)
