"""Jinja: everything is escaped, a name that is missing is an error, and templates come from the package alone."""

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from calve.web.charts import CHARTS
from calve.web.words import FILTERS


class Templates:
    """May be shared by threads."""

    def __init__(self) -> None:
        self._environment = Environment(
            loader=PackageLoader("calve.web"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.filters.update(FILTERS)
        self._environment.globals.update({**FILTERS, **CHARTS})

    def render(self, name: str, **context: Any) -> bytes:
        text = self._environment.get_template(name).render(**context)
        return text.encode("utf-8", "replace")  # names may hold half of a surrogate pair
