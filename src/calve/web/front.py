"""The dashboard as a front of the server: all of its routes."""

from collections.abc import Sequence

from starlette.routing import BaseRoute

from calve.http.server import Shared
from calve.web.documents import Documents
from calve.web.forms import Forms
from calve.web.frame import Frame
from calve.web.pages import PATHS, TITLES, Pages
from calve.web.sessions import Sessions


def dashboard(shared: Shared) -> Sequence[BaseRoute]:
    frame = Frame(shared, paths=PATHS, titles=TITLES)
    pages = Pages(frame, Documents(shared.service))
    return [
        frame.assets.route(),
        *Sessions(frame).routes(),
        *Forms(frame).routes(),
        *pages.routes(),
    ]
