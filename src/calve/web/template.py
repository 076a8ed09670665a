"""Jinja: everything is escaped, a name that is missing is an error, and templates come from the package alone."""

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from calve.app.verbs.roles import KINDS
from calve.web.charts import CHARTS
from calve.web.marks import MARKS
from calve.web.words import FILTERS, STANDINGS

_OF_DICTS = frozenset(dir(dict))


class _Environment(Environment):
    def getattr(self, obj: Any, attribute: str) -> Any:
        """Documents are dicts of dicts. Asked for an attribute first, each of a page's thousands of keys raised an
        error before it was found."""
        if type(obj) is dict and attribute in obj and attribute not in _OF_DICTS:
            return obj[attribute]
        return super().getattr(obj, attribute)


class Templates:
    """May be shared by threads."""

    def __init__(self) -> None:
        self._environment = _Environment(
            loader=PackageLoader("calve.web"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.filters.update(FILTERS)
        self._environment.globals.update(
            {**FILTERS, **CHARTS, **MARKS, "STANDINGS": STANDINGS, "KINDS": KINDS}
        )

    def render(self, name: str, **context: Any) -> bytes:
        text = self._environment.get_template(name).render(**context)
        return text.encode("utf-8", "replace")  # names may hold half of a surrogate pair
