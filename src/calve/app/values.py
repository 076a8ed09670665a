"""Values of the rooms below that a front builds, so that it need not know those rooms."""

from calve.backup.deletion import Keep
from calve.backup.request import BackupOptions
from calve.clickhouse.parts.partitions import Selection
from calve.export.request import ExportOptions
from calve.optimize.request import OptimizeOptions, SortBy, parse_sort
from calve.restore.submit import RestoreOptions

__all__ = [
    "BackupOptions",
    "ExportOptions",
    "Keep",
    "OptimizeOptions",
    "RestoreOptions",
    "Selection",
    "SortBy",
    "parse_sort",
]
