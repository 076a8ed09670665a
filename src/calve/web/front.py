"""The dashboard as a front of the server: all of its routes."""

import threading
from collections.abc import Sequence
from contextlib import suppress

from starlette.routing import BaseRoute

from calve.app.desk import Desk
from calve.http.server import Shared
from calve.model.access import Caller, Role
from calve.model.errors import CalveError
from calve.web.documents import Documents
from calve.web.forms import Forms
from calve.web.frame import Frame
from calve.web.pages import PATHS, TITLES, Pages
from calve.web.plans import ShownPlans
from calve.web.sessions import Sessions


def dashboard(shared: Shared) -> Sequence[BaseRoute]:
    frame = Frame(shared, paths=PATHS, titles=TITLES)
    documents = Documents(shared.service)
    # Looks and outages move no cursor: a page that is loaded because of one must not be the one from before.
    shared.streams.noticed.append(documents.changed)
    pages = Pages(frame, documents)
    plans = ShownPlans(frame, pages, documents)
    threading.Thread(target=_first_look, args=(shared.service.desk,), name="first-look", daemon=True).start()
    return [
        frame.assets.route(),
        *Sessions(frame).routes(),
        *Forms(frame, changed=documents.changed).routes(),
        *plans.routes(),
        *pages.routes(),
    ]


def _first_look(desk: Desk) -> None:
    """The counts of all work, which no page should wait for: 100,000 processes take a second."""
    for verb in ("tables", "tiering"):
        with suppress(CalveError):  # the first page says what is wrong
            desk.perform(Caller(name="pages", role=Role.VIEWER), verb, {})
