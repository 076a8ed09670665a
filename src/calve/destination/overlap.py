"""Another selection of the same partition may hold the same rows: doubled unless refused (D8).

The destination itself is asked, at the survey and again at every attempt to publish. An Iceberg
commit asserts the very head that was asked, so of two stores that know nothing of each other one is
refused.
"""

import json
from collections.abc import Iterable, Sequence

from calve.destination.outcome import EarlierExport
from calve.model.errors import RefusedError
from calve.model.overlap import disjoint
from calve.model.plan import KeyPlan


def refuse_overlap(exports: Iterable[EarlierExport], source_table: str, wanted: Sequence[KeyPlan]) -> None:
    """`exports` are all that the destination remembers. A key of an old plan, without its readable text,
    is not compared."""
    known = list(exports)
    for key in wanted:
        if not key.text:
            continue
        identity, partition, selection, _ = json.loads(key.text)
        for export in known:
            other = export.input[2]
            if export.input[:2] != (identity, partition) or other == selection:
                continue
            if not disjoint(selection, other):
                raise RefusedError(
                    f"partition {partition} of {source_table} was exported before with another selection"
                    f" ({other or 'all of it'}) by process {export.process_id}: rows could be there twice",
                    code="overlap",
                    hint="export the whole partition into another table, or give --allow-overlap",
                )
