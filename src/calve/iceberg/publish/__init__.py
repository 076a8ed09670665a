"""Publishing to Iceberg, exactly once.

One attempt: load, search for marks (`search`), check and recount (`recount`), build one
snapshot on exactly that metadata (`build`, `replace`, `history`), note its id, send once
(`commit`), look again (`publish`). And the fence, after which nothing of a process can land
(`fence`).

Belongs here: all that decides whether a commit is sent and what its answer means. Must not be
here: retries and budgets (the control plane's), deleting files (`calve.iceberg.undo`), reading footers.
Never `Transaction` or `Table.append`: PyIceberg's retry loop rebases without our search.
"""

from calve.destination.outcome import AlreadyExported, EarlierExport, PublishedSnapshot, PublishFenced
from calve.iceberg.publish.fence import fence
from calve.iceberg.publish.marks import find_export
from calve.iceberg.publish.publish import publish

__all__ = [
    "AlreadyExported",
    "EarlierExport",
    "PublishFenced",
    "PublishedSnapshot",
    "fence",
    "find_export",
    "publish",
]
