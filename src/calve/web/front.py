"""The dashboard as a front of the server: all of its routes."""

from collections.abc import Sequence

from starlette.routing import BaseRoute

from calve.http.server import Shared
from calve.web.documents import Documents
from calve.web.forms import Forms
from calve.web.frame import Frame
from calve.web.pages import PATHS, TITLES, Pages
from calve.web.plans import Plans
from calve.web.sessions import Sessions


def dashboard(shared: Shared) -> Sequence[BaseRoute]:
    frame = Frame(shared, paths=PATHS, titles=TITLES)
    documents = Documents(shared.service)
    pages = Pages(frame, documents)
    plans = Plans(frame, pages, documents)
    return [
        frame.assets.route(),
        *Sessions(frame).routes(),
        *Forms(frame).routes(),
        *plans.routes(),
        *pages.routes(),
    ]
