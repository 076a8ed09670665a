"""The façade: every verb of Calve as a function of values.

The command line, the HTTP API, SQL and the Python client are built on `Calve` and on nothing below
it. It prints nothing, raises `CalveError` only, and may be shared by threads. Long work is queued by
one call and followed by another. Verbs of processes answer with values (`app.view` has their JSON);
reports are documents: the JSON that `--json` prints. The verbs are in `app.verbs`, a group in a file;
`app.verbs.roles` says who may use which.
"""

import getpass
import os
import socket
from collections.abc import Callable
from copy import copy
from typing import Any, Self

from calve.app.config import Config
from calve.app.front import Json
from calve.app.verbs.backups import BackupVerbs
from calve.app.verbs.installation import InstallationVerbs
from calve.app.verbs.pages import PageVerbs
from calve.app.verbs.policies import PolicyVerbs
from calve.app.verbs.processes import ProcessVerbs
from calve.app.verbs.tables import TableVerbs
from calve.app.wiring import App
from calve.control.client import asked_store
from calve.control.ports import Runner, Store
from calve.model.access import Asked


class Calve(ProcessVerbs, TableVerbs, BackupVerbs, PolicyVerbs, PageVerbs, InstallationVerbs):
    """One configuration, opened. Names of tables, destinations and processes are as a person types
    them: `main:db.events`, `lake.ns.events`, an id, a prefix of one, or a batch's id.

    `options` are values of `calve.app.values`, one class for each verb that takes some.
    """

    def __init__(
        self,
        config: Config,
        *,
        runner: Runner | None = None,
        migrate: bool = False,
        around_store: Callable[[Any], Any] = lambda store: store,
    ) -> None:
        """`migrate`: change the store's schema also while older workers use it. `around_store`: a decorator
        of the store, such as one that measures it."""
        self.config = config
        self._app = App(config, runner=runner, migrate=migrate, around_store=around_store)
        self._asked: Asked | None = None

    def on_behalf(self, asked: Asked) -> "Calve":
        """The same façade for one change that somebody asked for. Only the original is closed."""
        made = copy(self)
        made._asked = asked
        return made

    def _asking(self, verb: str, subject: str = "") -> Asked:
        return self._asked or Asked(who=person(), verb=verb, subject=subject)

    def _store(self, verb: str, subject: str = "") -> Store:
        return asked_store(self._app.store, self._asking(verb, subject))

    def close(self) -> None:
        self._app.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def support(self, *, with_names: bool = False) -> dict[str, Json]:
        """Documents for a bug report, by the name of their file."""
        from calve.app.support import bundle

        return bundle(self, with_names=with_names)


def person() -> str:
    """Who the audit names where no token says it: the user of this program."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        user = str(os.getuid())
    return f"local:{user}@{socket.gethostname()}"
