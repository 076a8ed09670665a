"""Another selection of the same partition may hold the same rows: doubled unless refused (D8).

The table itself is asked, before planning and again at every try at a publish: the commit asserts
the very head that was asked, so of two stores that know nothing of each other one is refused.
"""

import json
from collections.abc import Iterator, Mapping, Sequence

from calve.iceberg.publish import marks
from calve.model.errors import RefusedError
from calve.model.overlap import disjoint
from calve.model.plan import KeyPlan


def refuse_overlap(properties: Mapping[str, str], source_table: str, wanted: Sequence[KeyPlan]) -> None:
    """`properties` are the table's. A key of an old plan, without its readable text, is not compared."""
    for key in wanted:
        if not key.text:
            continue
        identity, partition, selection, _ = json.loads(key.text)
        for process_id, other in _selections(properties, identity, partition):
            if other != selection and not disjoint(selection, other):
                raise RefusedError(
                    f"partition {partition} of {source_table} was exported before with another"
                    f" selection ({other or 'all of it'}) by process {process_id}: rows could be there twice",
                    code="overlap",
                    hint="export the whole partition into another table, or give --allow-overlap",
                )


def _selections(properties: Mapping[str, str], identity: str, partition: str) -> Iterator[tuple[str, str]]:
    """The process and selection of every export of that partition that the table remembers."""
    for name, value in properties.items():
        if not name.startswith(marks.KEY_PROPERTY):
            continue
        export = marks.read_property(name.removeprefix(marks.KEY_PROPERTY), value)
        if export is not None and export.input[:2] == (identity, partition):
            yield export.process_id, export.input[2]
